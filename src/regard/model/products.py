"""Matrix products in the layouts that are fastest in PyTorch on a CPU. No number changes, only the memory layout.

*Tens of rows.* Before it multiplies, MKL copies W into an order of its own. For tens of rows that copy takes a
quarter of the time; computed as Yᵀ = W Xᵀ instead, it is cheaper, and the whole product takes 0.7 to 0.9 of the time
(docs/decisions.md). The result is a transposed view, stored feature by feature, which elementwise operations and further
products accept as it is. While gradients are recorded nothing is transposed.

*One row.* A decode step multiplies one row by every matrix, so its speed is the memory bandwidth of reading the weights. A
matrix that fans out is stored input × output (the product then streams through it), and matrices with the same input X (q,
k, v; gate and up) are concatenated and multiplied as one. The modules keep their own `weight`, which becomes a view of the
common storage, so saving, tracing and editing work as before.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.linear import Linear

MKL = torch.backends.mkl.is_available()
ROWS = range(16, 513)  # fewer rows are memory-bound, more are compute-bound
PIECE = 1024  # tokens of the vocabulary
FEW = 8  # rows


def suits(X: Tensor, W: Tensor) -> bool:
    """Whether to compute the transpose: tens of rows, in float32 on a CPU, by MKL, and no gradient is recorded."""
    return (
        X.numel() // X.shape[-1] in ROWS
        and not torch.is_grad_enabled()
        and X.is_cpu
        and X.dtype == W.dtype == torch.float32
        and MKL
        and not torch.is_autocast_enabled("cpu")
    )


def transposed_product(X: Tensor, W: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b as the transpose of W Xᵀ + b."""
    Y = torch.mm(W, X.reshape(-1, X.shape[-1]).t())  # (out, rows)
    if bias is not None:
        Y += bias[:, None]
    return Y.t().view(*X.shape[:-1], -1)


def unembedded(X: Tensor, W: Tensor, bias: Tensor | None) -> Tensor:
    """Logits, by transposed products over chunks of the vocabulary."""
    if not (suits(X, W) and W.is_contiguous()):  # after `store_transposed` slices of W are slow
        return F.linear(X, W, bias)
    logits = X.new_empty(*X.shape[:-1], len(W))
    for part, rows in zip(logits.split(PIECE, -1), W.split(PIECE), strict=True):
        part.copy_(transposed_product(X, rows))  # row-major again, while it is in the processor's cache
    return logits if bias is None else logits.add_(bias)


class FusedProjection:
    """Several linear maps of the same X as one product."""

    def __init__(self, *maps: Any) -> None:
        self.maps, self.sizes = maps, [W.fan_out for W in maps]
        store = torch.cat([W.weight.data.T for W in maps], 1)  # (d, Σ out)
        for W, columns in zip(maps, store.split(self.sizes, 1), strict=True):
            W.weight.data = columns.T
        self.weight = store.T
        biases = [W.bias for W in maps if W.bias is not None]
        self.bias: Tensor | None = torch.cat([b.data for b in biases]) if biases else None
        if self.bias is not None:
            for W, bias in zip(maps, self.bias.split(self.sizes), strict=True):
                W.bias.data = bias

    def suits(self, X: Tensor) -> bool:
        """One product pays off for few rows; for many, separate ones are as fast and their results contiguous.

        False once the weights have been replaced (moved to another device, say).
        """
        return X.shape[1] <= FEW and self.weight.data_ptr() == self.maps[0].weight.data_ptr()

    def __call__(self, X: Tensor) -> tuple[Tensor, ...]:
        return F.linear(X, self.weight, self.bias).split(self.sizes, -1)


def store_transposed(W: Linear) -> None:
    """Store a matrix that fans out as input × output."""
    if W.fan_out > W.fan_in:
        W.weight.data = W.weight.data.T.contiguous().T
