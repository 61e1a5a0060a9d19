"""The native engine's intermediate representation: a program is a list of fused steps over rows of numbers, one per token.

It knows no weights and no memory yet. lowering.py makes a program from a network's graph, buffers.py assigns buffers to its
values, and plan.py turns its steps into the structs that C reads.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class Value:
    """A tensor (rows, width) that one step computes and others read. place: its node name, for error messages."""

    width: int
    place: str


@dataclass(frozen=True)
class Map:
    """A linear map x W + b: the names of its weight and bias, and its shape (rows: outputs, columns: inputs)."""

    weight: str
    bias: str | None
    rows: int
    columns: int


@dataclass(frozen=True)
class Normed:
    """A normalisation: its kind, ε, and the names of gain γ and shift β. plus: added to γ; without a name γ is 1."""

    kind: str  # of library.NORMS
    eps: float
    width: int
    gain: str | None
    plus: float
    shift: str | None


@dataclass(frozen=True)
class Keys:
    """Where one attention's keys and values are in the KV cache."""

    heads: int
    d_k: int
    crossed: bool  # cross attention: keys and values of the encoded source
    layer: int


@dataclass(frozen=True)
class Step:
    X: Value | None  # its input
    out: Value | None  # its output

    @property
    def reads(self) -> list[Value]:
        return [] if self.X is None else [self.X]


@dataclass(frozen=True)
class Embed(Step):
    """Token embedding, scaled, plus a position embedding (learned or sinusoidal), plus the embedding of a token type."""

    tokens: Map
    scale: float
    learned: Map | None = None
    offset: int = 0  # row of position 0 in the learned table
    waves: Mapping[str, Any] | None = None  # sinusoidal positions: the arguments of `sinusoid`
    types: Map | None = None
    type: int = 0

    @property
    def has_table(self) -> bool:
        return self.learned is not None or self.waves is not None or self.types is not None


@dataclass(frozen=True)
class Norm(Step):
    norm: Normed


@dataclass(frozen=True)
class Product(Step):
    """act(norm(X) W + b) of concatenated maps; with a gate, act(gate) ⊙ (X W + b); added to `onto` (the residual) if given.

    Without an `out` its result is the logits.
    """

    maps: tuple[Map, ...]
    norm: Normed | None = None
    activation: str = "none"
    gate: Map | None = None
    onto: Value | None = None  # overwritten by `out`

    @property
    def reads(self) -> list[Value]:
        return [*super().reads, *([] if self.onto is None else [self.onto])]

    @property
    def width(self) -> int:
        return sum(each.rows for each in self.maps)

    @property
    def temporary(self) -> int:
        """Width of the temporary row that C needs before it adds or gates."""
        return self.width if self.gate is not None or self.onto is not None else 0


@dataclass(frozen=True)
class Attend(Step):
    """Attention over the KV cache. X is Q, K and V concatenated; in cross attention Q only."""

    keys: Keys
    heads: int
    scale: float
    causal: bool = False
    window: int = 0  # 0: no limit
    pairs: int = 0  # rotary: pairs of dimensions rotated by the position


@dataclass(frozen=True)
class Store(Step):
    """Store K and V, concatenated in X, in the cache of an encoded source, for cross attention."""

    keys: Keys


@dataclass(frozen=True)
class Pick(Step):
    """Select the rows whose logits are wanted; the steps after it compute only these."""


@dataclass(frozen=True)
class Program:
    """The steps of an encoder (tokens of the source) or of a decoder (tokens of the target)."""

    steps: tuple[Step, ...]
    result: Value | None  # the encoder's last states; None for a decoder, which ends in logits
    limit: int  # positions of the table, or that the model was trained for
    theta: NDArray[np.float32] | None = None  # rotary: the angle per position of each pair of dimensions

    @property
    def embed(self) -> Embed:
        return next(step for step in self.steps if isinstance(step, Embed))

    @property
    def max_positions(self) -> int:
        """The longest sequence that has a position embedding for every token."""
        return self.limit if self.embed.has_table else sys.maxsize

    @property
    def attends(self) -> list[Attend]:
        return [step for step in self.steps if isinstance(step, Attend)]

    @property
    def width(self) -> int:
        """Width of the last states, or of the logits."""
        if self.result is not None:
            return self.result.width
        last = self.steps[-1]
        return last.width if isinstance(last, Product) else 0


@dataclass(frozen=True)
class Lowered:
    """A network lowered to programs: an encoder, a decoder, or both."""

    encoder: Program | None
    decoder: Program | None
