"""One rule per operation: from a node and an index to the operands it was made of, recomputed in float64.

A rule is a function `(asked, node) -> Reason`. Its `rounding` bounds what float32 may have lost on the way.
"""

from collections.abc import Callable

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked
from regard.explain.rule.attention import dot, mask, mix, rotate, scale, softmax
from regard.explain.rule.embed import lookup, sine
from regard.explain.rule.mlp import activation, gate
from regard.explain.rule.norm import affine, averaged, normalise, variance
from regard.explain.rule.sums import added, concat, copied, linear
from regard.explain.why import Reason

RULES: dict[str, Callable[[Asked, Node], Reason]] = {
    "lookup": lookup,
    "sine": sine,
    "add": added,
    "copy": copied,
    "linear": linear,
    "rotate": rotate,
    "dot": dot,
    "scale": scale,
    "mask": mask,
    "softmax": softmax,
    "mix": mix,
    "concat": concat,
    "mean": averaged(1),
    "mean_square": averaged(2),
    "variance": variance,
    "normalise": normalise,
    "affine": affine,
    "activation": activation,
    "gate": gate,
}
