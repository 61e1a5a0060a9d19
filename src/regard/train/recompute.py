"""Memory for time: what happens inside a block is computed a second time for the backward pass instead of being kept.

In: a network's blocks. Out: the same blocks, which keep only what they are given (Chen et al., 2016). The second time draws
the same random numbers as the first, so losses and gradients are what they were.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.nn.see import watched


def recompute(blocks: Sequence[nn.Module]) -> None:
    for block in blocks:
        block.forward = twice(block.forward)


def twice(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forgetful(X: Tensor, **where: Any) -> Tensor:
        if watched() or not torch.is_grad_enabled():  # a watcher is shown every number once
            return forward(X, **where)
        made: Tensor = checkpoint(forward, X, use_reentrant=False, **where)
        return made

    return forgetful
