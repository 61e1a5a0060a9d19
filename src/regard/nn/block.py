"""A block: attention, then an MLP, each added to what came in. A different wiring is a different class, written out.

In and out: X (B, N, d). Parts arrive through the constructor; `where` carries mask, cache and rotary angles to the
attention and is no concern of the block's.
"""

from typing import Any

from torch import Tensor, nn

from regard.nn.cache import LayerCache
from regard.nn.mask import EVERYTHING, Mask
from regard.nn.see import Part, see


class PreNorm(Part):
    """norm → attention → add, norm → mlp → add (GPT-2, Llama)."""

    def __init__(self, attention: Part, mlp: Part, norm_1: Part, norm_2: Part, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm_1, self.attention, self.norm_2, self.mlp = norm_1, attention, norm_2, mlp
        self.dropout = nn.Dropout(dropout)

    def forward(self, X: Tensor, **where: Any) -> Tensor:
        H = see("H", X + self.dropout(self.attention(self.norm_1(X), **where)))
        return see("out", H + self.dropout(self.mlp(self.norm_2(H))))


class PostNorm(Part):
    """attention → add → norm, mlp → add → norm (the 2017 Transformer, BERT, BART)."""

    def __init__(self, attention: Part, mlp: Part, norm_1: Part, norm_2: Part, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention, self.norm_1, self.mlp, self.norm_2 = attention, norm_1, mlp, norm_2
        self.dropout = nn.Dropout(dropout)

    def forward(self, X: Tensor, **where: Any) -> Tensor:
        H = self.norm_1(see("H", X + self.dropout(self.attention(X, **where))))
        return see("out", self.norm_2(see("H_2", H + self.dropout(self.mlp(H)))))


class CrossPreNorm(Part):
    """A decoder block that also looks at the encoder's output, norms first."""

    def __init__(
        self,
        attention: Part,
        cross: Part,
        mlp: Part,
        norm_1: Part,
        norm_cross: Part,
        norm_2: Part,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm_1, self.attention, self.norm_cross, self.cross = norm_1, attention, norm_cross, cross
        self.norm_2, self.mlp, self.dropout = norm_2, mlp, nn.Dropout(dropout)

    def forward(
        self,
        X: Tensor,
        memory: Tensor,
        memory_mask: Mask = EVERYTHING,
        cache: LayerCache | None = None,
        **where: Any,
    ) -> Tensor:
        H = see("H", X + self.dropout(self.attention(self.norm_1(X), cache=cache, **where)))
        C = see("C", H + self.dropout(self.cross(self.norm_cross(H), memory, memory_mask, cache)))
        return see("out", C + self.dropout(self.mlp(self.norm_2(C))))


class CrossPostNorm(Part):
    """A decoder block that also looks at the encoder's output, norms last."""

    def __init__(
        self,
        attention: Part,
        cross: Part,
        mlp: Part,
        norm_1: Part,
        norm_cross: Part,
        norm_2: Part,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention, self.norm_1, self.cross, self.norm_cross = attention, norm_1, cross, norm_cross
        self.mlp, self.norm_2, self.dropout = mlp, norm_2, nn.Dropout(dropout)

    def forward(
        self,
        X: Tensor,
        memory: Tensor,
        memory_mask: Mask = EVERYTHING,
        cache: LayerCache | None = None,
        **where: Any,
    ) -> Tensor:
        H = self.norm_1(see("H", X + self.dropout(self.attention(X, cache=cache, **where))))
        C = self.norm_cross(see("C", H + self.dropout(self.cross(H, memory, memory_mask, cache))))
        return see("out", self.norm_2(see("H_2", C + self.dropout(self.mlp(C)))))
