"""From ids to vectors and back: the first and the last room of the walk."""

import torch
from torch import Tensor, nn

from regard.errors import TaskError, UnknownId, no_row
from regard.nn.linear import suits, turned
from regard.nn.see import Part, see
from regard.nn.table import find_rows

PIECE = 1024  # tokens of the vocabulary


class Embed(Part):
    """ids (B, N) → X (B, N, d): the token's row, scaled, plus where it stands, plus which segment it is in; normed."""

    def __init__(
        self,
        n_vocab: int,
        d: int,
        *,
        positions: Part | None = None,
        n_types: int = 0,
        scale: float = 1.0,
        norm: Part | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_vocab, d)
        self.positions = positions
        self.types = nn.Embedding(n_types, d) if n_types else None
        self.scale, self.norm, self.dropout = scale, norm, nn.Dropout(dropout)

    def forward(self, ids: Tensor, positions: Tensor, types: Tensor | None = None) -> Tensor:
        X = find_rows(self.tokens, ids, len(self.tokens.weight), lambda id, n: UnknownId(no_row(id, n)))
        X = see("tokens", X if self.scale == 1.0 else X * self.scale)  # (B, N, d)
        if self.positions is not None:
            X = X + see("positions", self.positions(positions).to(X.dtype))
        if self.types is not None:
            types = torch.zeros_like(ids) if types is None else types
            X = X + see("types", find_rows(self.types, types, len(self.types.weight), no_type))
        if self.norm is not None:
            X = self.norm(see("sum", X))
        return see("out", self.dropout(X))


def no_type(type: int, n: int) -> TaskError:
    return TaskError(f"types hold {type}, but the model's embedding of token types has {n} rows.")


class Unembed(nn.Linear):
    """X (B, N, d) → logits (B, N, n_vocab): how well each token of the vocabulary would come next.

    Its matrix is often the embedding's own (tied); then both modules hold the same parameter.
    """

    def forward(self, X: Tensor) -> Tensor:
        if not (suits(X, self.weight) and self.weight.is_contiguous()):  # laid out by `pack`, pieces of it are slow
            return super().forward(X)
        logits = X.new_empty(*X.shape[:-1], self.out_features)
        for part, W in zip(logits.split(PIECE, -1), self.weight.split(PIECE), strict=True):
            part.copy_(turned(X, W))  # while it is in the cache; whoever gets logits has them token by token
        return logits if self.bias is None else logits.add_(self.bias)
