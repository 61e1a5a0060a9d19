"""Batched encoding: states, classes and tags for many sequences of different lengths, one forward pass per batch.

Sequences are sorted by length and batched by a budget of tokens, so that little of a batch is padding; results are in the
order of the input.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from regard.engine.reference_decoder import Ids, Real, pad
from regard.engine.top_k import Floats

Progress = Callable[[int, int], None]  # sequences done, total


def batches(lengths: Sequence[int], budget: int = 4096) -> Iterator[list[int]]:
    """Batches of indices of sequences of similar length, padded size within `budget` tokens; the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    first = 0
    while first < len(order):
        last = first + max(1, budget // max(1, lengths[order[first]]))
        yield order[first:last]
        first = last


def run_batched(
    rows: Sequence[Sequence[int]],
    run: Callable[[Ids, Real | None], Sequence[Floats]],
    *,
    pad_id: int,
    progress: Progress | None = None,
) -> list[Floats]:
    """`run(ids, real)` on batches; its results, one per row, in the order of `rows`."""
    results: list[Floats | None] = [None] * len(rows)
    done = 0
    for which in batches([len(row) for row in rows]):
        ids, real = pad([rows[i] for i in which], pad_id, left=False)
        for i, result in zip(which, run(ids, real), strict=True):
            results[i] = result
        done += len(which)
        if progress is not None:
            progress(done, len(rows))
    return [result for result in results if result is not None]


@np.errstate(all="ignore")  # infinite states give vectors that the caller refuses
def pool(states: Floats, real: Real | None, mode: str, normalise: bool) -> Floats:
    """Pool the states (B, N, d) of each sequence's tokens to one vector, (B, d). mode: cls, mean or max."""
    if mode == "cls":
        X = states[:, 0]
    elif real is None:
        X = states.mean(1) if mode == "mean" else states.max(1)
    elif mode == "mean":
        X = np.where(real[..., None], states, 0).sum(1) / real.sum(1, dtype=np.float32)[:, None]  # 0 · NaN would be NaN
    else:
        X = np.where(real[..., None], states, -np.inf).max(1)
    return unit(X) if normalise else X


def unit(X: Floats) -> Floats:
    """Vectors scaled to length 1; a zero vector stays as it is."""
    return X / np.maximum(np.sqrt(np.square(X).sum(-1, keepdims=True)), 1e-12)
