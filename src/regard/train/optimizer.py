"""The optimizer (AdamW), its weight decay groups, and the learning rate schedule with warm-up."""

import math
from collections.abc import Callable

import torch
from torch import nn

from regard.errors import ConfigError

Schedule = Callable[[int], float]  # step, counted from 0 → learning rate as a factor of its peak


def decay_groups(net: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameter groups: matrices have weight decay; biases, norms and other parameters of one axis do not."""
    named = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
    return [
        {"params": [p for _, p in named if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0},
    ]


def adamw(net: nn.Module, lr: float, weight_decay: float, betas: tuple[float, float]) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter, 2019) with all parameters of a group updated in one kernel."""
    return torch.optim.AdamW(decay_groups(net, weight_decay), lr=lr, betas=betas, eps=1e-8, fused=True)


def schedule(kind: str, warmup: int, total: int, floor: float = 0.1) -> Schedule:
    """The learning rate schedule: linear warm-up to 1, then `kind`. Cosine and linear decay to `floor` at step `total`."""

    def rising(step: int) -> float:
        return (step + 1) / max(1, warmup)

    def progress(step: int) -> float:
        return min(1.0, (step - warmup) / max(1, total - warmup))

    kinds: dict[str, Schedule] = {
        "constant": lambda step: 1.0,
        "linear": lambda step: 1.0 - (1.0 - floor) * progress(step),
        "cosine": lambda step: floor + (1.0 - floor) * 0.5 * (1 + math.cos(math.pi * progress(step))),
        # Vaswani et al. (2017), eq. 3, as a share of its own peak: the inverse square root of the step
        "noam": lambda step: math.sqrt(max(1, warmup) / (step + 1)),
    }
    kinds["inverse-sqrt"] = kinds["noam"]
    if kind not in kinds:
        raise ConfigError(f"schedule is {kind!r}; it can be {', '.join(kinds)}.")
    return lambda step: rising(step) if step < warmup else kinds[kind](step)
