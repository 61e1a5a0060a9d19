"""Which keys a query may see.

A `Mask` is a description, not a matrix: "causal, within 4096 tokens, these keys are padding". The readable path asks it
for the whole boolean matrix; the fused path asks for a few rows at a time, so that memory stays linear in the length.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """The N queries are taken to be the last N of the T keys when `causal`; otherwise all see all.

    causal: query i sees only keys at or before its own position
    window: … and at most this many keys back, itself included (Mistral's sliding window)
    real:   (B, T) True where a key is a token, False where it is padding
    """

    causal: bool = False
    window: int | None = None
    real: Tensor | None = None
    _last: list[tuple[tuple[int, int, torch.device], Tensor | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def rows(self, first: int, last: int, keys: range, N: int, T: int, device: torch.device) -> Tensor | None:
        """True = may look, for queries first…last and the given keys: (B or 1, 1, last - first, len(keys)).

        None when nothing is hidden. A padding query sees itself, so that no row is empty and no softmax is 0/0.
        """
        visible: Tensor | None = None
        if self.causal:
            i = torch.arange(T - N + first, T - N + last, device=device)[:, None]
            j = torch.arange(keys.start, keys.stop, device=device)
            visible = j <= i
            if self.window is not None:
                visible &= j > i - self.window
        if self.real is not None:
            real = self.real[:, None, None, keys.start : keys.stop].to(device)
            visible = real if visible is None else (visible & real) | (j == i)
        elif visible is not None:
            visible = visible[None, None]
        return visible

    def matrix(self, N: int, T: int, device: torch.device) -> Tensor | None:
        """The whole mask, for the definition and for looking at. The last one is kept: the next layer asks for the same."""
        size = (N, T, device)
        if not self._last or self._last[0][0] != size:
            self._last[:] = [(size, self.rows(0, N, range(T), N, T, device))]
        return self._last[0][1]

    def reach(self, first: int, last: int, N: int, T: int) -> range:
        """The keys that queries first…last could see at all."""
        if not self.causal:
            return range(T)
        begin = 0 if self.window is None else max(0, T - N + first - self.window + 1)
        return range(begin, T - N + last)


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)
