"""Linear maps: X W + b."""

from typing import Any

from regard.nn.operations import linear
from regard.nn.part import Part, Weight


class Linear(Part):
    """(…, fan_in) → (…, fan_out). `out` names the axis of the result: "neuron" of an MLP, "vocabulary", "class"."""

    def __init__(self, fan_in: int, fan_out: int, bias: bool = True, out: str = "feature") -> None:
        self.fan_in, self.fan_out = fan_in, fan_out
        self.weight: Any = Weight((("feature", fan_in), (out, fan_out)), transposed=True)
        self.bias: Any = Weight(((out, fan_out),), start=0.0) if bias else None

    def forward(self, X: Any) -> Any:
        return linear(X, self.weight, self.bias)


class Projection(Linear):
    """The linear map to queries, keys or values, whose result is split into heads."""
