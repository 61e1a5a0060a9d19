"""The KV cache of the reference: keys and values of the tokens so far, so that a decode step computes one row only.

Memory for `capacity` tokens is allocated once and filled in place; nothing is concatenated per step. When more is needed,
the capacity doubles. (The native engine has its own KV cache, in engine/.)
"""

from typing import Any

import numpy as np


class LayerCache:
    """One layer's K and V, (B, g, capacity, d_k), of which the first `length` are filled."""

    def __init__(self, capacity: int) -> None:
        self.length, self.capacity = 0, max(1, capacity)
        self.K: Any = None
        self.V: Any = None
        self.cross: tuple[Any, Any] | None = None  # cross-attention: K and V of the encoder's output

    def extend(self, K: Any, V: Any) -> tuple[Any, Any]:
        """Append the K and V of N new tokens; returns views of all tokens so far, (B, g, length, d_k)."""
        first, last = self.length, self.length + K.shape[2]
        if self.K is None or self.V is None or last > self.capacity:
            self._grow(K, last)
        assert self.K is not None
        assert self.V is not None
        self.K[:, :, first:last], self.V[:, :, first:last] = K, V
        self.length = last
        return self.K[:, :, :last], self.V[:, :, :last]

    def _grow(self, like: Any, needed: int) -> None:
        if needed > self.capacity:
            self.capacity = max(needed, 2 * self.capacity)
        B, g, _, d_k = like.shape
        old = (self.K, self.V)
        self.K, self.V = (empty(like, B, g, self.capacity, d_k) for _ in old)
        for new, filled in zip((self.K, self.V), old, strict=True):
            if filled is not None:
                new[:, :, : self.length] = filled[:, :, : self.length]


class Cache:
    """The KV cache of a decoder: a `LayerCache` for every layer."""

    def __init__(self, layers: int, capacity: int = 64) -> None:
        self.layers = [LayerCache(capacity) for _ in range(layers)]

    @property
    def length(self) -> int:
        return self.layers[0].length

    def cut(self, length: int) -> None:
        """Truncate to the first `length` tokens."""
        for layer in self.layers:
            layer.length = min(layer.length, length)

    def pick(self, rows: Any) -> None:
        """Select (and repeat) rows of the batch, in this order: beam search reorders its beams between steps."""
        for layer in self.layers:
            if layer.K is not None and layer.V is not None:
                filled = layer.length
                for name in ("K", "V"):
                    old = getattr(layer, name)
                    new = old if len(rows) == len(old) else empty(old, len(rows), *old.shape[1:])
                    new[:, :, :filled] = old[rows, :, :filled]
                    setattr(layer, name, new)
            if layer.cross is not None:
                layer.cross = (layer.cross[0][rows], layer.cross[1][rows])

    def nbytes(self) -> int:
        return sum(x.nbytes for layer in self.layers for x in (layer.K, layer.V, *(layer.cross or ())) if x is not None)


def empty(like: Any, *shape: int) -> Any:
    """An uninitialised array of the same library, number format and device as `like`."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_empty(*shape)
