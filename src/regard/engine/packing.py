"""Matrices laid out as the kernels read them, all in one stretch of memory.

`Arena.add` notes what will be packed; `Arena.fill` takes the memory (in large pages where the system has them) and packs.
Several matrices that read the same input can be one: their rows stand below each other.
"""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from regard.engine.native.library import FORMATS, LANES, Matrix
from regard.engine.weights import Stored

Progress = Callable[[int, int], None]  # bytes done, bytes in all
ALIGNMENT = 64
LARGE = 1 << 20  # bytes from which an array has pages of its own
HUGE = 2 << 20  # bytes of a large page


def up(n: int, to: int = LANES) -> int:
    return -(-n // to) * to


def pages(size: int) -> mmap.mmap:
    """Zeros straight from the system, which keeps each page until it is written."""
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    return mmap.mmap(-1, max(size, 1), **own)


def zeros(*shape: int, dtype: type = np.float32) -> NDArray:
    """Zeros at an address that whole cache lines begin at. Of a large array only what is written takes memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.frombuffer(pages(size), np.uint8) if size >= LARGE else np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class Arena:
    def __init__(self, native: ctypes.CDLL) -> None:
        self.native = native
        self.jobs: list[tuple[Matrix, Callable[[], Sequence[Stored]], int, int]] = []  # …, offset, bytes
        self.size = 0
        self.memory: mmap.mmap | None = None

    def add(self, format: str, rows: int, columns: int, read: Callable[[], Sequence[Stored]]) -> Matrix:
        """A matrix that will hold the rows of what `read` gives, one below the other."""
        size = self.native.regard_packed_bytes(FORMATS.index(format), rows, columns)
        assert size > 0, f"{rows} × {columns} numbers cannot be packed as {format}"
        W = Matrix(FORMATS.index(format), rows, columns, 0, size // (up(rows) // LANES), None)
        self.jobs.append((W, read, self.size, size))
        self.size += up(size, ALIGNMENT)
        return W

    def fill(self, progress: Progress | None = None) -> None:
        self.memory, done = pages(self.size + HUGE), 0
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        base = up(np.frombuffer(self.memory, np.uint8).ctypes.data, HUGE)
        with ThreadPoolExecutor(2) as threads:
            for size in threads.map(lambda job: self._pack(base, *job), self.jobs):
                done += size
                if progress is not None:
                    progress(done, self.size)
        self.jobs.clear()

    def _pack(self, base: int, W: Matrix, read: Callable[[], Sequence[Stored]], offset: int, size: int) -> int:
        stored = read()
        starts = [s.rows.ctypes.data + s.rows.strides[0] * np.arange(len(s.rows), dtype=np.uint64) for s in stored]
        pointers = np.concatenate(starts).astype(np.uint64)
        failed = self.native.regard_pack(W.format, pointers.ctypes.data, len(pointers), W.columns, base + offset)
        assert not failed, f"{len(pointers)} rows of {W.columns} numbers could not be packed"
        W.data = base + offset
        return size
