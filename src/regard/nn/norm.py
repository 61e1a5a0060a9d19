"""Normalisation: LayerNorm and RMSNorm scale each token's vector, then apply a learned gain (γ) and bias (β)."""

from typing import Any

from regard.nn.operations import affine, mean, mean_square, normalise, variance
from regard.nn.part import Part, Weight
from regard.nn.see import see


def layer_norm(X: Any, weight: Any, bias: Any, eps: float) -> Any:
    """γ (x - μ)/√(σ² + ε) + β with the token's own mean μ and population variance σ²."""
    μ = see("mean", mean(X))
    X = see("normalised", normalise(X, see("variance", variance(X, μ)), μ, eps=eps))
    return X if weight is None else affine(X, weight, bias)


def rms_norm(X: Any, weight: Any, eps: float) -> Any:
    """γ x/√(mean(x²) + ε): no mean is subtracted and no β added."""
    X = see("normalised", normalise(X, see("mean_square", mean_square(X)), eps=eps))
    return X if weight is None else affine(X, weight)


class LayerNorm(Part):
    def __init__(self, d: int, eps: float = 1e-5, bias: bool = True) -> None:
        self.d, self.eps = d, eps
        self.weight: Any = Weight((("feature", d),), start=1.0)  # γ
        self.bias: Any = Weight((("feature", d),), start=0.0) if bias else None  # β

    def forward(self, X: Any) -> Any:
        return see("out", layer_norm(X, self.weight, self.bias, self.eps))


class RMSNorm(Part):
    def __init__(self, d: int, eps: float = 1e-6) -> None:
        self.d, self.eps = d, eps
        self.weight: Any = Weight((("feature", d),), start=1.0)

    def forward(self, X: Any) -> Any:
        return see("out", rms_norm(X, self.weight, self.eps))
