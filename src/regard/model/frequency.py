"""How fast rotary positions turn, in numpy: for what runs without PyTorch. `nn.position.Rotary` is the definition."""

import math

import numpy as np
from numpy.typing import NDArray

from regard.model.spec import RotaryScalingSpec


def frequencies(d_k: int, theta: float, scaling: RotaryScalingSpec | None = None) -> NDArray[np.float32]:
    """Radians per position of each pair of dimensions, (d_k/2,): computed in float64 and rounded once, so that every
    processor has the same table."""
    frequency = theta ** -(np.arange(0, d_k, 2) / d_k)
    if scaling is None:
        return frequency.astype(np.float32)
    slowed = frequency / scaling.factor
    if scaling.kind == "llama3":
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        wavelengths = scaling.original_positions * frequency / (2 * math.pi)
        blend = np.clip((wavelengths - low) / (high - low), 0, 1)
        slowed = frequency * blend + slowed * (1 - blend)
    return slowed.astype(np.float32)
