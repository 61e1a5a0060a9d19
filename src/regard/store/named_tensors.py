"""The common interface of checkpoints: a set of named tensors, whether in safetensors shards or in a GGUF file.

`NamedTensors` reads them, `OpenFile` is the memory-mapped file underneath, `Planned` is a tensor to be written.
"""

import mmap
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError
from regard.safe_open import open_file
from regard.store.number_formats import Bytes

if TYPE_CHECKING:
    import torch


class NamedTensors(Protocol):
    """What a GGUF file and a safetensors checkpoint both implement."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def format(self, name: str) -> str:
        """The number format it has in the file: "F32", "BF16", in GGUF also "Q8_0", …"""
        ...

    def raw(self, name: str) -> Bytes:
        """Its bytes as stored: a view of the memory map, for immediate use only (see `OpenFile`)."""
        ...

    def array(self, name: str) -> NDArray[np.float32]: ...

    def tensor(self, name: str, *, mapped: bool = False) -> "torch.Tensor":
        """Read into new memory. `mapped`: a view of the memory map where possible, for callers that own the file."""
        ...

    def check(self) -> None:
        """A CheckpointError if a file was modified since it was opened."""
        ...

    def maps(self, array: Bytes) -> bool:
        """Whether an array is a view of the memory map."""
        ...

    def release(self) -> None:
        """Release the pages of the memory map; later reads load them from the disk again.

        Changes written into a view are lost.
        """
        ...


class OpenFile:
    """A file's bytes from offset `start` on, held open: replacing the file does not change what is read here.

    `read` copies into new memory. `data` is a private memory map (copy-on-write: writing to it never reaches the disk),
    but accessing the map of a file that was truncated kills the process (SIGBUS). So the map is for loading, which reads
    once right after a check, and for temporary files of this process; anything needed later is copied with `read`.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path, self.start = path, start
        self._file = open_file(path).detach()
        weakref.finalize(self, self._file.close)  # when it is garbage-collected, since a model has no close()
        self._map: mmap.mmap | None = None
        self._state_when_opened, self._reading = self._state(), threading.Lock()

    def _state(self) -> tuple[int, int]:
        now = os.fstat(self._file.fileno())
        return now.st_size, now.st_mtime_ns

    def check(self) -> None:
        if self._state() != self._state_when_opened:
            raise CheckpointError(f"{self.path} has been written to since it was opened: load the model again.")

    def read(self, begin: int, end: int) -> Bytes:
        found = np.empty(end - begin + 1, np.uint8)[
            :-1
        ]  # one spare byte: PyTorch needs strides, which an empty array lacks
        with self._reading:
            self._file.seek(self.start + begin)
            rest = found.data
            while rest and (count := self._file.readinto(rest)):
                rest = rest[count:]
        self.check()
        if rest:
            raise CheckpointError(f"{self.path} ends {len(rest)} bytes too early: fetch or save it again.")
        return found

    @property
    def map(self) -> mmap.mmap:
        if self._map is None:
            self.check()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._map

    @property
    def data(self) -> Bytes:
        """The bytes of the memory map."""
        return np.frombuffer(self.map, np.uint8)[self.start :]

    def maps(self, array: Bytes) -> bool:
        return self._map is not None and bool(np.may_share_memory(self.data, array))

    def release(self) -> None:
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
        self._map = None  # unmapped when the last view of it is collected


class Planned(NamedTuple):
    """A tensor to be written: what a file's header needs, and a function that makes its numbers when it is written.

    The format is its number format in the file ("F32", "BF16", in GGUF also "Q8_0", …).
    """

    name: str
    shape: tuple[int, ...]
    format: str
    make: "Callable[[], torch.Tensor | NDArray[Any]]"
