"""The network on numpy arrays: `reference(spec, arrays)`. It is the definition, and it computes without PyTorch.

To save memory, a swap from outside: unless an observer is registered, attention is computed for a few queries at a time, so
that the N × T scores of a long sequence are never all in memory.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.model.recurrent import Recurrent
from regard.model.registry import network
from regard.model.spec import Spec
from regard.model.transformer import DecoderOnly, EncoderDecoder, EncoderOnly
from regard.nn.attention import Heads, attend
from regard.nn.mask import Mask
from regard.nn.part import Part, Weight, fill
from regard.nn.see import watched

Seq2Seq = EncoderDecoder | Recurrent  # encode a source, generate a target
Network = DecoderOnly | EncoderOnly | EncoderDecoder | Recurrent
SCORES = 1 << 23  # attention scores in memory at a time


class ChunkedAttention:
    def attend(self: Any, Q: Any, K: Any, V: Any, by: Mask) -> Any:
        size = max(1, SCORES // (Q.shape[0] * Q.shape[1] * K.shape[2]))
        if watched() or Q.shape[2] <= size:
            return super().attend(Q, K, V, by)  # type: ignore[misc]
        parts = by.chunks(Q, K, V, size)
        return np.concatenate([attend(q, k, v, visible, scale=self.scale) for q, k, v, visible in parts], -2)


@functools.cache
def with_swap(cls: Any) -> Any:
    """The part class with its swap, if it has one."""
    return (
        type(cls.__name__, (ChunkedAttention, cls), {"__module__": cls.__module__}) if issubclass(cls, Heads) else cls
    )


def new(part: Part) -> Part:
    made = copy.copy(part)
    made.__class__ = with_swap(type(part))  # type: ignore[arg-type]
    return made


def reference(spec: Spec, arrays: Mapping[str, NDArray[np.float32]]) -> Network:
    """The network with these weights, by name; a weight that is missing stays a declaration."""

    def weight(name: str, declared: Weight) -> Any:
        return arrays.get(name, declared)

    net: Network = fill(network(spec), weight, new=new)
    return net
