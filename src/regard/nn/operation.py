"""What an operation is, and symbolic tracing: what an operation returns when called with symbols instead of arrays.

An operation is one record: how it computes on arrays (numpy's or PyTorch's), which axes its result has, and its formula
for one number as an expression tree. Called with arrays it computes. Called with a `Symbol` (axes, operation, operands)
it returns a `Symbol`: run on symbols, a network records its own graph (model/graph.py).
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.nn.expression import At, Call, Expr, Over, Var, expr, folded, substitute

Axis = tuple[str, int]  # what an axis counts (source, target, head, feature, …) and its size
Axes = tuple[Axis, ...]
Index = tuple[Expr, ...]


@dataclass(eq=False, slots=True)
class Symbol:
    """Stands for an array: its axes, and the operation and operands that would make it.

    A node of the graph if it has a name. The steps of a recurrent network are stacked into one node, of which each step is
    a row (`row_of`). `data` holds a constant's numbers. An input (ids), a weight and a constant have no operation.
    """

    axes: Axes
    op: "Operation | None" = None
    inputs: "tuple[Symbol | None, ...]" = ()
    facts: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    data: Any = None
    row_of: "tuple[Symbol, tuple[int, ...]] | None" = None  # the node that stacks it as a row, and the row's index

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(n for _, n in self.axes)

    @property
    def ndim(self) -> int:
        return len(self.axes)

    def formula(self, index: "tuple[Expr | int, ...]") -> Expr:
        """The expression tree for its element at `index`."""
        assert self.op is not None
        operands = [None if x is None else Operand(x) for x in self.inputs]
        return folded(self.op.formula(tuple(map(expr, index)), *operands, **self.facts))


class Operand:
    """A symbol as an argument of a formula: X(i, k) is the expression for its element, `sizes` are the lengths of its axes.

    Only a named symbol can be referred to (`At`); the formula of an unnamed one is inlined.
    """

    def __init__(self, symbol: Symbol) -> None:
        self.symbol, self.sizes = symbol, symbol.shape

    def __call__(self, *index: "Expr | int") -> Expr:
        assert len(index) == len(self.sizes), f"{self.symbol.name} has {len(self.sizes)} axes"
        if self.symbol.name:
            return At(self.symbol.name, tuple(map(expr, index)))
        if self.symbol.row_of is not None:
            node, row = self.symbol.row_of
            return At(node.name, tuple(map(expr, (*row, *index))))
        parameters = [f"#{axis}" for axis in range(len(index))]  # names that no formula uses for its own variables
        formula = self.symbol.formula(tuple(map(Var, parameters)))
        taken = {name for i in index for name in free(expr(i))}
        return folded(substitute(renamed(formula, taken), dict(zip(parameters, map(expr, index), strict=True))))


def free(e: Expr) -> Iterator[str]:
    """The free variables of an expression."""
    match e:
        case Var():
            yield e.name
        case At():
            for i in e.index:
                yield from free(i)
        case Call():
            for a in e.args:
                yield from free(a)
        case Over():
            yield from (name for name in free(e.body) if name != e.var)


def bound(e: Expr) -> Iterator[str]:
    """The bound variables of an expression: those of its sums."""
    match e:
        case Call():
            for a in e.args:
                yield from bound(a)
        case Over():
            yield e.var
            yield from bound(e.body)


def renamed(e: Expr, taken: set[str]) -> Expr:
    """The same expression with bound variables renamed where their names are taken (no variable capture)."""
    match e:
        case Call():
            return Call(e.f, tuple(renamed(a, taken) for a in e.args))
        case Over() if e.var in taken:
            fresh, avoided = e.var, {*taken, *free(e.body), *bound(e.body)}
            while fresh in avoided:
                fresh += "′"
            return Over(e.how, fresh, e.n, renamed(substitute(e.body, {e.var: Var(fresh)}), taken))
        case Over():
            return Over(e.how, e.var, e.n, renamed(e.body, taken))
    return e


class Operation:
    """Base of the operations. A subclass defines what the operation computes (`run`), the axes of the result (`axes`) and
    the expression for one element of it (`formula`), all three with the same operands and facts. Facts are its attributes:
    plain values, passed by keyword. The first line of its docstring is shown to people next to a result."""

    name: str

    notation: str  # for whole arrays: "{X} {W} + {b}|{X} {W}", the first alternative for which all operands are given
    between = " + "  # separates operands, where there can be any number
    view = False  # whether it only rearranges its operands' elements
    in_torch: Any = None  # a faster equivalent on PyTorch's tensors, set by model/module.py

    def __init_subclass__(cls, name: str = "") -> None:
        """Register the operation; if it is incomplete, or its three methods take different operands, fail on import."""
        cls.name = name or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        missing = [part for part in ("run", "axes", "formula", "notation") if part not in vars(cls)]
        if missing or not cls.__doc__:
            raise TypeError(f"the operation {cls.name} lacks {', '.join(missing) or 'a docstring'}")
        run, axes, formula = (
            list(inspect.signature(vars(cls)[part]).parameters) for part in ("run", "axes", "formula")
        )
        if not run == axes == [formula[0], *formula[2:]]:
            raise TypeError(f"the operation {cls.name}: run, axes and formula must have the same operands and facts")
        OPERATIONS[cls.name] = cls()

    def run(self, *operands: Any, **facts: Any) -> Any:
        """Arrays → array."""
        raise NotImplementedError

    def axes(self, *operands: Any, **facts: Any) -> Axes:
        """Symbols → axes of the result."""
        raise NotImplementedError

    def formula(self, at: "Index", *operands: Any, **facts: Any) -> Expr:
        """An index and operands → the expression for the element there."""
        raise NotImplementedError

    def __call__(self, *operands: Any, **facts: Any) -> Any:
        for x in operands:
            if type(x) is Symbol:
                return Symbol(self.axes(*operands, **facts), self, operands, facts)
        if isinstance(operands[0], np.ndarray):
            with np.errstate(all="ignore"):  # as in PyTorch and C, overflow gives ∞ without a warning; callers check
                return self.run(*operands, **facts)
        return (self.in_torch or self.run)(*operands, **facts)

    @property
    def operand_names(self) -> list[str]:
        """What its definition calls its operands: X, W, b."""
        return [name for name, p in inspect.signature(self.run).parameters.items() if p.kind is not p.KEYWORD_ONLY]

    def written(self, operands: Sequence[str | None], facts: Mapping[str, Any]) -> str:
        """Its notation with these strings for its operands."""
        names = self.operand_names
        if len(names) == 1 and len(operands) > 1:  # any number of them
            known: dict[str, Any] = {names[0]: self.between.join(x for x in operands if x is not None)}
        else:
            known = dict(zip(names, operands, strict=False))

        known = {**facts, **{name: x for name, x in known.items() if x is not None}}
        ways = self.notation.split("|")
        return next(way for way in ways if known.keys() >= set(re.findall(r"{(\w+)}", way))).format(**known)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"


OPERATIONS: dict[str, Operation] = {}  # by name


def library_of(x: Any) -> Any:
    """The array library of x: numpy or torch. The functions used of it are the same in both."""
    return np if isinstance(x, np.ndarray | np.generic) else sys.modules["torch"]


def arange(first: int, last: int, like: Any) -> Any:
    """first, first + 1, … last - 1, in the library and on the device of `like`."""
    if isinstance(like, np.ndarray):
        return np.arange(first, last)
    return sys.modules["torch"].arange(first, last, device=like.device)


def to_library_of(like: Any, numbers: np.ndarray) -> Any:
    """A numpy array converted to the library of `like`, on the same device."""
    if isinstance(like, np.ndarray):
        return numbers
    return sys.modules["torch"].from_numpy(numbers).to(like.device)


def cast(x: Any, to: Any) -> Any:
    """x converted to the number format of another array, or to one named as in both libraries ("float32")."""
    if isinstance(x, Symbol):
        return x
    dtype = getattr(library_of(x), to) if isinstance(to, str) else to.dtype
    return x.astype(dtype, copy=False) if isinstance(x, np.ndarray | np.generic) else x.to(dtype)
