"""A native engine from weights in memory, packed in their own precision; quantized matrices keep their blocks."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.native_engine import NativeEngine
from regard.engine.weights import Stored, narrowed, narrowest
from regard.model.spec import Spec
from regard.store.number_formats import Bytes, named_format
from regard.store.system_memory import available_memory

if TYPE_CHECKING:
    from torch import nn

Arrays = Mapping[str, NDArray[np.float32]]  # by every name of a weight
Quantized = Mapping[str, tuple[str, Bytes]]  # parameter → number format, rows of its blocks


def engine_of_network(
    net: "nn.Module | Arrays", spec: Spec, quantized: Quantized | None = None, *, cache: str | None = None
) -> NativeEngine | None:
    """The native engine of a network; None if there is not enough memory for a second copy of its weights.

    net: a PyTorch module, or the arrays of the reference. quantized: matrices to pack in the format given here. cache: the
    number format of the KV cache; by default F32 if the weights are float32, else F16.
    """
    weights, free = NetworkWeights(net, spec, quantized), available_memory()
    whole = not quantized and (isinstance(net, Mapping) or next(net.parameters()).element_size() == 4)
    matrices = {weights.canonical_name(name) for name, shape in weights.shapes.items() if len(shape) == 2}
    forms = [weights.form(name) for name in matrices]
    if free is not None and sum(named_format(f).nbytes((n, m)) for f, n, m in forms) > free:
        return None
    return NativeEngine(spec, weights, cache=cache or ("F32" if whole else "F16"))


class NetworkWeights:
    """`Weights` of a network in memory; quantized matrices are passed on as blocks of their format."""

    def __init__(self, net: "nn.Module | Arrays", spec: Spec, quantized: Quantized | None = None) -> None:
        self.arrays = net if isinstance(net, Mapping) else Parameters(net)
        self.shapes = self.arrays.shapes if isinstance(self.arrays, Parameters) else shapes_of(self.arrays)
        self.first = {other: group[0] for group in spec.tied for other in group}
        self.quantized = {
            name: Stored(format, rows, self.shapes[name][1]) for name, (format, rows) in (quantized or {}).items()
        }
        self.narrow: dict[str, str] = {}  # the number format that holds a matrix exactly

    def canonical_name(self, name: str) -> str:
        return self.first.get(name, name)

    def form(self, name: str) -> tuple[str, int, int]:
        one, (rows, columns) = self.canonical_name(name), self.shapes[name]
        if one in self.quantized:
            return self.quantized[one].format, rows, columns
        if one not in self.narrow:
            self.narrow[one] = narrowest(np.ascontiguousarray(self.arrays[name]))
        return self.narrow[one], rows, columns

    def matrix(self, name: str, format: str) -> Stored:
        stored = self.quantized.get(self.canonical_name(name))
        if stored and stored.format == format:
            return stored
        W = narrowed(np.ascontiguousarray(self.arrays[name]), format)
        return Stored(format, W.view(np.uint8), self.shapes[name][1])

    def vector(self, name: str) -> NDArray[np.float32] | None:
        return np.ascontiguousarray(self.arrays[name]) if name in self.arrays else None


def shapes_of(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: X.shape for name, X in arrays.items()}


class Parameters(Arrays):
    """A module's parameters as float32 arrays, converted on access, so that only one at a time exists in 32 bits."""

    def __init__(self, net: "nn.Module") -> None:
        self.parameters = dict(net.named_parameters(remove_duplicate=False))
        self.shapes = {name: tuple(p.shape) for name, p in self.parameters.items()}

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        array: NDArray[np.float32] = self.parameters[name].detach().float().cpu().numpy()
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)


def weights_version(net: "nn.Module") -> Any:
    """A value that changes when a weight of the module is replaced or modified in place."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in net.parameters())
