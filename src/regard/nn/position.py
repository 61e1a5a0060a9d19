"""Where a token stands. Attention alone does not know the order of its inputs; one of these tells it.

Learned and sinusoidal positions are vectors that are added to the embeddings. Rotary positions turn Q and K instead, so
that a score depends on the distance between two tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import TooLong
from regard.nn.see import Part
from regard.nn.table import find_rows

Angles = tuple[Tensor, Tensor]  # cosines and sines, (B or 1, 1, N, d_k)


class Learned(Part):
    """A table with a row per position (GPT-2, BERT). `offset` rows come before position 0 (BART: 2)."""

    def __init__(self, n_positions: int, d: int, offset: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_positions + offset, d))
        nn.init.normal_(self.weight, std=0.02)
        self.offset = offset

    def forward(self, positions: Tensor) -> Tensor:
        n = len(self.weight)
        return find_rows(
            lambda i: nn.functional.embedding(i, self.weight), positions + self.offset, n, self.no_position
        )

    def no_position(self, row: int, n: int) -> TooLong:
        return TooLong(f"A text has {row + 1 - self.offset:,} tokens, but the model has {n - self.offset:,} positions.")


class Sinusoidal(Part):
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(…): the 2017 paper's, sine and cosine interleaved.

    `halves` puts all the sines first and then all the cosines; `stretch` spaces the frequencies over d/2 - 1 steps, so
    that the slowest is exactly 1/10000 (tensor2tensor and fairseq do both).
    """

    def __init__(self, d: int, *, halves: bool = False, stretch: bool = False, offset: int = 0) -> None:
        super().__init__()
        self.d, self.halves, self.stretch, self.offset = d, halves, stretch, offset

    def forward(self, positions: Tensor) -> Tensor:
        half = self.d // 2
        steps = max(half - 1, 1) if self.stretch else self.d / 2
        i = torch.arange((self.d + 1) // 2, device=positions.device, dtype=torch.float64)
        frequency = torch.exp(-math.log(10000.0) * i / steps)
        angle = (positions + self.offset).to(torch.float64)[..., None] * frequency  # (B, N, ⌈d/2⌉)
        sin, cos = angle.sin(), angle.cos()[..., :half]
        if self.halves:
            return torch.cat([sin, cos], -1).float()
        PE = torch.empty(*positions.shape, self.d, device=positions.device, dtype=torch.float64)
        PE[..., 0::2], PE[..., 1::2] = sin, cos
        return PE.float()


@dataclass(frozen=True)
class RotaryScaling:
    """How frequencies trained for short texts are slowed for longer ones.

    linear: all by `factor`. llama3: only those whose wavelength is long compared with the original context; short ones
    stay, those between are blended.
    """

    kind: str  # "linear" or "llama3"
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192

    def apply(self, frequency: Tensor) -> Tensor:
        if self.kind == "linear":
            return frequency / self.factor
        wavelengths = self.original_positions * frequency / (2 * math.pi)  # how many fit into the original context
        blend = (wavelengths - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blend = blend.clamp(0, 1)  # 1: keep, 0: slow down
        return frequency * blend + frequency / self.factor * (1 - blend)


class Rotary(nn.Module):
    """Rotary position embedding: dimensions i and i + d_k/2 of Q and K are a pair that turns by p · θ^(-2i/d_k)."""

    def __init__(self, d_k: int, theta: float = 10000.0, scaling: RotaryScaling | None = None) -> None:
        super().__init__()
        self.d_k, self.theta, self.scaling = d_k, theta, scaling

    def frequencies(self) -> Tensor:
        """Radians per position of each pair, (d_k/2,), by the very operations of `transformers`, to whose bits logits can
        be compared. The native engine's table (model/frequency.py) is the same on every processor, as PyTorch's is not."""
        exponent = torch.arange(0, self.d_k, 2, dtype=torch.float32) / self.d_k
        frequency = 1.0 / self.theta**exponent
        return frequency if self.scaling is None else self.scaling.apply(frequency)

    def forward(self, positions: Tensor) -> Angles:
        angle = positions.float()[:, None, :, None] * self.frequencies().to(positions.device)  # (B, 1, N, d_k/2)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate(X: Tensor, angles: Angles) -> Tensor:
    """Turn each pair (x_i, x_{i+d_k/2}) by its angle: (x cos - y sin, y cos + x sin). (B, h, N, d_k)"""
    cos, sin = angles  # the sign of the sine is in the angles
    swapped = X.roll(X.shape[-1] // 2, -1)  # (y, x)
    return (X * cos + swapped * sin).to(X.dtype)
