"""The embedding (ids → vectors) and the unembedding (vectors → logits): a network's first and last part."""

from typing import Any

from regard.nn.linear import Linear
from regard.nn.operation import cast
from regard.nn.operations import add, scale, zeros
from regard.nn.part import Dropout, Part
from regard.nn.see import see
from regard.nn.table import Table, no_type


class Embed(Part):
    """ids (B, N) → X (B, N, d): token embedding, scaled, plus position and segment embeddings; normed."""

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
        self.tokens = Table(n_vocab, d)
        self.positions = positions
        self.types = Table(n_types, d, no_type) if n_types else None
        self.scale, self.norm, self.dropout = scale, norm, Dropout(dropout)

    def forward(self, ids: Any, positions: Any, types: Any = None) -> Any:
        X = self.tokens(ids)  # (B, N, d)
        summands = [see("tokens", X if self.scale == 1.0 else scale(X, by=self.scale))]
        if self.positions is not None:
            summands.append(see("positions", cast(self.positions(positions), X)))
        if self.types is not None:
            summands.append(see("types", self.types(zeros(ids) if types is None else types)))
        X = add(*summands) if len(summands) > 1 else summands[0]
        if self.norm is not None:
            X = self.norm(see("sum", X))
        return see("out", self.dropout(X))


class Unembed(Linear):
    """X (B, N, d) → logits (B, N, n_vocab): a score for each token of the vocabulary as the next one.

    Its matrix is often the embedding's (tied weights).
    """

    def __init__(self, d: int, n_vocab: int, bias: bool = False) -> None:
        super().__init__(d, n_vocab, bias, "vocabulary")
