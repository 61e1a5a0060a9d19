"""Positional encodings: attention alone does not depend on the order of its inputs.

Learned (nn/table.py) and sinusoidal positions are vectors that are added to the embeddings. Rotary positions (RoPE) rotate
Q and K instead, so that a score depends on the distance between two tokens.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.nn.operations import cosine, sine, sinusoid
from regard.nn.part import Part, constant

Angles = tuple[Any, Any]  # cosines and sines, (B or 1, N, pairs)


class Sinusoidal(Part):
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(…): the 2017 paper's, sine and cosine interleaved.

    `halves` has all the sines first and then all the cosines; `stretch` spaces the frequencies over d/2 - 1 steps, so
    that the slowest is exactly 1/10000 (tensor2tensor and fairseq do both).
    """

    def __init__(self, d: int, *, halves: bool = False, stretch: bool = False, offset: int = 0) -> None:
        self.d, self.halves, self.offset = d, halves, offset
        self.steps = max(d // 2 - 1, 1) if stretch else d / 2

    def forward(self, positions: Any) -> Any:
        return sinusoid(positions, d=self.d, steps=self.steps, halves=self.halves, offset=self.offset)


@dataclass(frozen=True)
class RotaryScaling:
    """RoPE scaling: how frequencies trained for short texts are lowered for longer ones.

    linear: all divided by `factor`. llama3: only those whose wavelength is long compared with the original context; those
    with short wavelengths are unchanged, those between are interpolated.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192

    def apply(self, frequency: NDArray[np.float32]) -> NDArray[np.float32]:
        slowed = frequency / np.float32(self.factor)
        if self.kind == "linear":
            return slowed
        low, high = np.float32(self.low_freq_factor), np.float32(self.high_freq_factor)
        wavelengths = np.float32(self.original_positions) * frequency / np.float32(2 * math.pi)  # in that context
        blend = np.clip((wavelengths - low) / (high - low), np.float32(0), np.float32(1))  # 1: unchanged, 0: slowed
        return frequency * blend + slowed * (1 - blend)


class Rotary(Part):
    """Rotary position embedding (RoPE): dimensions c and c + m of Q and K are a pair that is rotated by p · θ_c.

    θ_c = theta^(-c/m), for the first 2m = `dims` dimensions of a head; the remaining ones are unchanged.
    """

    def __init__(self, dims: int, theta: float = 10000.0, scaling: RotaryScaling | None = None) -> None:
        self.dims, self.theta, self.scaling = dims, theta, scaling

    def frequencies(self) -> NDArray[np.float32]:
        """θ, (m,), in float32: the power is rounded once from float64 and every other operation as IEEE 754 says, so that
        every processor computes the same table."""
        exponent = np.arange(0, self.dims, 2, dtype=np.float32) / np.float32(self.dims)
        frequency = np.float32(1) / (self.theta ** exponent.astype(np.float64)).astype(np.float32)
        return frequency if self.scaling is None else self.scaling.apply(frequency)

    def forward(self, positions: Any) -> Angles:
        θ = constant(f"{self.place}.theta", self.frequencies(), positions)
        return cosine(positions, θ), sine(positions, θ)
