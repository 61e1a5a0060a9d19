"""The same weights laid out for reading a row of X at a time.

Generating one token multiplies one row by every matrix, so its speed is the speed of reading the weights. Two things
help, and neither changes a number: a matrix that fans out is stored input × output (the product then streams through it),
and matrices that read the same X (q, k, v; gate and up) lie side by side and are multiplied in one go. The modules keep
their own `weight`: it becomes a view of the common store, so saving, looking and editing work as before.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW = 8  # rows


class SideBySide:
    """Several linear maps of the same X as one product."""

    def __init__(self, *maps: nn.Linear) -> None:
        self.maps, self.sizes = maps, [W.out_features for W in maps]
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
        """One product pays for few rows; of many, separate ones are as fast and their results lie together.

        Never once somebody has replaced the weights (moved them to another device, say).
        """
        return X.shape[1] <= FEW and self.weight.data_ptr() == self.maps[0].weight.data_ptr()

    def __call__(self, X: Tensor) -> tuple[Tensor, ...]:
        return F.linear(X, self.weight, self.bias).split(self.sizes, -1)


def lay_out(W: nn.Linear) -> None:
    """Store a matrix that fans out input × output."""
    if W.out_features > W.in_features:
        W.weight.data = W.weight.data.T.contiguous().T
