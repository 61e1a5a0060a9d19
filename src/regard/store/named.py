"""What every weights file is to the rest of the package: a set of named tensors, to be read or to be written.

In comes a name, out go a shape and the numbers; whether they lie in safetensors shards or in GGUF blocks is not asked.
"""

import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

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
        """Its bytes as they lie in the file: a view, not a copy."""
        ...

    def array(self, name: str) -> NDArray[np.float32]: ...

    def tensor(self, name: str) -> "torch.Tensor": ...

    def maps(self, array: Bytes) -> bool:
        """Whether an array is a view into the file."""
        ...

    def release(self) -> None:
        """Give back the memory that reading has filled; what is read again comes from the disk again.

        What somebody wrote into a view is forgotten too.
        """
        ...


class Mapped:
    """A file's bytes from some place on, mapped privately: writing to them never reaches the disk."""

    def __init__(self, mapped: mmap.mmap, start: int = 0) -> None:
        self._map, self.data = mapped, np.frombuffer(mapped, np.uint8)[start:]

    def holds(self, array: Bytes) -> bool:
        return bool(np.may_share_memory(self.data, array))

    def release(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class Planned(NamedTuple):
    """A tensor to be written: all that a file's header needs, and how to make its numbers when their turn comes.

    The format is the number format it shall have in the file ("F32", "BF16", in GGUF also "Q8_0", …).
    """

    name: str
    shape: tuple[int, ...]
    format: str
    make: "Callable[[], torch.Tensor | NDArray[Any]]"
