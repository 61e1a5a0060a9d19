"""What a reason is asked about, and what formulas call things: in words, in the lectures' letters, in LaTeX, in Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from regard.explain.why import Operand

if TYPE_CHECKING:
    from regard.explain.trace import Trace

Index = tuple[int, ...]

# the lectures' letters for what a node's or a weight's last name says
LETTERS = {"scores": "S", "masked": "S", "weights": "A", "dots": "QKᵀ", "Q_rotated": "Q′", "K_rotated": "K′"}
LETTERS |= {"mean": "μ", "variance": "σ²", "mean_square": "ms", "normalised": "x̂", "probabilities": "p"}
LATEX = {"QKᵀ": "(QK^\\top)", "Q′": "Q'", "K′": "K'", "μ": "\\mu", "σ²": "\\sigma^2", "x̂": "\\hat{x}"}
LATEX |= {"ms": "\\overline{x^2}", "γ": "\\gamma", "β": "\\beta"}


def letter(name: str) -> str:
    """What a formula calls a node or a weight."""
    parts = name.split(".")
    own, last = parts[-2] if len(parts) > 1 else "", parts[-1]
    if last in ("weight", "bias"):
        if "norm" in own:
            return "γ" if last == "weight" else "β"
        if last == "bias":
            return "b"
        table = {"tokens": "E", "positions": "P", "types": "T"}
        return table.get(own) or (own if own.startswith("W_") else f"W_{own}")
    if last in LETTERS:
        return LETTERS[last]
    return f"{own}.{last}" if last == "out" and own else last


@dataclass(frozen=True)
class Asked:
    """What was asked for, and where its operands are found."""

    trace: "Trace"
    name: str
    index: Index

    def numbers(self, name: str) -> Tensor:
        return self.trace[name]

    def operand(self, name: str, index: Index, value: float | Tensor, whose: int | None = None) -> Operand:
        """`whose`: the axis of the token whose number it is, if the terms differ in it."""
        token = "" if whose is None else f" {self.trace.tokens_of(self.trace.graph[name].axes[whose])[index[whose]]!r}"
        return Operand(name, index, float(value), place(name, index) + token)

    @property
    def left(self) -> str:
        """The left side of an equation in LaTeX."""
        return subscript(self.name, self.index)

    @property
    def symbol(self) -> str:
        return place(self.name, self.index)

    @property
    def words(self) -> str:
        """The number's place in words."""
        if self.name not in self.trace:
            return f"{self.name}{list(self.index)}: a learned weight"
        said = [self.name]
        axes = self.trace.graph[self.name].axes
        for position, (axis, i) in enumerate(zip(axes, self.index, strict=True)):
            if axis in ("source", "target"):
                what = (
                    "token" if axes.count("source") + axes.count("target") == 1 else "query" if position == 1 else "key"
                )
                said.append(f"{what} {self.trace.tokens_of(axis)[i]!r}")
            elif axis == "vocabulary" and self.trace.tokenizer:
                said.append(f"token {self.trace.tokenizer.pieces([i])[0]!r}")
            elif axis == "class":
                labels = self.trace.net.spec.head.labels
                said.append(f"class {labels[i] if i < len(labels) else i}")
            elif axis != "one":
                said.append(f"{axis.replace('kv_head', 'key/value head')} {i}")
        return ", ".join(said)


def place(name: str, index: Index) -> str:
    return f"{letter(name)}[{', '.join(map(str, index))}]" if index else letter(name)


def subscript(name: str, index: Sequence[int | str]) -> str:
    symbol = letter(name)
    symbol = LATEX.get(symbol) or (f"W_{{{symbol[2:]}}}" if symbol.startswith("W_") else symbol)
    symbol = symbol if len(symbol) == 1 or symbol[0] in "\\(W" or symbol.endswith("'") else f"\\mathrm{{{symbol}}}"
    symbol = symbol.replace("_", "\\_") if "mathrm" in symbol else symbol
    return f"{{{symbol}}}_{{{','.join(map(str, index))}}}"


def at(name: str, index: Sequence[int | str]) -> str:
    """Python for some of a node's numbers, in float64."""
    return f'trace["{name}"][{", ".join(map(str, index)) or "..."}].double()'
