"""Keys and values of the tokens seen so far, so that a new token costs one row instead of all of them again.

Room for `capacity` tokens is taken once and filled in place; nothing is concatenated per step. When more is needed the
room doubles.
"""

from torch import Tensor


class LayerCache:
    """One layer's K and V, (B, g, capacity, d_k), of which the first `length` are filled."""

    def __init__(self, capacity: int) -> None:
        self.length, self.capacity = 0, max(1, capacity)
        self.K: Tensor | None = None
        self.V: Tensor | None = None
        self.crossed: tuple[Tensor, Tensor] | None = None  # cross attention: K and V of the encoder's output

    def extend(self, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """Append N new tokens; all tokens so far come back as views, (B, g, length, d_k)."""
        first, last = self.length, self.length + K.shape[2]
        if self.K is None or self.V is None or last > self.capacity:
            self._make_room(K, last)
        assert self.K is not None
        assert self.V is not None
        self.K[:, :, first:last], self.V[:, :, first:last] = K, V
        self.length = last
        return self.K[:, :, :last], self.V[:, :, :last]

    def _make_room(self, like: Tensor, needed: int) -> None:
        if needed > self.capacity:
            self.capacity = max(needed, 2 * self.capacity)
        B, g, _, d_k = like.shape
        old = (self.K, self.V)
        self.K, self.V = (like.new_empty(B, g, self.capacity, d_k) for _ in old)
        for new, filled in zip((self.K, self.V), old, strict=True):
            if filled is not None:
                new[:, :, : self.length] = filled[:, :, : self.length]


class Cache:
    """A cache for every layer of a decoder."""

    def __init__(self, layers: int, capacity: int = 64) -> None:
        self.layers = [LayerCache(capacity) for _ in range(layers)]

    @property
    def length(self) -> int:
        return self.layers[0].length

    def cut(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        for layer in self.layers:
            layer.length = min(layer.length, length)

    def pick(self, rows: Tensor) -> None:
        """Keep (and repeat) these rows of the batch, in this order: what beam search does between steps."""
        for layer in self.layers:
            if layer.K is not None and layer.V is not None:
                filled = layer.length
                for name in ("K", "V"):
                    old = getattr(layer, name)
                    new = old if len(rows) == len(old) else old.new_empty(len(rows), *old.shape[1:])
                    new[:, :, :filled] = old[rows, :, :filled]
                    setattr(layer, name, new)
            if layer.crossed is not None:
                layer.crossed = (layer.crossed[0][rows], layer.crossed[1][rows])

    def nbytes(self) -> int:
        tensors = [t for layer in self.layers for t in (layer.K, layer.V, *(layer.crossed or ())) if t is not None]
        return sum(t.numel() * t.element_size() for t in tensors)
