"""The names and shapes of a network's parameters, as its parts declare them: without a number, and without PyTorch."""

import math

from regard.model.registry import network
from regard.model.spec import Spec
from regard.nn.part import weights


def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Every parameter under each of its names: tied ones are listed twice."""
    return {name: weight.shape for name, weight in weights(network(spec))}


def count_parameters(spec: Spec) -> int:
    """Of tied ones, one counts."""
    tied = {name for group in spec.tied for name in group[1:]}
    return sum(math.prod(shape) for name, shape in shapes(spec).items() if name not in tied)
