"""Matrices laid out as the kernels read them, all in one stretch of memory.

`Arena.add` notes what will be packed; `Arena.fill` takes the memory and packs.
Several matrices that read the same input can be one: their rows stand below each other.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.engine.native.library import FORMATS, LANES, Matrix, Packing
from regard.engine.pages import ALIGNMENT, Stretch
from regard.engine.threads import threads
from regard.engine.weights import Stored

Progress = Callable[[int, int], None]  # bytes done, bytes in all
BATCH = 128 << 20  # bytes that are packed by one call
TELL = 0.05  # seconds between two reports of progress


def up(n: int, to: int = LANES) -> int:
    return -(-n // to) * to


@dataclass
class Job:
    """A matrix to be packed `offset` bytes into the arena, from the rows that `read` gives, one part below the other."""

    W: Matrix
    read: Callable[[], Sequence[Stored]]
    offset: int
    size: int


class Arena:
    def __init__(self, native: ctypes.CDLL) -> None:
        self.native = native
        self.jobs: list[Job] = []
        self.size = 0
        self.memory: Stretch | None = None
        self.suspicious: set[str] = set()  # tensors that hold NaN or infinite numbers

    def add(self, format: str, rows: int, columns: int, read: Callable[[], Sequence[Stored]]) -> Matrix:
        """A matrix that will hold the rows of what `read` gives, one below the other."""
        size = self.native.regard_packed_bytes(FORMATS.index(format), rows, columns)
        assert size > 0, f"{rows} × {columns} numbers cannot be packed as {format}"
        W = Matrix(FORMATS.index(format), rows, columns, 0, size // (up(rows) // LANES), None)
        self.jobs.append(Job(W, read, self.size, size))
        self.size += up(size, ALIGNMENT)
        return W

    def fill(self, progress: Progress | None = None, meanwhile: Callable[[], object] | None = None) -> None:
        """Pack everything. C does it, and Python can do something else `meanwhile`."""
        self.memory, done = Stretch(self.size), ctypes.c_int64()

        def pack(matrices: ctypes.Array[Packing], *kept: object) -> int:
            """Keeps all that C reads and writes: after Ctrl-C at a bad moment nobody waits for it and nobody else does."""
            packed: int = self.native.regard_pack(matrices, len(matrices), threads(), done)
            return packed

        with ThreadPoolExecutor(1) as beside:
            for jobs, parts in self._batches():
                rows = [pointers(stored) for stored in parts]
                matrices = (Packing * len(jobs))(*map(self._packing, jobs, rows, parts))
                packing = beside.submit(pack, matrices, rows, parts, self.memory)
                if meanwhile is not None:
                    meanwhile()
                    meanwhile = None
                while progress is not None and not wait([packing], TELL).done:
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

    def _packing(self, job: Job, rows: NDArray[np.uint64], stored: Sequence[Stored]) -> Packing:
        assert self.memory is not None
        where, mapped = self.memory.start + job.offset, all(part.mapped for part in stored)
        return Packing(job.W.format, True, mapped, 0, len(rows), job.W.columns, rows.ctypes.data, where)

    def _batches(self) -> Iterator[tuple[list[Job], list[Sequence[Stored]]]]:
        """Jobs with what they read, as many as one call into C packs: what was made for them is then given up."""
        jobs, parts, size = list[Job](), list[Sequence[Stored]](), 0
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
    """Where each row begins."""
    starts = [s.rows.ctypes.data + s.rows.strides[0] * np.arange(len(s.rows), dtype=np.uint64) for s in stored]
    return np.concatenate(starts).astype(np.uint64)
