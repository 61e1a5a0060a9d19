"""How fast rotary positions turn, in numpy: for what runs without PyTorch. `nn.position.Rotary` is the definition."""

import math

import numpy as np
from numpy.typing import NDArray

from regard.model.spec import RotaryScalingSpec


def frequencies(d_k: int, theta: float, scaling: RotaryScalingSpec | None = None) -> NDArray[np.float32]:
    """Radians per position of each pair of dimensions, (d_k/2,), in float32 as the definition computes them: every
    operation is rounded as IEEE 754 says, and the power once from float64, so that every processor has the same table."""
    exponent = np.arange(0, d_k, 2, dtype=np.float32) / np.float32(d_k)
    frequency = np.float32(1) / (theta ** exponent.astype(np.float64)).astype(np.float32)
    if scaling is None:
        return frequency
    slowed = frequency / np.float32(scaling.factor)
    if scaling.kind == "llama3":
        low, high = np.float32(scaling.low_freq_factor), np.float32(scaling.high_freq_factor)
        wavelengths = np.float32(scaling.original_positions) * frequency / np.float32(2 * math.pi)
        blend = np.clip((wavelengths - low) / (high - low), np.float32(0), np.float32(1))
        slowed = frequency * blend + slowed * (1 - blend)
    return slowed
