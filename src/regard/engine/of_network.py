"""The native engine of a network in memory, packed as it is; rounded matrices keep their blocks.

Most checkpoints were written in 16 bits and are computed with in 32. A matrix whose numbers all fit into 16 is packed that
way: not a bit of any result changes, and half as much is read for every token.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.engine.fast import Engine
from regard.engine.weights import Stored
from regard.model.spec import Spec
from regard.store.open import available_memory
from regard.store.quant import Bytes

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
ROWS = 512  # of a matrix that are looked at together
Rounded = Mapping[str, tuple[str, Bytes]]  # parameter → number format, rows of its blocks


def engine_of_network(
    net: nn.Module, spec: Spec, rounded: Rounded | None = None, *, cache: str | None = None
) -> Engine | None:
    """Matrices in `rounded` are packed as listed there. Keys and values are kept in 16 bits unless the weights have 32, or
    `cache` names a format.

    None if there is no memory for the weights a second time.
    """
    needed, room = sum(p.numel() * p.element_size() for p in net.parameters()), available_memory()
    if room is not None and needed > room:
        return None
    whole = not rounded and next(net.parameters()).dtype == torch.float32
    shapes = {name: p.shape for name, p in net.named_parameters()}
    stored = {name: Stored(format, rows, shapes[name][1]) for name, (format, rows) in (rounded or {}).items()}
    return Engine(spec, NetworkWeights(net, spec, stored), cache=cache or ("F32" if whole else "F16"))


class NetworkWeights:
    """Of a network; matrices that were rounded to a coarser format come as that format's own blocks."""

    def __init__(self, net: nn.Module, spec: Spec, rounded: Mapping[str, Stored] | None = None) -> None:
        self.parameters = dict(net.named_parameters(remove_duplicate=False))
        self.first = {other: group[0] for group in spec.tied for other in group}
        self.rounded = rounded or {}
        self.narrow: dict[str, torch.dtype] = {}  # in which a matrix' numbers are the same

    def one_name(self, name: str) -> str:
        return self.first.get(name, name)

    def form(self, name: str) -> tuple[str, int, int]:
        W, one = self.parameters[name], self.one_name(name)
        if one in self.rounded:
            return self.rounded[one].format, W.shape[0], W.shape[1]
        if one not in self.narrow:
            self.narrow[one] = narrowest(W.detach())
        return DTYPES[self.narrow[one]], W.shape[0], W.shape[1]

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


def narrowest(W: torch.Tensor) -> torch.dtype:
    """Its own number format, or for float32 one of 16 bits that holds every number exactly."""
    if W.dtype != torch.float32 or W.device.type != "cpu":
        return W.dtype
    used = np.uint32(0)  # which bits are not 0 everywhere: of 23 after the point bfloat16 has 7, and float16 has 10
    for strip in W.split(ROWS):
        used |= np.bitwise_or.reduce(strip.numpy().view(np.uint32), axis=None)
        if used & 0x1FFF:
            return torch.float32
    if not used & 0xFFFF:
        return torch.bfloat16
    return torch.float16 if torch.equal(W.half().float(), W) else torch.float32


def fingerprint(net: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes when somebody replaces or rewrites a weight."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in net.parameters())
