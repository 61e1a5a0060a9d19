"""Slices of arrays as raw bytes: the page fetches what it draws with them.

`at` is written as in numpy, one entry per axis: `3,:,0:16`. The response is little-endian float32 in C order, with the
shape in a header. A slice that is too large is refused by its shape, before anything is computed.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from starlette.responses import Response

from regard.errors import TaskError, quoted

if TYPE_CHECKING:
    from regard.explain.trace import Array

MAX_BYTES = 16 << 20
Index = tuple[int | slice, ...]


def parse_at(at: str | None, shape: Sequence[int]) -> Index:
    """`at` as an index, checked; axes without an entry are taken whole."""
    entries = [] if at is None or not at.strip() else at.split(",")
    if len(entries) > len(shape):
        raise TaskError(f"at={quoted(at)} has {len(entries)} entries, but the node has {len(shape)} axes.")
    return tuple(
        _entry(text.strip(), size, axis) for axis, (text, size) in enumerate(zip(entries, shape, strict=False))
    )


def _entry(text: str, size: int, axis: int) -> int | slice:
    first, colon, last = text.partition(":")
    try:
        if not colon:
            return _within(int(text), size)
        return slice(_within(int(first or 0), size + 1), _within(int(last or size), size + 1))
    except ValueError:
        raise TaskError(
            f"at has {quoted(text)} for axis {axis}, which has {size} entries: give a number, a:b or : for all."
        ) from None


def _within(i: int, size: int) -> int:
    if not 0 <= i < size:
        raise ValueError
    return i


def parse_index(index: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of one element: `3,1,3`."""
    parsed = parse_at(index, shape)
    if len(parsed) != len(shape) or not all(isinstance(i, int) for i in parsed):
        sizes = " × ".join(map(str, shape)) or "a single number"
        raise TaskError(f"index={quoted(index)} does not name one number of a node of shape {sizes}.")
    return tuple(i for i in parsed if isinstance(i, int))


def shape_at(shape: Sequence[int], at: Index) -> tuple[int, ...]:
    cut = [max(0, i.stop - i.start) for i in at if isinstance(i, slice)]
    return (*cut, *shape[len(at) :])


def send_slice(numbers: "Callable[[], Array]", shape: Sequence[int], at: str | None) -> Response:
    """Respond with a slice; `numbers` is called only after the slice is found to exist and to be small enough."""
    index = parse_at(at, shape)
    cut = shape_at(shape, index)
    size = 4 * math.prod(cut)
    if size > MAX_BYTES:
        raise TaskError(
            f"That is {size / 1e6:,.0f} MB of numbers, and {MAX_BYTES / 1e6:.0f} MB is the most per request: "
            "request a part with at."
        )
    return raw(numbers()[index])


def raw(part: "Array") -> Response:
    array = np.ascontiguousarray(part, np.float32)
    if sys.byteorder == "big":
        array = array.byteswap()
    headers = {"X-Shape": ",".join(map(str, part.shape))}
    return Response(array.tobytes(), media_type="application/octet-stream", headers=headers)
