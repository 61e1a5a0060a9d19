"""Top-k and log-sum-exp of scores (B, n_vocab): the two passes over the whole vocabulary that choosing a token needs.

The native library computes them, rows divided among threads; where it is not built, numpy does the same.
"""

import numpy as np
from numpy.typing import NDArray

from regard.engine.native.library import library
from regard.engine.threads import threads

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
MAX_RANKED = 256  # the largest k of the native library; beyond, sorting is faster


def readable(scores: Floats) -> bool:
    """Whether the native library can read them in place: float32, rows contiguous."""
    return scores.dtype == np.float32 and scores.ndim == 2 and scores.strides[1] == 4


def log_totals(logits: Floats) -> Floats:
    """log Σ exp of each row, (B, 1)."""
    native = library()
    if native is None or not readable(logits):
        highest = logits.max(-1, keepdims=True).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a row of nothing but -∞
            return (np.log(np.exp(logits - highest).sum(-1, keepdims=True)) + highest).astype(np.float32)
    totals = np.empty((len(logits), 1), np.float32)
    sizes = len(logits), logits.strides[0] // 4, logits.shape[1]
    native.regard_log_totals(logits.ctypes.data, *sizes, totals.ctypes.data, threads())
    return totals


def ranked(scores: Floats, width: int) -> tuple[Floats, Ids]:
    """The `width` best scores of each row, best first, equal ones by rising id, and their ids: both (B, width).

    If several tokens tie with the last one and do not all fit, any of them may be included.
    """
    native = library()
    if native is not None and 0 < width <= MAX_RANKED and readable(scores):
        values, ids = np.empty((len(scores), width), np.float32), np.empty((len(scores), width), np.int64)
        sizes = len(scores), scores.strides[0] // 4, scores.shape[1], width
        if not native.regard_ranked(scores.ctypes.data, *sizes, ids.ctypes.data, values.ctypes.data, threads()):
            return values, ids
    if width < scores.shape[-1]:
        chosen = np.sort(np.argpartition(-scores, width, -1)[:, :width], -1)
    else:
        chosen = np.broadcast_to(np.arange(width), scores.shape)
    values = np.take_along_axis(scores, chosen, -1)
    order = np.argsort(-values, -1, kind="stable")
    return np.take_along_axis(values, order, -1), np.take_along_axis(chosen, order, -1)
