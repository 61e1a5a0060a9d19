"""Gradient flow: a backward pass through a stack of blocks with and without residual connections and norms.

Out: the norms of activations and gradients at each layer, for the four stacks. All four have the same weights, input and
loss, so only the wiring differs.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.explain.trace import Array
from regard.model.module import as_module
from regard.nn.attention import MultiHead
from regard.nn.block import PreNorm
from regard.nn.linear import Linear
from regard.nn.mlp import MLP
from regard.nn.norm import LayerNorm
from regard.nn.part import Part
from regard.teach.lesson.step import Load, Step, on_page

LAYERS, D, HEADS, TOKENS = 12, 64, 4, 16


class NoResidual(Part):
    """norm → attention, norm → mlp: nothing is added to what came in."""

    def __init__(self, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> None:
        self.norm_1, self.attention, self.norm_2, self.mlp = norm_1, attention, norm_2, mlp

    def forward(self, X: Tensor) -> Tensor:
        H: Tensor = self.attention(self.norm_1(X))
        out: Tensor = self.mlp(self.norm_2(H))
        return out


class NoNorm(Part):
    """The identity instead of a norm."""

    def forward(self, X: Tensor) -> Tensor:
        return X


Block = Callable[[Part, Part, Part, Part], Part]
Norm = Callable[[], Part]
STACKS: dict[str, tuple[Block, Norm]] = {
    "both": (PreNorm, lambda: LayerNorm(D)),
    "no residual": (NoResidual, lambda: LayerNorm(D)),
    "no norm": (PreNorm, NoNorm),
    "neither": (NoResidual, NoNorm),
}


class Flow(NamedTuple):
    """Per layer: √mean x² of its output, the share of it that differs between tokens, ‖∂L/∂x‖ there, and ‖∂L/∂W‖ of its
    weights."""

    activation: Tensor
    spread: Tensor
    gradient: Tensor
    weights: Tensor


def gradient_flow(load: Load) -> list[Step]:
    flows = [flow(*parts) for parts in STACKS.values()]
    layers, columns = tuple(f"layer {i}" for i in range(1, LAYERS + 1)), tuple(STACKS)

    def by_stack(which: str) -> Array:
        """(layers, stacks)."""
        return torch.stack([getattr(each, which) for each in flows], 1).numpy()

    def bars(say: str, formula: str, which: str, off: str = "") -> Step:
        edits = {f"decoder.*.{off}_{i}": "off" for i in (1, 2)}
        state = on_page("The old king sees", 0, edits=edits) if off else None
        return Step(say, formula, by_stack(which), rows=layers, columns=columns, bars="log", state=state)

    ends = by_stack("gradient")[[0, -1]]
    return [
        bars(
            f"Forwards: {LAYERS} blocks, width {D}, {TOKENS} random tokens, random weights, the same for all four stacks. "
            "Adding without norms, numbers grow layer by layer; with neither, they fade.",
            "√mean x²",
            "activation",
            off="norm",
        ),
        bars(
            "What part of them differs between tokens. Attention averages; unless the token itself is added back, all "
            "tokens become the same within a few layers (Dong, Cordonnier and Loukas, 2021), norm or no norm.",
            "‖x - x̄‖/‖x‖",
            "spread",
            off="residual",
        ),
        bars(
            "Backwards, from a gradient of length 1 at the top: what reaches each layer. With both it arrives about as "
            "it left; without norms it explodes; with neither it vanishes. Norms alone keep it alive, but for tokens "
            "that no longer differ.",
            "‖∂L/∂x‖",
            "gradient",
        ),
        bars("What reaches the weights of each layer.", "‖∂L/∂W‖", "weights"),
        Step(
            "The first layer's gradient over the last one's. Near 1, all layers learn at one pace.",
            "ratio",
            (ends[0] / ends[1])[None],
            columns=columns,
        ),
    ]


def flow(block: Block, norm: Norm) -> Flow:
    """One forward and backward pass; the loss L is a fixed random direction of the output."""
    generator = torch.Generator().manual_seed(1)
    X, G = (torch.randn(1, TOKENS, D, generator=generator, dtype=torch.float64) for _ in range(2))
    blocks, states = stack(block, norm), [X]
    for each in blocks:
        states.append(each(states[-1]))
        states[-1].retain_grad()
    (states[-1] * G / G.norm()).sum().backward()
    return Flow(
        torch.stack([x.detach().square().mean().sqrt() for x in states[1:]]),
        torch.stack([spread(x.detach()) for x in states[1:]]),
        torch.stack([grad_of(x).norm() for x in states[1:]]),
        torch.stack([torch.cat([grad_of(p).flatten() for p in matrices(each)]).norm() for each in blocks]),
    )


def spread(X: Tensor) -> Tensor:
    """‖x - x̄‖/‖x‖, with the mean over tokens; at least the rounding error of double precision."""
    return ((X - X.mean(1, keepdim=True)).norm() / X.norm()).clamp_min(torch.finfo(X.dtype).eps)


def stack(block: Block, norm: Norm) -> nn.ModuleList:
    """Blocks with the same weights for every kind of block and norm: normal with variance 1/fan-in, biases 0."""
    generator = torch.Generator().manual_seed(0)
    blocks = nn.ModuleList(
        as_module(block(MultiHead(D, HEADS), MLP(D, 4 * D, "gelu"), norm(), norm())) for _ in range(LAYERS)
    ).double()
    for linear in (m for m in blocks.modules() if isinstance(m, Linear)):
        nn.init.normal_(linear.weight, std=1 / math.sqrt(linear.fan_in), generator=generator)
        nn.init.zeros_(linear.bias)
    return blocks


def matrices(block: nn.Module) -> list[Tensor]:
    return [m.weight for m in block.modules() if isinstance(m, Linear)]


def grad_of(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad
