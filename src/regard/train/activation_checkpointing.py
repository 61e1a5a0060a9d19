"""Activation checkpointing (gradient checkpointing): activations are recomputed in the backward pass instead of stored.

In: a network's blocks. Out: the same blocks, which store only their inputs (Chen et al., 2016): less memory for more time.
The recomputation draws the same random numbers as the first forward pass, so losses and gradients stay the same.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.nn.see import watched


def checkpoint_activations(blocks: Sequence[nn.Module]) -> None:
    """Turn activation checkpointing on for these blocks, in place."""
    for block in blocks:
        block.forward = recomputing(block.forward)


def recomputing(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def checkpointed(X: Tensor, **where: Any) -> Tensor:
        if watched() or not torch.is_grad_enabled():  # an observer must be called once per value, not twice
            return forward(X, **where)
        made: Tensor = checkpoint(forward, X, use_reentrant=False, **where)
        return made

    return checkpointed
