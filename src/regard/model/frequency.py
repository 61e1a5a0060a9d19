"""Rotary and sinusoidal positions in numpy, for what runs without PyTorch; `nn.position` is the definition."""

import math

import numpy as np
from numpy.typing import NDArray

from regard.model.spec import PositionSpec, RotaryScalingSpec


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


def sinusoids(d: int, p: PositionSpec) -> NDArray[np.float32]:
    """What is added to the embedding at each position, (p.limit, d)."""
    half = d // 2
    steps = max(half - 1, 1) if p.stretch else d / 2
    frequency = np.exp(-math.log(10000.0) * np.arange((d + 1) // 2) / steps)
    angle = np.arange(p.offset, p.offset + p.limit)[:, None] * frequency  # (limit, ⌈d/2⌉)
    sin, cos = np.sin(angle), np.cos(angle)[:, :half]
    if p.halves:
        return np.concatenate([sin, cos], -1).astype(np.float32)
    table = np.empty((p.limit, d), np.float32)
    table[:, 0::2], table[:, 1::2] = sin, cos
    return table
