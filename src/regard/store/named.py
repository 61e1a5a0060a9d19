"""What every weights file is to the rest of the package: a set of named tensors, to be read or to be written.

In comes a name, out go a shape and the numbers; whether they lie in safetensors shards or in GGUF blocks is not asked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


class NamedTensors(Protocol):
    """A GGUF file and a safetensors checkpoint are both this."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> "torch.Tensor": ...


class Planned(NamedTuple):
    """A tensor to be written: all that a file's header needs, and how to make its numbers when their turn comes.

    The format is the number format it shall have in the file ("F32", "BF16", in GGUF also "Q8_0", …).
    """

    name: str
    shape: tuple[int, ...]
    format: str
    make: "Callable[[], torch.Tensor | NDArray[Any]]"
