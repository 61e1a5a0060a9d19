"""Packs weight matrices into the kernels' memory layout, all in one contiguous allocation, the arena.

`Arena.add` registers a matrix; `Arena.fill` allocates the memory and packs all of them. Matrices that take the same input
(such as W_q, W_k, W_v) can be packed as one, their rows concatenated.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.engine.huge_pages import ALIGNMENT, HugePages
from regard.engine.native.library import FORMATS, LANES, Matrix, Packing
from regard.engine.threads import threads
from regard.engine.weights import Stored

Progress = Callable[[int, int], None]  # bytes done, total
BATCH = 128 << 20  # bytes that are packed by one call into C
REPORT_EVERY = 0.05  # seconds between two reports of progress


def up(n: int, to: int = LANES) -> int:
    """n rounded up to a multiple of `to`."""
    return -(-n // to) * to


@dataclass
class PackingJob:
    """A matrix to be packed at `offset` bytes of the arena, from the rows that `read` returns, parts concatenated."""

    W: Matrix
    read: Callable[[], Sequence[Stored]]
    offset: int
    size: int


class Arena:
    """The memory of all packed matrices of an engine."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self.native = native
        self.jobs: list[PackingJob] = []
        self.size = 0
        self.memory: HugePages | None = None
        self.suspicious: set[str] = set()  # names of tensors with NaN or infinite numbers

    def add(self, format: str, rows: int, columns: int, read: Callable[[], Sequence[Stored]]) -> Matrix:
        """Register a matrix, whose rows `fill` packs from what `read` returns, parts concatenated."""
        size = self.native.regard_packed_bytes(FORMATS.index(format), rows, columns)
        assert size > 0, f"{rows} × {columns} numbers cannot be packed as {format}"
        W = Matrix(FORMATS.index(format), rows, columns, 0, size // (up(rows) // LANES), None)
        self.jobs.append(PackingJob(W, read, self.size, size))
        self.size += up(size, ALIGNMENT)
        return W

    def fill(self, progress: Progress | None = None) -> None:
        """Allocate the arena and pack everything, in C, without holding Python's global lock."""
        self.memory, done = HugePages(self.size), ctypes.c_int64()

        def pack(matrices: ctypes.Array[Packing], *kept: object) -> int:
            """Run C. `kept` keeps its memory alive: after Ctrl-C this thread may be the only one that refers to it."""
            packed: int = self.native.regard_pack(matrices, len(matrices), threads(), done)
            return packed

        with ThreadPoolExecutor(1) as packer:
            for jobs, parts in self._batches():
                rows = [pointers(stored) for stored in parts]
                matrices = (Packing * len(jobs))(*map(self._packing, jobs, rows, parts))
                packing = packer.submit(pack, matrices, rows, parts, self.memory)
                while progress is not None and not wait([packing], REPORT_EVERY).done:
                    progress(done.value, self.size)
                assert packing.result() == 0, "a matrix could not be packed"
                for job, matrix, stored in zip(jobs, matrices, parts, strict=True):
                    job.W.data = matrix.packed
                    if not matrix.finite:
                        self.suspicious |= {part.name for part in stored if not part.finite}
        if progress is not None:
            progress(self.size, self.size)
        self.memory.enlarge()
        self.jobs.clear()

    def _packing(self, job: PackingJob, rows: NDArray[np.uint64], stored: Sequence[Stored]) -> Packing:
        assert self.memory is not None
        where, mapped = self.memory.start + job.offset, all(part.mapped for part in stored)
        return Packing(job.W.format, True, mapped, 0, len(rows), job.W.columns, rows.ctypes.data, where)

    def _batches(self) -> Iterator[tuple[list[PackingJob], list[Sequence[Stored]]]]:
        """Jobs with their input rows, about BATCH bytes at a time, so that converted inputs are freed after each call."""
        jobs, parts, size = list[PackingJob](), list[Sequence[Stored]](), 0
        for job in self.jobs:
            jobs.append(job)
            parts.append(job.read())
            size += job.size
            if size > BATCH:
                yield jobs, parts
                jobs, parts, size = [], [], 0
        if jobs:
            yield jobs, parts


def pointers(stored: Sequence[Stored]) -> NDArray[np.uint64]:
    """The address of each row."""
    starts = [s.rows.ctypes.data + s.rows.strides[0] * np.arange(len(s.rows), dtype=np.uint64) for s in stored]
    return np.concatenate(starts).astype(np.uint64)
