"""Tables of positions for the native engine, in numpy; `nn.position` is their definition."""

import math

import numpy as np

from regard.engine.rank import Floats
from regard.model.frequency import frequencies
from regard.model.spec import PositionSpec, StackSpec


def rotations(stack: StackSpec, positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines by which each pair of dimensions turns, (positions, d_k/2) each."""
    p = stack.positions
    turn = frequencies(stack.attention.d_k, p.theta, p.scaling)
    angle = (np.arange(positions, dtype=np.float32)[:, None] * turn).astype(np.float64)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def sinusoids(d: int, p: PositionSpec) -> Floats:
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
