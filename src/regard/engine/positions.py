"""Tables of positions for the native engine, in numpy; `nn.position` is their definition."""

import numpy as np

from regard.engine.rank import Floats
from regard.model.frequency import frequencies
from regard.model.spec import StackSpec


def rotations(stack: StackSpec, positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines by which each pair of dimensions turns, (positions, d_k/2) each."""
    p = stack.positions
    turn = frequencies(stack.attention.d_k, p.theta, p.scaling)
    angle = (np.arange(positions, dtype=np.float32)[:, None] * turn).astype(np.float64)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
