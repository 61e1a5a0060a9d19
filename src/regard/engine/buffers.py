"""Scheduling of a program: the order of its steps, the rows that the last ones compute, and a buffer for each value."""

from bisect import insort
from dataclasses import dataclass, replace
from typing import Any

from regard.engine.program import Attend, Norm, Pick, Product, Step, Value
from regard.engine.record_graph import Unsupported


def ordered(steps: list[Step], result: Value | None) -> list[Step]:
    """The steps, reordered only so that a residual, which is added in place, is overwritten after its last reader.

    result: the value that is still needed at the end.
    """
    made = {step.out: i for i, step in enumerate(steps) if step.out is not None}
    readers = dict[Value, set[int]]()
    for i, step in enumerate(steps):
        for value in step.reads:
            readers.setdefault(value, set()).add(i)
    after: list[set[int]] = [set() for _ in steps]  # the steps that must run after each
    before = [0] * len(steps)
    for i, step in enumerate(steps):
        first = {made[value] for value in step.reads}
        if isinstance(step, Product) and step.onto is not None:
            first |= readers[step.onto] - {i}
            if step.onto is result:
                raise needed_again(step)
        before[i] = len(first)
        for j in first:
            after[j].add(i)
    ready, order = [i for i, n in enumerate(before) if not n], list[Step]()
    while ready:
        i = ready.pop(0)
        order.append(steps[i])
        for j in after[i]:
            before[j] -= 1
            if not before[j]:
                insort(ready, j)
    if len(order) < len(steps):
        raise needed_again(next(s for s in steps if s not in order and isinstance(s, Product) and s.onto is not None))
    return order


def needed_again(step: Product) -> Unsupported:
    place = step.out.place if step.out is not None else "its end"
    return Unsupported(f"does not know how to compute `add` at {place} to a value that is read again")


def pick_wanted(steps: list[Step]) -> list[Step]:
    """Insert `Pick` after the last attention: from there on only rows whose logits are wanted are computed."""
    last = max((i for i, step in enumerate(steps) if isinstance(step, Attend)), default=0)
    before, after = steps[: last + 1], steps[last + 1 :]
    made = [step.out for step in before if step.out is not None]
    needed = {value for step in after for value in step.reads}
    selected = {value: Value(value.width, value.place) for value in made if value in needed}

    def of_wanted(step: Step) -> Step:
        onto: dict[str, Any] = {}
        if isinstance(step, Product) and step.onto is not None:
            onto["onto"] = selected.get(step.onto, step.onto)
        return replace(step, X=step.X and selected.get(step.X, step.X), **onto)

    return [*before, *(Pick(value, out) for value, out in selected.items()), *map(of_wanted, after)]


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Buffers:
    """The widths of the buffers, and the buffer of each value. Buffer 0 is also C's temporary for products that are added
    or gated."""

    widths: list[int]
    of: dict[Value, int]


def assign_buffers(steps: tuple[Step, ...], result: Value | None) -> Buffers:
    """Assign values to as few buffers as their lifetimes allow: a buffer is free after the last step that reads it."""
    last = {value: i for i, step in enumerate(steps) for value in step.reads}
    if result is not None:
        last[result] = len(steps)
    home = dict[Value, Value]()  # a value computed in place shares the buffer of the one it overwrites
    temporaries, begins = (
        [i for i, step in enumerate(steps) if isinstance(step, Product) and step.temporary],
        dict[Value, int](),
    )
    for i, step in enumerate(steps):
        if step.out is None:
            continue
        before = step.onto if isinstance(step, Product) else step.X if isinstance(step, Norm) else None
        if before is not None and last[before] > i:
            assert isinstance(step, Norm), "a residual that is overwritten is read again"
            before = None
        home[step.out] = step.out if before is None else home[before]
        begins.setdefault(home[step.out], i)
    ends, width = dict[Value, int](), dict[Value, int]()
    for value, place in home.items():
        ends[place] = max(ends.get(place, 0), last.get(value, begins[place]))
        width[place] = max(width.get(place, 0), value.width)
    widths = [max((step.temporary for step in steps if isinstance(step, Product)), default=0)]
    until, of = [-1], dict[Value, int]()  # the last step that each buffer is needed for
    for place, begin in begins.items():
        end = ends[place]
        free = [n for n in range(1, len(widths)) if until[n] < begin]
        if until[0] < begin and not any(begin <= i <= end for i in temporaries):
            n = 0
        elif free:  # the smallest that is wide enough, or the widest
            n = min(free, key=lambda n: (widths[n] < width[place], abs(widths[n] - width[place])))
        else:
            n = len(widths)
            widths.append(0)
            until.append(-1)
        of[place], until[n], widths[n] = n, end, max(widths[n], width[place])
    return Buffers(widths, {value: of[place] for value, place in home.items()})
