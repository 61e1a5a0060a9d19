"""Where each head looks, in one number per head.

In: attention weights A (h, N, T) of a run. Out: (h,) scores. A score for which the run gives no occasion (a text without a
repetition, say) is None.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.explain.trace import Trace


@dataclass(frozen=True)
class HeadScores:
    """Per head, (h,). Looking at the token before, and induction, are asked only where a text looks at itself."""

    site: str
    entropy: Tensor
    first: Tensor | None
    previous: Tensor | None
    induction: Tensor | None


def head_scores(trace: Trace) -> dict[str, HeadScores]:
    """By site ("decoder.0.attention")."""
    scores = {}
    for site in trace.graph.sites:
        A, itself = trace[f"{site.site}.weights"].float(), site.kind != "cross"
        ids = trace.ids if site.queries == "source" else trace.target_ids or []
        scores[site.site] = HeadScores(
            site.site,
            entropy(A),
            first_token(A, skip=1 if itself else 0),
            previous_token(A) if itself else None,
            induction(A, ids) if itself else None,
        )
    return scores


def entropy(A: Tensor) -> Tensor:
    """-Σ A log₂ A in bits, mean over queries: 0 when each looks at one token, log₂ T when at all alike."""
    return -(torch.xlogy(A, A).sum(-1) / math.log(2)).mean(-1)


def previous_token(A: Tensor) -> Tensor | None:
    """How much a token looks at the one before it; mean over those that have one."""
    return A.diagonal(-1, -2, -1).mean(-1) if A.shape[-2] > 1 else None


def first_token(A: Tensor, skip: int = 1) -> Tensor | None:
    """How much of the attention rests on the first token; the first `skip` queries, which may have no choice, apart."""
    return A[:, skip:, 0].mean(-1) if A.shape[-2] > skip else None


def induction(A: Tensor, ids: Sequence[int]) -> Tensor | None:
    """How much a token that occurred before looks at what followed it then (Olsson et al. 2022); mean over such tokens."""
    shares = []
    for i, id in enumerate(ids):
        followers = [j + 1 for j in range(i - 1) if ids[j] == id]
        if followers:
            shares.append(A[:, i, followers].sum(-1))
    return torch.stack(shares).mean(0) if shares else None
