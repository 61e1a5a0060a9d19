"""Normalisation: each token's vector brought to one scale, then stretched (γ) and shifted (β) as learned.

In and out: (…, d). A layer norm that somebody watches is the readable formula, otherwise PyTorch's fused kernel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.see import Part, see, watched


def layer_norm(X: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """γ (x - μ)/√(σ² + ε) + β with the token's own mean μ and population variance σ²."""
    mean = see("mean", X.mean(-1, keepdim=True))
    variance = see("variance", ((X - mean) ** 2).mean(-1, keepdim=True))
    X = see("normalised", (X - mean) / torch.sqrt(variance + eps))
    X = X if weight is None else X * weight
    return X if bias is None else X + bias


def rms_norm(X: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """γ x/√(mean(x²) + ε): no mean is taken away and nothing is added."""
    mean_square = see("mean_square", X.square().mean(-1, keepdim=True))
    X = see("normalised", X * torch.rsqrt(mean_square + eps))
    return X if weight is None else X * weight


class LayerNorm(Part):
    def __init__(self, d: int, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.d, self.eps = d, eps
        self.weight = nn.Parameter(torch.ones(d))  # γ
        self.bias = nn.Parameter(torch.zeros(d)) if bias else None  # β

    def forward(self, X: Tensor) -> Tensor:
        if watched():
            return see("out", layer_norm(X, self.weight, self.bias, self.eps))
        return F.layer_norm(X, (self.d,), self.weight, self.bias, self.eps)


class RMSNorm(Part):
    def __init__(self, d: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.d, self.eps = d, eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, X: Tensor) -> Tensor:
        return see("out", rms_norm(X, self.weight, self.eps))  # F.rms_norm is slower on CPUs
