"""Ways of looking at a run: each a small function from a `Trace` to a few numbers.

`head_scores` (where heads look), `attention_rollout` and `contribution` (what flows), `logit_lens` (what the model would
say if it stopped here), `attribution` (which part said it), `ablation` and `gradient_times_input` (what it depends on),
`gates` (what a recurrent network kept and let through).
"""

from regard.explain.lens.attribution import Attribution, Portion, attribution
from regard.explain.lens.early import Row, logit_lens
from regard.explain.lens.effect import Saliency, ablation, gradient_times_input
from regard.explain.lens.flow import Contribution, attention_rollout, contribution
from regard.explain.lens.gates import Gates, gates
from regard.explain.lens.heads import HeadScores, entropy, first_token, head_scores, induction, previous_token

__all__ = [
    "Attribution",
    "Contribution",
    "Gates",
    "HeadScores",
    "Portion",
    "Row",
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
