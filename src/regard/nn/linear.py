"""Linear maps, and how to ask for the product of tens of rows.

In: X (B, N, in). Out: Y = X Wᵀ + b, (B, N, out).

Before it multiplies, MKL copies W into an order of its own. A matrix that is read for tens of rows only spends a quarter of
its time in that; asked for Yᵀ = W Xᵀ instead, MKL copies more cheaply, and the whole product takes 0.7 to 0.9 of the time
(docs/decisions.md). The result is the transposed view of what was computed: its numbers lie feature by feature, which
elementwise operations and further products take as it is. While gradients are recorded nothing is turned.
"""

import torch
from torch import Tensor, nn

MKL = torch.backends.mkl.is_available()
ROWS = range(16, 513)  # fewer are a matter of reading W (see `pack`), more of multiplying alone


class Linear(nn.Linear):
    """A map whose result goes where its layout does not matter: to the residual, to an activation, to the next map."""

    def forward(self, X: Tensor) -> Tensor:
        return turned(X, self.weight, self.bias) if suits(X, self.weight) else super().forward(X)


def suits(X: Tensor, W: Tensor) -> bool:
    """Whether to ask for the transpose: tens of rows, in float32 on a CPU, by MKL, and no gradient wanted."""
    return (
        X.numel() // X.shape[-1] in ROWS
        and not torch.is_grad_enabled()
        and X.is_cpu
        and X.dtype == W.dtype == torch.float32
        and MKL
        and not torch.is_autocast_enabled("cpu")
    )


def turned(X: Tensor, W: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b as the transpose of W Xᵀ + b."""
    Y = torch.mm(W, X.reshape(-1, X.shape[-1]).t())  # (out, rows)
    if bias is not None:
        Y += bias[:, None]
    return Y.t().view(*X.shape[:-1], -1)
