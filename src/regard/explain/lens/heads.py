"""Scores of attention heads, one number per head: entropy, first token, previous token, induction.

In: attention weights A (h, N, T) of a run. Out: (h,). A score that is undefined for the run (induction in a text without
repetition) is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.explain.trace import Array, Trace


@dataclass(frozen=True)
class HeadScores:
    """Per head, (h,). previous and induction are None for cross attention."""

    site: str
    entropy: Array
    first: Array | None
    previous: Array | None
    induction: Array | None


def head_scores(trace: Trace) -> dict[str, HeadScores]:
    """The scores of the heads of each attention site ("decoder.0.attention")."""
    scores = {}
    for site in trace.graph.sites:
        A, self_attention = trace[site.weights], site.kind != "cross"
        ids = trace.ids if site.queries == "source" else trace.target_ids or []
        scores[site.site] = HeadScores(
            site.site,
            entropy(A),
            first_token(A, skip=1 if self_attention else 0),
            previous_token(A) if self_attention else None,
            induction(A, ids) if self_attention else None,
        )
    return scores


def entropy(A: Array) -> Array:
    """-Σ A log₂ A in bits, mean over queries: 0 if each attends to one token, log₂ T if to all alike.

    NaN if an edit made weights negative.
    """
    with np.errstate(invalid="ignore"):
        logs = np.log2(A, out=np.zeros_like(A), where=A != 0)
    bits: Array = -(A * logs).sum(-1).mean(-1)
    return bits


def previous_token(A: Array) -> Array | None:
    """The weight on the previous token; mean over the queries that have one."""
    return np.diagonal(A, -1, -2, -1).mean(-1) if A.shape[-2] > 1 else None


def first_token(A: Array, skip: int = 1) -> Array | None:
    """The weight on the first token; mean over queries without the first `skip`, which may see no other."""
    return A[:, skip:, 0].mean(-1) if A.shape[-2] > skip else None


def induction(A: Array, ids: Sequence[int]) -> Array | None:
    """A repeated token's weight on what followed its earlier occurrences (Olsson et al. 2022); mean over such tokens."""
    shares = []
    for i, id in enumerate(ids):
        followers = [j + 1 for j in range(i - 1) if ids[j] == id]
        if followers:
            shares.append(A[:, i, followers].sum(-1))
    return np.stack(shares).mean(0) if shares else None
