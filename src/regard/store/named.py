"""What every weights file is to the rest of the package: a set of named tensors, to be read or to be written.

In comes a name, out go a shape and the numbers; whether they lie in safetensors shards or in GGUF blocks is not asked.
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
from regard.modelfile import open_file
from regard.store.quant import Bytes

if TYPE_CHECKING:
    import torch


class NamedTensors(Protocol):
    """A GGUF file and a safetensors checkpoint are both this."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def format(self, name: str) -> str:
        """The number format it has in the file: "F32", "BF16", in GGUF also "Q8_0", …"""
        ...

    def raw(self, name: str) -> Bytes:
        """Its bytes as they lie in the file: a view of its map, for who is done with it in a moment (see `OpenFile`)."""
        ...

    def array(self, name: str) -> NDArray[np.float32]: ...

    def tensor(self, name: str, *, mapped: bool = False) -> "torch.Tensor":
        """Read into memory of its own. `mapped`: where numbers can be left in the file they are, for who owns the file."""
        ...

    def check(self) -> None:
        """Refuse files that are no longer what they were when they were opened."""
        ...

    def maps(self, array: Bytes) -> bool:
        """Whether an array is a view into the file."""
        ...

    def release(self) -> None:
        """Give back the memory that reading has filled; what is read again comes from the disk again.

        What somebody wrote into a view is forgotten too.
        """
        ...


class OpenFile:
    """A file's bytes from some place on, held open: replacing the file on the disk does not change what is here.

    What is `read` is the caller's. What is taken from the map is there without a copy, and writing to it never reaches the
    disk; but whoever looks at the map of a file that has been cut short is ended by the system (SIGBUS). So it is for
    loading, which looks once and right after a check, and for files that nobody else knows of; whatever may be wanted much
    later, or never, is read.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path, self.start = path, start
        self._file = open_file(path).detach()
        weakref.finalize(self, self._file.close)  # with the model, which nobody closes
        self._map: mmap.mmap | None = None
        self._then, self._reading = self._state(), threading.Lock()

    def _state(self) -> tuple[int, int]:
        now = os.fstat(self._file.fileno())
        return now.st_size, now.st_mtime_ns

    def check(self) -> None:
        if self._state() != self._then:
            raise CheckpointError(f"{self.path} has been written to since it was opened: load the model again.")

    def read(self, begin: int, end: int) -> Bytes:
        found = np.empty(end - begin + 1, np.uint8)[:-1]  # PyTorch wants strides, which an array of nothing has not
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
        """The map's."""
        return np.frombuffer(self.map, np.uint8)[self.start :]

    def holds(self, array: Bytes) -> bool:
        return self._map is not None and bool(np.may_share_memory(self.data, array))

    def release(self) -> None:
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
        self._map = None  # and it is gone when the last view of it is


class Planned(NamedTuple):
    """A tensor to be written: all that a file's header needs, and how to make its numbers when their turn comes.

    The format is the number format it shall have in the file ("F32", "BF16", in GGUF also "Q8_0", …).
    """

    name: str
    shape: tuple[int, ...]
    format: str
    make: "Callable[[], torch.Tensor | NDArray[Any]]"
