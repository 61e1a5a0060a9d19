"""Why a number is what it is: `why(trace, "decoder.0.attention.scores", (head, i, j))`.

In: a trace, a node and an index. Out: a `Why` with the formula in symbols and in this run's numbers, its terms (each made
of operands that are themselves nodes and indices), the value as it was captured and as it is recomputed from the operands
in float64. One rule per operation, in `rule/`; a law in the tests holds the two values together for every node of every
family.
"""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from regard.errors import NotFound

if TYPE_CHECKING:
    from regard.explain.trace import Trace

SHOWN = 12  # terms that are written out


@dataclass(frozen=True)
class Operand:
    """A number that a term is made of; with a node it can be asked why in turn, without one it is a constant."""

    node: str
    index: tuple[int, ...]
    value: float
    label: str

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "index": list(self.index), "value": plain(self.value), "label": self.label}


@dataclass(frozen=True)
class Term:
    """A product of its factors, unless `signs` say what stands before, between and after them: "(", " - ", ")²"."""

    value: float
    factors: tuple[Operand, ...]
    signs: tuple[str, ...] = ()

    def written(self, words: Sequence[str]) -> str:
        """The term with these words for its factors."""
        signs = self.signs or ("", *[" × "] * (len(words) - 1), "")
        return signs[0] + "".join(word + sign for word, sign in zip(words, signs[1:], strict=True))

    @property
    def label(self) -> str:
        return self.written([factor.label for factor in self.factors])

    def __str__(self) -> str:
        return self.written([number(factor.value) for factor in self.factors])

    def to_json(self) -> dict[str, Any]:
        factors = [factor.to_json() for factor in self.factors]
        return {"label": self.label, "value": plain(self.value), "factors": factors, "signs": list(self.signs)}


class Terms(Sequence[Term]):
    """All terms, largest first, each made when it is looked at: a softmax over a vocabulary has fifty thousand."""

    def __init__(self, values: Tensor, make: Callable[[int], Term]) -> None:
        self.values = values
        self.order = values.abs().argsort(descending=True, stable=True).tolist()
        self.make = make

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, i: int) -> Term: ...
    @overload
    def __getitem__(self, i: slice) -> list[Term]: ...
    def __getitem__(self, i: int | slice) -> Term | list[Term]:
        return [self.make(k) for k in self.order[i]] if isinstance(i, slice) else self.make(self.order[i])

    def __iter__(self) -> Iterator[Term]:
        return (self.make(k) for k in self.order)


@dataclass(frozen=True)
class Reason:
    """What a rule finds: the recomputed value and how it came about."""

    recomputed: float
    terms: Terms
    rounding: float  # how far, in units of the number format's precision, the run may be from the recomputed value
    symbols: str  # the right side of the formula
    numbers: str
    latex: str
    python: str
    note: str = ""


@dataclass(frozen=True)
class Why:
    node: str
    index: tuple[int, ...]
    op: str
    name: str  # the left side of the formula
    value: float
    reason: Reason
    tolerance: float
    edited: bool = False
    label: str = ""  # the number's place in words: weights, head 3, query zone, key Area

    @property
    def recomputed(self) -> float:
        return self.reason.recomputed

    @property
    def difference(self) -> float:
        return 0.0 if self.value == self.recomputed else abs(self.value - self.recomputed)

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def terms(self) -> Terms:
        return self.reason.terms

    @property
    def symbols(self) -> str:
        return f"{self.name} = {self.reason.symbols}" if self.reason.symbols else self.name

    @property
    def numbers(self) -> str:
        return f"{self.reason.numbers} = {number(self.recomputed)}" if self.reason.numbers else number(self.recomputed)

    @property
    def latex(self) -> str:
        return self.reason.latex

    @property
    def python(self) -> str:
        return self.reason.python

    @property
    def note(self) -> str:
        if self.edited:
            return f"Edited here: without the edit it would be {number(self.recomputed)}."
        return self.reason.note

    def rest(self, shown: int = SHOWN) -> tuple[int, float]:
        """How many terms are not among the largest, and their sum."""
        left = self.terms.order[shown:]
        return len(left), float(self.terms.values[left].sum()) if left else 0.0

    def __str__(self) -> str:
        unedited = "without the edit: " if self.edited else ""
        lines = [self.label, unedited + self.symbols, f"  = {self.numbers}"]
        lines += [f"  {number(term.value):>12}   {term.label:<48} {term}" for term in self.terms[:SHOWN]]
        count, total = self.rest()
        if count:
            lines.append(f"  {number(total):>12}   the other {count:,} together")
        verdict = "edited" if self.edited else "agrees" if self.agrees else "DISAGREES"
        captured = f"captured {self.value:.9g}, recomputed {self.recomputed:.12g}: {verdict} (±{self.tolerance:.1g})"
        return "\n".join([*lines, captured, *([self.note] if self.note else [])])

    def to_json(self, most: int = SHOWN) -> dict[str, Any]:
        count, total = self.rest(most)
        return {
            "node": self.node,
            "index": list(self.index),
            "op": self.op,
            "label": self.label,
            "value": plain(self.value),
            "recomputed": plain(self.recomputed),
            "difference": plain(self.difference),
            "tolerance": plain(self.tolerance),
            "agrees": self.agrees,
            "edited": self.edited,
            "symbols": self.symbols,
            "numbers": self.numbers,
            "latex": self.latex,
            "python": self.python,
            "note": self.note,
            "terms": [term.to_json() for term in self.terms[:most]],
            "rest": {"count": count, "sum": plain(total)},
        }


def why(trace: "Trace", name: str, index: Sequence[int]) -> Why:
    from regard.explain.recurrent import RECURRENT
    from regard.explain.rule import RULES
    from regard.explain.rule.asked import Asked
    from regard.explain.rule.sums import leaf

    index = checked(name, trace.shape(name), index)
    row = trace.row(name, index[:-1])
    value = float(row[index[-1]])
    asked = Asked(trace, name, index)
    if name not in trace:
        return Why(name, index, "weight", asked.symbol, value, leaf(asked, value), 0.0, label=asked.words)
    node = trace.graph[name]
    reason = (RULES | RECURRENT)[node.op](asked, node)
    tolerance = torch.finfo(row.dtype).eps * reason.rounding
    changed = not close(value, reason.recomputed, tolerance) and name in trace.edited
    return Why(name, index, node.op, asked.symbol, value, reason, tolerance, changed, asked.words)


def close(a: float, b: float, tolerance: float) -> bool:
    return a == b or abs(a - b) <= tolerance


def checked(name: str, shape: tuple[int, ...], index: Sequence[int]) -> tuple[int, ...]:
    """The index with negative entries counted from the end; a sentence if it lies outside."""
    with suppress(TypeError, ValueError):  # not whole numbers, not as many
        pairs = [(operator.index(i), n) for i, n in zip(index, shape, strict=True)]
        if all(-n <= i < n for i, n in pairs):
            return tuple(i % n for i, n in pairs)
    raise NotFound(f"{name} has the shape {shape}, so {tuple(index)} is not one of its numbers.")


def number(x: float) -> str:
    return f"{x:.4g}".replace("inf", "∞")


def plain(x: float) -> float | str:
    """A number as JSON can carry it."""
    return x if math.isfinite(x) else "-∞" if x < 0 else "∞" if x > 0 else "not a number"
