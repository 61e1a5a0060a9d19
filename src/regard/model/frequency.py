"""How fast rotary positions turn, in numpy: for what runs without PyTorch. `nn.position.Rotary` is the definition."""

import math

import numpy as np
from numpy.typing import NDArray

from regard.model.spec import RotaryScalingSpec


def frequencies(d_k: int, theta: float, scaling: RotaryScalingSpec | None = None) -> NDArray[np.float32]:
    """Radians per position of each pair of dimensions, (d_k/2,), computed in float32 as the definition does."""
    exponent = np.arange(0, d_k, 2, dtype=np.float32) / np.float32(d_k)
    frequency = np.float32(1) / np.float32(theta) ** exponent
    if scaling is None:
        return frequency
    if scaling.kind == "linear":
        return frequency / np.float32(scaling.factor)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    wavelengths = scaling.original_positions * frequency / (2 * math.pi)
    blend = np.clip((wavelengths - low) / (high - low), 0, 1)
    slowed: NDArray[np.float32] = frequency * blend + frequency / scaling.factor * (1 - blend)
    return slowed
