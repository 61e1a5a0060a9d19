"""Why a number is what it is: `why(trace, "decoder.0.attention.scores", (head, i, j))`.

In: a trace, a node and an index. Out: a `Why` with the formula in symbols and in this run's numbers, its terms (whose
operands are nodes and indices themselves), the captured value, and the value recomputed in float64 from the operands by the
operation's formula (explain/reason.py). tests/laws/test_why.py checks that the two agree for every node of every family.
"""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from regard.errors import NotFound
from regard.explain.render import number

if TYPE_CHECKING:
    from regard.explain.trace import Trace

SHOWN = 12  # terms written out


@dataclass(frozen=True)
class Operand:
    """A number in a term: an element of a node, which `why` explains in turn, or a constant (node is empty)."""

    node: str
    index: tuple[int, ...]
    value: float
    label: str

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "index": list(self.index), "value": plain(self.value), "label": self.label}


@dataclass(frozen=True)
class Term:
    """A product of its factors, unless `signs` has other text before, between and after them: "(", " - ", ")²"."""

    value: float
    factors: tuple[Operand, ...]
    signs: tuple[str, ...] = ()

    def written(self, factors: Sequence[str]) -> str:
        """The term with these strings for its factors."""
        signs = self.signs or ("", *[" × "] * (len(factors) - 1), "")
        return signs[0] + "".join(factor + sign for factor, sign in zip(factors, signs[1:], strict=True))

    @property
    def label(self) -> str:
        return self.written([factor.label for factor in self.factors])

    def __str__(self) -> str:
        return self.written([number(factor.value) for factor in self.factors])

    def to_json(self) -> dict[str, Any]:
        factors = [factor.to_json() for factor in self.factors]
        return {"label": self.label, "value": plain(self.value), "factors": factors, "signs": list(self.signs)}


class Terms(Sequence[Term]):
    """All terms, largest first, each made on access: a softmax over a vocabulary has fifty thousand."""

    def __init__(self, values: NDArray[np.float64], make: Callable[[int], Term]) -> None:
        self.values = values
        self.order = np.argsort(-np.abs(values), kind="stable").tolist()
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
    """The derivation of a number: the recomputed value, its terms, and the formula in several notations."""

    recomputed: float
    terms: Terms
    rounding: float  # bound on the difference between run and recomputed value, in units of the dtype's eps
    symbols: str  # the right side of the formula
    numbers: str
    latex: str
    python: str
    note: str = ""


@dataclass(frozen=True)
class Why:
    """The derivation of one number of a run; `print(why)` writes it out.

    `value` is what the run computed, `recomputed` the formula in float64 on the captured operands.
    """

    node: str
    index: tuple[int, ...]
    op: str
    name: str  # the left side of the formula
    value: float
    reason: Reason
    tolerance: float
    edited: bool = False
    label: str = ""  # what the index refers to: weights, head 3, query zone, key Area

    @property
    def recomputed(self) -> float:
        """The formula evaluated in float64 from the run's own operands."""
        return self.reason.recomputed

    @property
    def difference(self) -> float:
        """How far `value` and `recomputed` are apart."""
        return 0.0 if self.value == self.recomputed else abs(self.value - self.recomputed)

    @property
    def agrees(self) -> bool:
        """Whether they are within `tolerance`, the rounding that float32 allows for this formula."""
        return self.difference <= self.tolerance

    @property
    def terms(self) -> Terms:
        """The terms of the formula, largest first. Their operands have a node, an index and a value."""
        return self.reason.terms

    @property
    def symbols(self) -> str:
        """The formula in symbols."""
        return f"{self.name} = {self.reason.symbols}" if self.reason.symbols else self.name

    @property
    def numbers(self) -> str:
        """The formula with this run's numbers."""
        return f"{self.reason.numbers} = {number(self.recomputed)}" if self.reason.numbers else number(self.recomputed)

    @property
    def latex(self) -> str:
        """The formula as LaTeX."""
        return self.reason.latex

    @property
    def python(self) -> str:
        """The formula as a Python expression of `trace`."""
        return self.reason.python

    @property
    def note(self) -> str:
        """A sentence on what the operation does, or on an edit."""
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
    from regard.explain.reason import leaf, reason, writer_of

    index = checked(name, trace.shape(name), index)
    row = trace.row(name, index[:-1])
    value, symbol = float(row[index[-1]]), writer_of(trace).element(name, index)
    label = describe_index(trace, name, index)
    if name not in trace:
        op = "constant" if name in trace.graph.constants else "weight"
        return Why(name, index, op, symbol, value, leaf(trace, name, index, value, op == "weight"), 0.0, label=label)
    node = trace.graph[name]
    found = reason(trace, node, index)
    tolerance = float(np.finfo(row.dtype).eps) * found.rounding
    changed = not close(value, found.recomputed, tolerance) and name in trace.edited
    return Why(name, index, node.op, symbol, value, found, tolerance, changed, label)


def describe_index(trace: "Trace", name: str, index: Sequence[int]) -> str:
    """What an index refers to: weights, head 3, query zone, key Area."""
    if name not in trace:
        return f"{name}{list(index)}: a {'constant' if name in trace.graph.constants else 'learned weight'}"
    parts, axes = [name], trace.graph[name].axes
    pairs = axes.count("source") + axes.count("target") > 1
    for position, (axis, i) in enumerate(zip(axes, index, strict=True)):
        if axis in ("source", "target"):
            what = "token" if not pairs else "query" if position == 1 else "key"
            parts.append(f"{what} {trace.tokens_of(axis)[i]!r}")
        elif axis == "vocabulary" and trace.tokenizer:
            parts.append(f"token {trace.tokenizer.pieces([i])[0]!r}")
        elif axis == "class":
            labels = trace.spec.head.labels
            parts.append(f"class {labels[i] if i < len(labels) else i}")
        elif axis != "one":
            parts.append(f"{axis.replace('kv_head', 'key/value head')} {i}")
    return ", ".join(parts)


def close(a: float, b: float, tolerance: float) -> bool:
    return a == b or abs(a - b) <= tolerance


def checked(name: str, shape: tuple[int, ...], index: Sequence[int]) -> tuple[int, ...]:
    """The index with negative entries counted from the end; refused if it is out of range."""
    with suppress(TypeError, ValueError):  # not integers, or not one per axis
        pairs = [(operator.index(i), n) for i, n in zip(index, shape, strict=True)]
        if all(-n <= i < n for i, n in pairs):
            return tuple(i % n for i, n in pairs)
    raise NotFound(f"{name} has the shape {shape}, so {tuple(index)} is not one of its numbers.")


def plain(x: float) -> float | str:
    """A number as JSON; JSON has no infinities and no NaN, so these become strings."""
    return x if math.isfinite(x) else "-∞" if x < 0 else "∞" if x > 0 else "not a number"


def plain_values(value: Any) -> Any:
    """A nested value with every number as JSON."""
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    return [plain_values(item) for item in value] if isinstance(value, list | tuple) else value
