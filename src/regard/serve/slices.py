"""A part of a tensor as raw bytes: what the page draws from.

`at` is written as in numpy, one entry per axis: `3,:,0:16`. The answer is little-endian float32 in C order, its shape in a
header. Whether it is too large is known from the shape alone, before any number is computed.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response

from regard.errors import TaskError, quoted

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 16 << 20
Index = tuple[int | slice, ...]


def parse_at(at: str | None, shape: Sequence[int]) -> Index:
    """The index that `at` writes, each entry within its axis; absent or short, the rest is whole."""
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
            f"at says {quoted(text)} for axis {axis}, which has {size} entries: give a number, a:b or : for all."
        ) from None


def _within(i: int, size: int) -> int:
    if not 0 <= i < size:
        raise ValueError
    return i


def parse_index(index: str, shape: Sequence[int]) -> tuple[int, ...]:
    """One number of a node: `3,1,3`."""
    parsed = parse_at(index, shape)
    if len(parsed) != len(shape) or not all(isinstance(i, int) for i in parsed):
        sizes = " × ".join(map(str, shape)) or "a single number"
        raise TaskError(f"index={quoted(index)} does not name one number of a node of shape {sizes}.")
    return tuple(i for i in parsed if isinstance(i, int))


def shape_at(shape: Sequence[int], at: Index) -> tuple[int, ...]:
    cut = [max(0, i.stop - i.start) for i in at if isinstance(i, slice)]
    return (*cut, *shape[len(at) :])


def send_slice(numbers: "Callable[[], Tensor]", shape: Sequence[int], at: str | None) -> Response:
    """`numbers` is called only if what is asked for exists and is small enough."""
    index = parse_at(at, shape)
    cut = shape_at(shape, index)
    size = 4 * math.prod(cut)
    if size > MOST_BYTES:
        raise TaskError(
            f"That is {size / 1e6:,.0f} MB of numbers, and {MOST_BYTES / 1e6:.0f} MB can be had at once: "
            "ask for a part with at."
        )
    return raw(numbers()[index])


def raw(part: "Tensor") -> Response:
    array = part.detach().float().cpu().contiguous().numpy()
    if sys.byteorder == "big":
        array = array.byteswap()
    headers = {"X-Shape": ",".join(map(str, part.shape))}
    return Response(array.tobytes(), media_type="application/octet-stream", headers=headers)
