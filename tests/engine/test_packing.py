"""Packing of weights: no bit is lost, tensors that are not finite are named, and huge pages change nothing."""

import ctypes
import gc
import mmap
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

from regard.engine import huge_pages, packing
from regard.engine.native import library as c
from regard.engine.packing import Arena
from regard.engine.weights import Stored
from regard.store.number_formats import named_format, quantize

native: Any = c.library()
pytestmark = pytest.mark.skipif(native is None, reason="the native engine is not built")
WHOLE = ("F32", "F16", "BF16")


def stored(format: str, rows: int, columns: int = 64, name: str = "W", seed: int = 0) -> Stored:
    W = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    return Stored(format, quantize(W, format).reshape(rows, -1).copy(), columns, name)


def unpacked(W: c.Matrix) -> np.ndarray:
    """The file's rows again: (rows, bytes), from groups of 8 as engine.h describes them."""
    form = named_format(c.FORMATS[W.format])
    per_block = form.layout.itemsize
    groups, blocks = -(-W.rows // 8), W.columns // (32 if form.layout.names else 1)
    raw = np.frombuffer(ctypes.string_at(W.data, groups * W.group_bytes), np.uint8).reshape(
        groups, blocks, 8 * per_block
    )
    if form.layout.names is None or form.layout.fields is None:
        return raw.reshape(groups, blocks, 8, per_block).swapaxes(1, 2).reshape(8 * groups, -1)[: W.rows]
    scales = sum(int(form.layout.fields[name][0].itemsize) for name in form.layout.names if name in "dm")
    halves = raw[..., : 8 * scales].reshape(groups, blocks, scales // 2, 8, 2).transpose(0, 3, 1, 2, 4)
    integers = raw[..., 8 * scales :].reshape(groups, blocks, -1, 8, 4).transpose(0, 3, 1, 2, 4)
    rows = [part.reshape(8 * groups, blocks, -1) for part in (halves, integers)]
    return np.concatenate(rows, -1).reshape(8 * groups, -1)[: W.rows]


@pytest.mark.parametrize("format", c.FORMATS)
@pytest.mark.parametrize("batch", [0, 10_000, packing.BATCH])
def test_every_byte_arrives(format, batch, monkeypatch):
    monkeypatch.setattr(packing, "BATCH", batch)
    arena, told = Arena(native), []
    parts = [
        [stored(format, 1030, seed=1)],
        [stored(format, 3, seed=2), stored(format, 14, seed=3)],
        [stored(format, 8)],
    ]
    made = [arena.add(format, sum(len(s.rows) for s in part), 64, partial(list, part)) for part in parts]
    arena.fill(lambda now, total: told.append((now, total)))
    for W, part in zip(made, parts, strict=True):
        assert np.array_equal(unpacked(W), np.concatenate([s.rows for s in part]))
    assert told[-1] == (arena.size, arena.size)
    assert told == sorted(told)
    assert not arena.suspicious


@pytest.mark.parametrize("format", c.FORMATS)
@pytest.mark.parametrize("shift", [0, 2, 4094])
def test_pages_of_a_mapped_file_are_released_and_still_readable(format, shift, tmp_path):
    """Wherever pages begin; and two matrices that lie in turn, of which a slice has rows of both."""
    rows = stored(format, 4000, 1024).rows
    (tmp_path / "file").write_bytes(bytes(shift) + rows.tobytes() + bytes(5000))
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = np.frombuffer(mapped, np.uint8)[shift : shift + rows.size].reshape(rows.shape)
    parts = [Stored(format, half, 1024, "W", mapped=True) for half in (whole[1000:], whole[:1000])]
    arena = Arena(native)
    made = arena.add(format, 4000, 1024, lambda: parts)
    arena.fill()
    assert np.array_equal(unpacked(made), np.concatenate([rows[1000:], rows[:1000]]))
    assert np.array_equal(whole, rows)


@pytest.mark.parametrize("format", c.FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_tensors_that_are_not_finite_are_named(format, value):
    arena, parts = Arena(native), [stored(format, 9, name="fine"), stored(format, 70, name="spoilt")]
    width = 4 if format == "F32" else 2  # in blocks, a scale has two bytes and stands first
    bits = np.array([value], np.float32).view(np.uint32) >> (16 if format == "BF16" else 0)
    number = bits.astype(np.uint16) if format == "BF16" else np.array([value], f"f{width}")
    parts[1].rows[67, :width] = number.view(np.uint8)
    arena.add(format, 79, 64, lambda: parts)
    other = stored(format, 5, name="other")
    arena.add(format, 5, 64, lambda: [other])
    arena.fill()
    assert arena.suspicious == {"spoilt"}


def test_the_largest_finite_numbers_are_finite():
    arena = Arena(native)
    for format, largest in (("F32", np.float32(3.4e38)), ("F16", np.float16(65504))):
        part = Stored(format, np.full((8, 64), largest).view(np.uint8), 64, format)
        arena.add(format, 8, 64, partial(list, [part]))
    arena.fill()
    assert not arena.suspicious


def test_memory_being_packed_stays_alive_after_ctrl_c(monkeypatch):
    """After Ctrl-C only the packing thread refers to the memory that C reads and writes."""
    submitted = []

    class Interrupted(packing.ThreadPoolExecutor):
        def submit(self, *work: Any, **named: Any) -> Any:
            submitted.append(work)
            raise KeyboardInterrupt

    monkeypatch.setattr(packing, "ThreadPoolExecutor", Interrupted)
    arena, part = Arena(native), stored("F32", 70)
    expected = part.rows.copy()
    made, size = arena.add("F32", 70, 64, [part].copy), arena.size
    with pytest.raises(KeyboardInterrupt):
        arena.fill()
    memory, rows = weakref.ref(arena.memory), weakref.ref(part)
    assert arena.memory is not None
    start = arena.memory.start
    del arena, part
    gc.collect()
    assert memory() is not None
    assert submitted[0][0](*submitted[0][1:]) == 0
    made.data = start
    assert np.array_equal(unpacked(made), expected)
    submitted.clear()
    gc.collect()
    assert (memory(), rows(), size > 0) == (None, None, True), "and no longer"


def test_huge_pages_change_no_number(monkeypatch):
    """Collapsed at once, not in the background; without huge pages nothing happens."""
    monkeypatch.setattr(huge_pages, "SECONDS", 0)
    stretch = huge_pages.HugePages(huge_pages.WORTH + 12345)
    assert stretch.start % huge_pages.HUGE == 0
    bytes_there: Any = (ctypes.c_uint8 * stretch.size).from_address(stretch.start)
    numbers = np.frombuffer(bytes_there, np.uint8)
    numbers[:] = np.arange(stretch.size, dtype=np.uint64) % 251
    stretch._enlarge()
    assert np.array_equal(numbers, np.arange(stretch.size, dtype=np.uint64) % 251)


def test_small_arenas_get_no_huge_pages(monkeypatch):
    monkeypatch.setattr(huge_pages.threading, "Thread", lambda **_: pytest.fail("a thread for so little"))
    huge_pages.HugePages(1000).enlarge()
