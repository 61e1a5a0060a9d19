"""A block: attention, then an MLP, each added to the residual stream. A different wiring is a different class, written out.

In and out: X (B, N, d). Parts are arguments of the constructor; `where` passes padding, KV cache and rotary angles on to
the attention.
"""

from typing import Any

from regard.nn.operations import add
from regard.nn.part import Dropout, Part
from regard.nn.see import see


class PreNorm(Part):
    """norm → attention → add, norm → mlp → add (GPT-2, Llama)."""

    def __init__(self, attention: Part, mlp: Part, norm_1: Part, norm_2: Part, dropout: float = 0.0) -> None:
        self.norm_1, self.attention, self.norm_2, self.mlp = norm_1, attention, norm_2, mlp
        self.dropout = Dropout(dropout)

    def forward(self, X: Any, **where: Any) -> Any:
        H = see("H", add(X, self.dropout(self.attention(self.norm_1(X), **where))))
        return see("out", add(H, self.dropout(self.mlp(self.norm_2(H)))))


class PostNorm(Part):
    """attention → add → norm, mlp → add → norm (the 2017 Transformer, BERT, BART)."""

    def __init__(self, attention: Part, mlp: Part, norm_1: Part, norm_2: Part, dropout: float = 0.0) -> None:
        self.attention, self.norm_1, self.mlp, self.norm_2 = attention, norm_1, mlp, norm_2
        self.dropout = Dropout(dropout)

    def forward(self, X: Any, **where: Any) -> Any:
        H = self.norm_1(see("H", add(X, self.dropout(self.attention(X, **where)))))
        return see("out", self.norm_2(see("H_2", add(H, self.dropout(self.mlp(H))))))


class CrossPreNorm(Part):
    """A decoder block with cross-attention to the encoder's output, norms first."""

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
        self.norm_1, self.attention, self.norm_cross, self.cross = norm_1, attention, norm_cross, cross
        self.norm_2, self.mlp, self.dropout = norm_2, mlp, Dropout(dropout)

    def forward(self, X: Any, memory: Any, memory_real: Any = None, cache: Any = None, **where: Any) -> Any:
        H = see("H", add(X, self.dropout(self.attention(self.norm_1(X), cache=cache, **where))))
        C = see("C", add(H, self.dropout(self.cross(self.norm_cross(H), memory, memory_real, cache))))
        return see("out", add(C, self.dropout(self.mlp(self.norm_2(C)))))


class CrossPostNorm(Part):
    """A decoder block with cross-attention to the encoder's output, norms last."""

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
        self.attention, self.norm_1, self.cross, self.norm_cross = attention, norm_1, cross, norm_cross
        self.mlp, self.norm_2, self.dropout = mlp, norm_2, Dropout(dropout)

    def forward(self, X: Any, memory: Any, memory_real: Any = None, cache: Any = None, **where: Any) -> Any:
        H = self.norm_1(see("H", add(X, self.dropout(self.attention(X, cache=cache, **where)))))
        C = self.norm_cross(see("C", add(H, self.dropout(self.cross(H, memory, memory_real, cache)))))
        return see("out", self.norm_2(see("H_2", add(C, self.dropout(self.mlp(C))))))
