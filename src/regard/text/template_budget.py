"""The budget of one rendering of a chat template: limits on steps (time) and on size (memory).

In: values of a template. Out: nothing, or `OverLimit` as soon as a budget is exhausted. Every operation of the sandbox is
charged here before it runs, for what it reads and what it allocates; nothing is refunded, so the size budget bounds the
memory in use at any moment. A step is about a third of a microsecond, a unit of size at most four bytes.
"""

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from itertools import chain
from typing import Any

import jinja2
from markupsafe import Markup

STEPS = 500_000  # plus these for every input value and character
STEPS_PER_VALUE = 1_000
STEPS_PER_CHARACTER = 2
SIZE = 2_000_000
SIZE_PER_VALUE = 1_000
SIZE_PER_CHARACTER = 32
BITS = 64  # of a whole number

ELEMENT = 16  # units of size for a list element with a small value
ENTRY = 32  # units of size for a key and a value in a dictionary
ESCAPED = 6  # characters for one of HTML's: &#39;
OPAQUE = 200  # characters for showing anything that is not a plain value: <Macro 'name'>
CONTAINERS: tuple[type[Any], ...] = (list, tuple, dict, range, type({}.keys()), type({}.values()), type({}.items()))


class OverLimit(Exception):
    """The template exceeded its time or memory budget."""


class TemplateBudget:
    def __init__(self, given: Any):
        values = characters = 0
        for value in walk(given):
            values += 1
            characters += len(value) if isinstance(value, str) else 0
        self.steps = STEPS + STEPS_PER_VALUE * values + STEPS_PER_CHARACTER * characters
        self.size = SIZE + SIZE_PER_VALUE * values + SIZE_PER_CHARACTER * characters

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise OverLimit("it takes too long")

    def make(self, size: int) -> None:
        """Charge for memory about to be allocated: one unit per character, ELEMENT per list element."""
        self.size -= size
        if self.size < 0:
            raise OverLimit("it makes too much text or too many values")
        self.spend(size // 64)

    def weigh(self, *values: Any) -> None:
        """Charge for traversing these values, as comparing and hashing do."""
        for value in walk(values):
            self.spend(1 + len(value) // 256 if isinstance(value, str) else 1)

    def search(self, text: str, part: Any, *, backwards: bool = False) -> None:
        """Charge for a substring search. Python's forward search takes linear time, its backward search does not."""
        length = len(part) if isinstance(part, str) else 1
        if length <= len(text):
            self.spend(1 + len(text) * (length if backwards else min(length, 100)) // 256)

    def whole(self, *values: Any) -> None:
        """Refuse integers so large that arithmetic is slow, or that their hashes can be made to collide."""
        for value in values:
            if isinstance(value, int) and value.bit_length() > BITS:
                raise OverLimit("it computes with huge numbers")

    def shown(self, value: Any) -> int:
        """An upper bound on the length of `str(value)`; charges for computing it."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, CONTAINERS):
            return _plain_length(value)
        size = 0
        for item in walk(value):
            if isinstance(item, str):
                self.spend(len(item) // 32)
                size += (2 if item.isprintable() else 10) * len(item) + 12
            else:
                size += _plain_length(item)
            self._foresee(size)
        return size

    def as_json(self, value: Any, indent: Any, separators: Any, ascii_only: bool) -> int:
        """An upper bound on the length of its JSON; charges for computing it."""
        step = len(indent) if isinstance(indent, str) else max(0, indent) if isinstance(indent, int) else 0
        between = 4 + sum(len(each) for each in separators or () if isinstance(each, str))
        size = 0
        for item, depth in walk_deep(value):
            if isinstance(item, str):
                self.spend(len(item) // 32)
                size += (2 if item.isprintable() and not ascii_only else 12 if ascii_only else 6) * len(item)
            else:
                size += _plain_length(item)
            size += between + step * (depth + 1)
            self._foresee(size)
        return size

    def _foresee(self, size: int) -> None:
        self.spend(1)
        if size > self.size:
            raise OverLimit("it makes too much text or too many values")


_meter: ContextVar[TemplateBudget] = ContextVar("template meter")
meter = _meter.get
use, leave = _meter.set, _meter.reset


def walk(value: Any) -> Iterator[Any]:
    """A value and everything inside it, repeated for every occurrence."""
    return (item for item, _ in walk_deep(value))


def walk_deep(value: Any) -> Iterator[tuple[Any, int]]:
    """The same, with nesting depths."""
    pending: list[tuple[Iterator[Any], int]] = [(iter((value,)), 0)]
    while pending:
        items, depth = pending[-1]
        for item in items:
            yield item, depth
            if isinstance(item, CONTAINERS):
                inside = chain(item.keys(), item.values()) if isinstance(item, dict) else iter(item)
                pending.append((inside, depth + 1))
                break
        else:
            pending.pop()


def _plain_length(value: Any) -> int:
    if isinstance(value, CONTAINERS):
        return 20
    if isinstance(value, int):
        return value.bit_length() // 3 + 3
    return 25 if value is None or isinstance(value, float) else OPAQUE


def size_of(value: Any) -> int:
    """Units of size of a shallow copy."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return ENTRY * (1 + len(value))
    return ELEMENT * (1 + len(value)) if isinstance(value, CONTAINERS) else ELEMENT


def as_text(value: Any) -> str:
    """`str(value)`, charged unless it is a string already."""
    if isinstance(value, str):
        return value
    if not isinstance(value, jinja2.Undefined):
        meter().make(meter().shown(value))
    return str(value)


def each(values: Iterable[Any], cost: int) -> Iterator[Any]:
    """The values one by one, each charged when it is consumed."""
    spender = meter()
    for value in values:
        spender.spend(cost)
        yield value


def listed(values: Any) -> Any:
    """An iterator as a list, charged item by item; anything else unchanged."""
    if isinstance(values, (str, *CONTAINERS)) or not isinstance(values, Iterator):
        return values
    made = []
    for value in values:
        meter().make(ELEMENT)
        made.append(value)
    return made


def joined(separator: str, texts: list[Any]) -> str:
    lengths = sum(len(text) for text in texts if isinstance(text, str))
    size = lengths + len(separator) * max(0, len(texts) - 1)
    meter().make(escaped(size, separator))
    return separator.join(texts)


def escaped(size: int, *values: Any) -> int:
    """The size after HTML escaping, which concatenation with Markup causes."""
    return size * ESCAPED if any(isinstance(value, Markup) for value in values) else size
