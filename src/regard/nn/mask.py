"""The attention mask: which keys a query may attend to.

A `Mask` is a description, not a matrix: "causal, within 4096 tokens, these keys are padding". The definition asks it
for the whole boolean matrix; a fused kernel asks for a few rows at a time, so that memory stays linear in the length.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.nn.operation import arange


@dataclass(frozen=True)
class Mask:
    """When `causal`, the N queries are the last N of the T keys; otherwise every query attends to every key.

    causal: query i attends only to keys at or before its own position
    window: … and at most this many keys back, itself included (Mistral's sliding window)
    real:   (B, T) True where a key is a token, False where it is padding
    """

    causal: bool = False
    window: int | None = None
    real: Any = None

    @property
    def hides(self) -> bool:
        """Whether it may hide any key."""
        return self.causal or self.real is not None

    @property
    def description(self) -> str:
        """In English, for a trace and the page."""
        if not self.causal:
            return "padding is hidden"
        far = "" if self.window is None else f", and those {self.window} or more places back"
        return f"later tokens are hidden{far}"

    def rows(self, first: int, last: int, keys: range, N: int, T: int, like: Any) -> Any:
        """True = visible, for queries first…last and the given keys: (last - first, keys), or (B, 1, …) with padding.

        None when nothing is hidden. A padding query attends to itself, so that no row is empty and no softmax is 0/0.
        """
        visible = None
        if self.causal:
            i = arange(T - N + first, T - N + last, like)[:, None]
            j = arange(keys.start, keys.stop, like)
            visible = j <= i
            if self.window is not None:
                visible = visible & (j > i - self.window)
        if self.real is not None:
            real = self.real[:, None, None, keys.start : keys.stop]
            visible = real if visible is None else (visible & real) | (j == i)
        return visible

    def matrix(self, S: Any) -> Any:
        """The whole mask of scores (…, N, T)."""
        N, T = S.shape[-2:]
        return self.rows(0, N, range(T), N, T, S)

    def reach(self, first: int, last: int, N: int, T: int) -> range:
        """The range of keys that any of the queries first…last may attend to, padding aside."""
        if not self.causal:
            return range(T)
        begin = 0 if self.window is None else max(0, T - N + first - self.window + 1)
        return range(begin, T - N + last)

    def chunks(self, Q: Any, K: Any, V: Any, size: int) -> Iterator[tuple[Any, Any, Any, Any]]:
        """At most `size` queries at a time, the keys and values within their reach, and the boolean mask for them."""
        N, T = Q.shape[-2], K.shape[-2]
        hides = self.real is not None or (self.causal and N > 1)
        for first in range(0, N, size):
            last = min(first + size, N)
            keys = self.reach(first, last, N, T)
            span = slice(keys.start, keys.stop)
            visible = self.rows(first, last, keys, N, T, Q) if hides else None
            yield Q[..., first:last, :], K[..., span, :], V[..., span, :], visible


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)
