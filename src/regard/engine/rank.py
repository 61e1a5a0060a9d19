"""The best of a row of scores, and the sum beneath all of them: what choosing a token needs of a whole vocabulary.

In: scores (B, n_vocab). The native library reads them once; where it is not built, or cannot read them, PyTorch does the
same.
"""

import torch
from torch import Tensor

from regard.engine.native.library import library

MOST = 256  # numbers kept in order by the native library; for more, sorting is faster


def readable(scores: Tensor) -> bool:
    """Whether the native library can read them where they lie."""
    return scores.device.type == "cpu" and scores.dtype == torch.float32 and scores.dim() == 2 and scores.stride(1) == 1


def log_totals(logits: Tensor) -> Tensor:
    """log Σ exp of each row, (B, 1)."""
    native = library()
    if native is None or not readable(logits):
        return logits.float().logsumexp(-1, keepdim=True)
    totals = torch.empty(len(logits), 1)
    native.regard_log_totals(logits.data_ptr(), len(logits), logits.stride(0), logits.shape[1], totals.data_ptr())
    return totals


def ranked(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` best scores of each row, best first, equal ones by rising id, and their ids: both (B, width).

    Of tokens that tie with the last one and do not all fit, it is open which are among them.
    """
    native = library()
    if native is not None and 0 < width <= MOST and readable(scores):
        values, ids = torch.empty(len(scores), width), torch.empty(len(scores), width, dtype=torch.long)
        sizes = len(scores), scores.stride(0), scores.shape[1], width
        if not native.regard_ranked(scores.data_ptr(), *sizes, ids.data_ptr(), values.data_ptr()):
            return values, ids
    if width == scores.shape[-1]:
        values, ids = scores.sort(dim=-1, descending=True, stable=True)
        return values, ids
    values, ids = scores.topk(width)
    ids, by_id = ids.sort(-1)
    values, by_value = values.gather(-1, by_id).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, by_value)
