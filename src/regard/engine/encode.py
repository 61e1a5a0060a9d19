"""Whole texts through a network at once: states, classes and tags for many texts of different lengths.

Texts are sorted by length and batched by a budget of tokens, so that little of a batch is padding; results come back in
the order in which the texts were given.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from regard.engine.decode import pad

Progress = Callable[[int, int], None]  # texts done, texts in all


def batches(lengths: Sequence[int], budget: int = 4096) -> Iterator[list[int]]:
    """Indices of texts of similar length whose padded size stays within `budget` tokens; the longest come first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    first = 0
    while first < len(order):
        last = first + max(1, budget // max(1, lengths[order[first]]))
        yield order[first:last]
        first = last


@torch.inference_mode()
def run_batched(
    rows: Sequence[Sequence[int]],
    run: Callable[[Tensor, Tensor | None, list[int]], Sequence[Tensor]],
    *,
    pad_id: int,
    device: torch.device,
    progress: Progress | None = None,
) -> list[Tensor]:
    """`run(ids, real, which)` on batches; its results, one per row, in the order of `rows`."""
    results: list[Tensor | None] = [None] * len(rows)
    done = 0
    for which in batches([len(row) for row in rows]):
        ids, real = pad([rows[i] for i in which], pad_id, left=False, device=device)
        for i, result in zip(which, run(ids, real, which), strict=True):
            results[i] = result
        done += len(which)
        if progress is not None:
            progress(done, len(rows))
    return [result for result in results if result is not None]


def pool(states: Tensor, real: Tensor | None, mode: str, normalise: bool) -> Tensor:
    """One vector per text, (B, d), of the states (B, N, d) of its tokens."""
    if mode == "cls":
        X = states[:, 0]
    elif real is None:
        X = states.mean(1) if mode == "mean" else states.amax(1)
    elif mode == "mean":
        counts = real.sum(1)[:, None].to(states.dtype)
        X = states.masked_fill(~real[..., None], 0).sum(1) / counts  # 0 · NaN would be NaN: padding must not count
    else:
        X = states.masked_fill(~real[..., None], -torch.inf).amax(1)
    return torch.nn.functional.normalize(X, dim=-1) if normalise else X
