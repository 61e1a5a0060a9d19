"""Functions of logits that numpy lacks. Infinite logits give NaN, without a warning."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
quiet = np.errstate(all="ignore")


@quiet
def logsumexp(x: Array) -> Array:
    """log Σ eˣ along the last axis."""
    top = x.max(-1, keepdims=True)
    summed: Array = np.log(np.exp(x - top).sum(-1)) + top[..., 0]
    return summed


@quiet
def log_softmax(x: Array) -> Array:
    return x - logsumexp(x)[..., None]


@quiet
def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    shares: Array = e / e.sum(-1, keepdims=True)
    return shares


def largest(x: Array, most: int) -> tuple[Array, Array]:
    """Top-k along the last axis: values and indices, in descending order; of equal values the first come first."""
    most = min(most, x.shape[-1])
    if 0 < most < x.shape[-1] // 4 and not np.isnan(x).any():  # select before sorting
        least = -np.partition(-x, most - 1, -1)[..., most - 1, None]  # of the values equal to it, the first are chosen
        above, equal = x > least, x == least
        chosen = above | (equal & (equal.cumsum(-1) <= most - above.sum(-1, keepdims=True)))
        found = np.nonzero(chosen)[-1].reshape(*x.shape[:-1], most)
    else:
        found = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    values = np.take_along_axis(x, found, -1)
    order = np.argsort(-values, -1, kind="stable")[..., :most]
    return np.take_along_axis(values, order, -1), np.take_along_axis(found, order, -1)
