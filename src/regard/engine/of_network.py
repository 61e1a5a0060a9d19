"""The native engine of a network in memory, packed as it is; rounded matrices keep their blocks."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.engine.fast import Engine
from regard.engine.weights import Stored, narrowest
from regard.model.spec import Spec
from regard.store.memory import available_memory
from regard.store.quant import Bytes, named_format

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
Rounded = Mapping[str, tuple[str, Bytes]]  # parameter → number format, rows of its blocks


def engine_of_network(
    net: nn.Module, spec: Spec, rounded: Rounded | None = None, *, cache: str | None = None
) -> Engine | None:
    """Matrices in `rounded` are packed as listed there. Keys and values are kept in 16 bits unless the weights have 32, or
    `cache` names a format.

    None if there is no memory for the weights a second time.
    """
    whole = not rounded and next(net.parameters()).dtype == torch.float32
    shapes = {name: p.shape for name, p in net.named_parameters()}
    stored = {name: Stored(format, rows, shapes[name][1]) for name, (format, rows) in (rounded or {}).items()}
    weights, room = NetworkWeights(net, spec, stored), available_memory()
    forms = [weights.form(name) for name, shape in shapes.items() if len(shape) == 2]
    if room is not None and sum(named_format(f).nbytes((n, m)) for f, n, m in forms) > room:
        return None
    return Engine(spec, weights, cache=cache or ("F32" if whole else "F16"))


class NetworkWeights:
    """Of a network; matrices that were rounded to a coarser format come as that format's own blocks."""

    def __init__(self, net: nn.Module, spec: Spec, rounded: Mapping[str, Stored] | None = None) -> None:
        self.parameters = dict(net.named_parameters(remove_duplicate=False))
        self.first = {other: group[0] for group in spec.tied for other in group}
        self.rounded = rounded or {}
        self.narrow: dict[str, str] = {}  # of matrices in float32

    def one_name(self, name: str) -> str:
        return self.first.get(name, name)

    def form(self, name: str) -> tuple[str, int, int]:
        W, one = self.parameters[name], self.one_name(name)
        if one in self.rounded:
            return self.rounded[one].format, W.shape[0], W.shape[1]
        if W.dtype == torch.float32 and one not in self.narrow:
            self.narrow[one] = narrowest(W.detach().contiguous().numpy())
        return self.narrow.get(one) or DTYPES[W.dtype], W.shape[0], W.shape[1]

    def matrix(self, name: str, format: str) -> Stored:
        stored = self.rounded.get(self.one_name(name))
        if stored and stored.format == format:
            return stored
        W = self.parameters[name].detach()
        W = W.to(next(dtype for dtype in DTYPES if DTYPES[dtype] == format)).contiguous()
        return Stored(format, W.view(torch.uint8).numpy(), W.shape[1])

    def vector(self, name: str) -> NDArray[np.float32] | None:
        p = self.parameters.get(name)
        return None if p is None else p.detach().float().contiguous().numpy()


def fingerprint(net: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes when somebody replaces or rewrites a weight."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in net.parameters())
