"""Parts: modules without a framework, each of which declares its weights and writes its forward as the diagram.

A part declares its weights (`Weight`: axes, no numbers) and writes its forward with operations. `fill` puts a value in the
place of every declared weight: with numpy arrays the part computes, with symbols it records its graph (model/graph.py),
with PyTorch's parameters it is an `nn.Module` that can be trained (model/module.py).
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from regard.nn.operation import Axis, Symbol, to_library_of
from regard.nn.see import call_observed, current_observer

if TYPE_CHECKING:  # to a type checker every part is an nn.Module, as it is in training
    from torch.nn import Module as Base
else:
    Base = object


@dataclass(frozen=True)
class Weight:
    """A declared weight: its axes in the lectures' order. transposed: it is stored as (out, in), as PyTorch does.

    start: the initial value of every element, or None for random numbers.
    """

    axes: tuple[Axis, ...]
    transposed: bool = False
    start: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as stored."""
        sizes = tuple(n for _, n in self.axes)
        return sizes[::-1] if self.transposed else sizes


class Part(Base):
    """A module of a network. It knows its path in it (`place`), so that what `see` reports inside has a full name."""

    place = ""  # "decoder.0.attention"
    spec: Any  # of a whole network: the Spec it was built from

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        observer = current_observer()
        if observer is None:
            return self.forward(*args, **kwargs)
        return call_observed(observer, self.place, self.forward, *args, **kwargs)

    def get(self, name: str) -> Any:
        """The part or weight at a dotted path below this part."""
        found: Any = self
        for each in name.split("."):
            found = found[int(each)] if isinstance(found, list) else getattr(found, each)
        return found


class Dropout(Part):
    """The identity; in training PyTorch zeroes each element with probability p (model/module.py)."""

    def __init__(self, p: float = 0.0) -> None:
        self.p = p

    def forward(self, X: Any) -> Any:
        return X


def constant(name: str, numbers: np.ndarray, like: Any) -> Any:
    """Constants that are not learned, in the library and on the device of `like`, or as a symbol that holds them."""
    if isinstance(like, Symbol):
        return Symbol((("pair", len(numbers)),), name=name, data=numbers)
    return to_library_of(like, numbers)


P = TypeVar("P", bound=Part)
Make = Callable[[str, Weight], Any]


def fill(part: P, make: Make, place: str = "", new: Callable[[Part], Any] = copy.copy, row: Any = list) -> P:
    """A copy of the part in which `make(full name, weight)` replaces every declared weight.

    new: copies one part without its contents. row: the container for a list of parts.
    """
    filled = new(part)
    filled.place = place
    for name, x in vars(part).items():
        at = f"{place}.{name}" if place else name
        if isinstance(x, Weight):
            setattr(filled, name, make(at, x))
        elif isinstance(x, Part):
            setattr(filled, name, fill(x, make, at, new, row))
        elif isinstance(x, list):
            setattr(filled, name, row([fill(one, make, f"{at}.{i}", new, row) for i, one in enumerate(x)]))
    return filled


def weights(part: Part, place: str = "") -> Iterator[tuple[str, Weight]]:
    """Every declared weight by its full name, in the order of declaration."""
    for name, x in vars(part).items():
        at = f"{place}.{name}" if place else name
        if isinstance(x, Weight):
            yield at, x
        elif isinstance(x, Part):
            yield from weights(x, at)
        elif isinstance(x, list):
            for i, one in enumerate(x):
                yield from weights(one, f"{at}.{i}")


def with_arrays(part: P, arrays: Mapping[str, Any]) -> P:
    """The part with these arrays, by full name, as its weights: it computes."""
    return fill(part, lambda name, _: arrays[name])


def with_symbols(part: P) -> P:
    """The part with symbols as its weights: run on symbols, it records its graph."""
    return fill(part, lambda name, weight: Symbol(weight.axes, name=name))
