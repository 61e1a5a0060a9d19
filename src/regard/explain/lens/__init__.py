"""Lenses: analyses of a run, each a function from a `Trace` to a few numbers.

`head_scores` (previous-token, induction and other scores of heads), `attention_rollout` and `contribution` (flow along
attention), `logit_lens` (predictions after each block), `attribution` (direct logit attribution), `ablation` and
`gradient_times_input` (what the answer depends on), `gates` (of a recurrent network).
"""

from typing import TYPE_CHECKING, Any

from regard.errors import require
from regard.explain.lens.ablation import ablation
from regard.explain.lens.attribution import Attribution, Portion, attribution
from regard.explain.lens.flow import Contribution, attention_rollout, contribution
from regard.explain.lens.gates import Gates, gates
from regard.explain.lens.heads import HeadScores, entropy, first_token, head_scores, induction, previous_token
from regard.explain.lens.logit_lens import LensRow, logit_lens

if TYPE_CHECKING:
    from regard.explain.lens.gradient import Saliency, gradient_times_input

__all__ = [
    "Attribution",
    "Contribution",
    "Gates",
    "HeadScores",
    "LensRow",
    "Portion",
    "Saliency",
    "ablation",
    "attention_rollout",
    "attribution",
    "contribution",
    "entropy",
    "first_token",
    "gates",
    "gradient_times_input",
    "head_scores",
    "induction",
    "logit_lens",
    "previous_token",
]


def __getattr__(name: str) -> Any:
    if name not in ("Saliency", "gradient_times_input"):
        raise AttributeError(f"module 'regard.explain.lens' has no attribute {name!r}")
    require("torch", "A gradient")
    from regard.explain.lens import gradient

    return getattr(gradient, name)
