"""Formulas as trees: what an operation computes for one number, written down as data.

An expression tree is made of constants (`Num`), index variables (`Var`), elements of a node or a weight (`At`, clickable on
the page), functions (`Call`), and a sum or a maximum over a variable (`Over`). Every operation has one tree
(nn/operations.py). Evaluations of it are here: the value in float64, a bound on the rounding error, the partial derivatives
(slopes), the summands. Renderings of it as symbols, LaTeX and Python are in explain/render.py; a browser evaluates it as
JSON (`to_json`).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.nn.special import erf

Array = NDArray[Any]
Read = Callable[[str], Array]  # name of a node or weight → its array
Bindings = Mapping[str, Any]  # variable → its value: an integer, or an array of integers


class Expr:
    """Base of all expressions; Python's operators build trees: `a + b` is `Call("+", (a, b))`."""

    __slots__ = ()

    def __add__(self, other: "Expr | float") -> "Expr":
        return Call("+", (self, expr(other)))

    def __radd__(self, other: float) -> "Expr":
        return Call("+", (expr(other), self))

    def __sub__(self, other: "Expr | float") -> "Expr":
        return Call("-", (self, expr(other)))

    def __rsub__(self, other: float) -> "Expr":
        return Call("-", (expr(other), self))

    def __mul__(self, other: "Expr | float") -> "Expr":
        return Call("·", (self, expr(other)))

    def __rmul__(self, other: float) -> "Expr":
        return Call("·", (expr(other), self))

    def __truediv__(self, other: "Expr | float") -> "Expr":
        return Call("/", (self, expr(other)))

    def __rtruediv__(self, other: float) -> "Expr":
        return Call("/", (expr(other), self))

    def __floordiv__(self, other: int) -> "Expr":
        return Call("//", (self, expr(other)))

    def __mod__(self, other: int) -> "Expr":
        return Call("%", (self, expr(other)))

    def __pow__(self, other: int) -> "Expr":
        return Call("^", (self, expr(other)))

    def __neg__(self) -> "Expr":
        return Call("neg", (self,))

    def __lt__(self, other: "Expr | float") -> "Expr":
        return Call("<", (self, expr(other)))

    def __le__(self, other: "Expr | float") -> "Expr":
        return Call("≤", (self, expr(other)))


@dataclass(frozen=True, slots=True)
class Num(Expr):
    """A constant. `label` is how people write it: √32, ε."""

    value: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """An index variable: bound by `Over`, or to the index of the element being explained."""

    name: str


@dataclass(frozen=True, slots=True)
class At(Expr):
    """One element of a node, a weight or an input."""

    node: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function of `FUNCTIONS`, or "if", applied to arguments."""

    f: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Over(Expr):
    """A sum (`how` = "Σ") or maximum ("max") of `body` over var = 0 … n-1."""

    how: str
    var: str
    n: int
    body: Expr


def expr(x: "Expr | float") -> Expr:
    return x if isinstance(x, Expr) else Num(x)


def total(var: str, n: int, body: Expr) -> Expr:
    """Σ over var."""
    return Over("Σ", var, n, body)


def where(condition: Expr, then: "Expr | float", otherwise: "Expr | float") -> Expr:
    return Call("if", (condition, expr(then), expr(otherwise)))


def call(f: str, *args: "Expr | float") -> Expr:
    return Call(f, tuple(map(expr, args)))


# ── functions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _power(a: Any, b: Any) -> Any:
    return a**b


def _weigh(a: Any, b: Any) -> Any:
    return np.where(np.equal(a, 0), 0.0, np.multiply(a, b))


@dataclass(frozen=True)
class Function:
    """A function on numbers and arrays, its partial derivative (slope) for each argument, and the error, in units in the
    last place (ulps), that a library's float32 version of it may have."""

    value: Callable[..., Any]
    slopes: tuple[Callable[..., Any], ...] = ()
    ulps: float = 1.0


FUNCTIONS: dict[str, Function] = {
    "+": Function(np.add, (lambda a, b: 1.0, lambda a, b: 1.0)),
    "-": Function(np.subtract, (lambda a, b: 1.0, lambda a, b: -1.0)),
    # x - b where b cancels (softmax subtracts the maximum from every exponent): left out of printed formulas
    "shift": Function(np.subtract, (lambda a, b: 1.0, lambda a, b: -1.0)),
    "·": Function(np.multiply, (lambda a, b: b, lambda a, b: a)),
    # a weight times a value; a weight of 0 gives 0 even if the value is NaN or infinite
    "weigh": Function(_weigh, (lambda a, b: b, lambda a, b: a)),
    "/": Function(np.divide, (lambda a, b: 1 / b, lambda a, b: -a / b / b)),
    "^": Function(_power, (lambda a, b: b * a ** (b - 1), lambda a, b: 0.0), 2.0),
    "neg": Function(np.negative, (lambda a: -1.0,), 0.0),
    "exp": Function(np.exp, (np.exp,), 4.0),
    "sqrt": Function(np.sqrt, (lambda a: 0.5 / np.sqrt(a),), 2.0),
    "tanh": Function(np.tanh, (lambda a: 1 - np.tanh(a) ** 2,), 4.0),
    "erf": Function(erf, (lambda a: 2 / math.sqrt(math.pi) * np.exp(-a * a),), 4.0),
    "sin": Function(np.sin, (np.cos,), 4.0),
    "cos": Function(np.cos, (lambda a: -np.sin(a),), 4.0),
    "max": Function(np.maximum, (lambda a, b: 1.0 * (a > b), lambda a, b: 1.0 * (a <= b)), 0.0),
    # of indices and conditions: exact
    "//": Function(np.floor_divide, ulps=0.0),
    "%": Function(np.mod, ulps=0.0),
    "<": Function(np.less, ulps=0.0),
    "≤": Function(np.less_equal, ulps=0.0),
    "=": Function(np.equal, ulps=0.0),
    "and": Function(np.logical_and, ulps=0.0),
}


# ── evaluations ──────────────────────────────────────────────────────────────────────────────────────────────────────


def value(e: Expr, read: Read, bound: Bindings = {}) -> Any:  # noqa: B006 (never changed)
    """Evaluate in float64. Variables may be bound to arrays; `Over` adds a leading axis to theirs and reduces it."""
    match e:
        case Num():
            return e.value
        case Var():
            return bound[e.name]
        case At():
            return _look_up(e, read, bound)
        case Call("if", (condition, then, otherwise)):
            chosen = value(condition, read, bound)
            if np.ndim(chosen) == 0:
                return value(then if chosen else otherwise, read, bound)
            return np.where(chosen, value(then, read, bound), value(otherwise, read, bound))
        case Call():
            return FUNCTIONS[e.f].value(*(value(a, read, bound) for a in e.args))
        case Over():
            terms = summands(e, read, bound)
            return terms.sum(0) if e.how == "Σ" else terms.max(0)
    raise TypeError(f"{e!r} is not an expression")


def summands(e: Over, read: Read, bound: Bindings = {}) -> Array:  # noqa: B006
    """The terms of a sum (or maximum), along a new first axis."""
    body = value(e.body, read, _bind(e, bound))
    return np.broadcast_to(body, (e.n, *np.shape(body)[1:])) if np.ndim(body) else np.full(e.n, body)


def _bind(e: Over, bound: Bindings) -> Bindings:
    ndim = max((np.ndim(x) for x in bound.values()), default=0)
    return {**bound, e.var: np.arange(e.n).reshape(-1, *(1,) * ndim)}


def _look_up(e: At, read: Read, bound: Bindings) -> Any:
    array = read(e.node)
    index = tuple(i.value if isinstance(i, Num) else value(i, read, bound) for i in e.index)
    # both branches of an `if` are evaluated for arrays of indices: those out of range are clipped
    vary = any(isinstance(i, np.ndarray) and i.ndim for i in index)
    found = array[tuple(map(_within, index, array.shape)) if vary else tuple(map(int, index))]
    return found if found.dtype.kind in "iub" else found.astype(np.float64)


def _within(index: Any, n: int) -> Any:
    return np.maximum(np.minimum(index, n - 1), 0) if isinstance(index, np.ndarray) else min(max(int(index), 0), n - 1)


ADDITIONS = 4.0  # a sum of n terms errs by about (4 + √n/2) ε · Σ|terms|: what blocked summation does in practice


def rounding(e: Expr, read: Read, bound: Bindings = {}) -> tuple[Any, Any]:  # noqa: B006
    """The value, and a bound on the rounding error of a run in some number format, in units of that format's epsilon.

    Each operation of the tree adds its own rounding, and propagates its operands' errors by its slopes.
    """
    match e:
        case Num():
            return e.value, 0.0 if float(e.value).is_integer() or math.isinf(e.value) else abs(e.value)
        case Var() | At():
            return value(e, read, bound), 0.0
        case Call("if", (condition, then, otherwise)):
            chosen = value(condition, read, bound)
            if np.ndim(chosen) == 0:
                return rounding(then if chosen else otherwise, read, bound)
            (a, off_a), (b, off_b) = rounding(then, read, bound), rounding(otherwise, read, bound)
            return np.where(chosen, a, b), np.where(chosen, off_a, off_b)
        case Call():
            f = FUNCTIONS[e.f]
            pairs = [rounding(a, read, bound) for a in e.args]
            args = [v for v, _ in pairs]
            made = f.value(*args)
            off = f.ulps * np.abs(np.where(np.isfinite(made), made, 0.0))
            for slope, (_, error) in zip(f.slopes, pairs, strict=False):
                if np.any(error):
                    off = off + np.where(error == 0, 0.0, np.abs(slope(*args)) * error)
            return made, off
        case Over():
            inside, error = rounding(e.body, read, _bind(e, bound))
            shape = (e.n, *np.shape(inside)[1:])
            inside, error = np.broadcast_to(inside, shape), np.broadcast_to(error, shape)
            if e.how == "max":
                return inside.max(0), 0.0  # a subtracted maximum cancels, and its error with it
            sizes = np.abs(inside).sum(0)
            return inside.sum(0), error.sum(0) + (ADDITIONS + math.sqrt(e.n) / 2) * sizes
    raise TypeError(f"{e!r} is not an expression")


def leaves(e: Expr) -> Iterator[At]:
    """The array elements (`At`) in an expression, in the order in which they are written; not those inside indices."""
    match e:
        case At():
            yield e
        case Call():
            for a in e.args:
                yield from leaves(a)
        case Over():
            yield from leaves(e.body)


def substitute(e: Expr, known: Mapping[str, Expr]) -> Expr:
    """The expression with variables replaced."""
    match e:
        case Var():
            return known.get(e.name, e)
        case At():
            return At(e.node, tuple(substitute(i, known) for i in e.index))
        case Call():
            return Call(e.f, tuple(substitute(a, known) for a in e.args))
        case Over():
            return Over(e.how, e.var, e.n, substitute(e.body, {k: v for k, v in known.items() if k != e.var}))
    return e


WHOLE = {"//", "%", "<", "≤", "=", "and"}  # integer arithmetic and comparisons, of indices
EXACT = WHOLE | {"+", "-", "·"}  # on whole numbers


def folded(e: Expr) -> Expr:
    """Constant folding: indices and conditions evaluated where everything in them is known."""
    match e:
        case At():
            return At(e.node, tuple(_whole(folded(i)) for i in e.index))
        case Call("if", (condition, then, otherwise)):
            decided = folded(condition)
            if isinstance(decided, Num):
                return folded(then if decided.value else otherwise)
            return Call("if", (decided, folded(then), folded(otherwise)))
        case Call("step", (t, *rows)) if isinstance(folded(t), Num):
            return folded(rows[int(folded(t).value)])  # type: ignore[attr-defined]
        case Call():
            args = tuple(folded(a) for a in e.args)
            return _whole(Call(e.f, tuple(map(_whole, args)))) if e.f in WHOLE else Call(e.f, args)
        case Over():
            return Over(e.how, e.var, e.n, folded(e.body))
    return e


def _whole(e: Expr) -> Expr:
    """Integer arithmetic on constants, evaluated."""
    if isinstance(e, Call) and e.f in EXACT:
        args = tuple(_whole(a) for a in e.args)
        if all(isinstance(a, Num) for a in args):
            return Num(int(FUNCTIONS[e.f].value(*(a.value for a in args if isinstance(a, Num)))))
        return Call(e.f, args)
    return e


def to_json(e: Expr) -> Any:
    """Nested lists: 3, "k", ["at", node, index…], [function, arguments…], ["Σ", var, n, body]."""
    match e:
        case Num():
            if e.value == -math.inf:
                return ["-∞"]
            return ["num", e.value, e.label] if e.label else e.value
        case Var():
            return e.name
        case At():
            return ["at", e.node, *map(to_json, e.index)]
        case Call():
            return [e.f, *map(to_json, e.args)]
        case Over():
            return [e.how, e.var, e.n, to_json(e.body)]
    raise TypeError(f"{e!r} is not an expression")
