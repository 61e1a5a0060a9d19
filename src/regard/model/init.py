"""First weights for a network that is trained from scratch."""

import math

import torch
from torch import nn

from regard.model.transformer import Network
from regard.nn.attention import Heads
from regard.nn.embed import Embed, Unembed
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.position import Learned


@torch.no_grad()
def initialise(net: Network, seed: int) -> None:
    """Normal with the spec's deviation, biases 0, norms 1; what each block adds starts smaller the deeper the stack.

    Radford et al. (2019) scale the matrices that write into the residual stream by 1/√(their number), so that its variance
    does not grow with depth. Embeddings that are multiplied by √d when read start at 1/√d.
    """
    generator = torch.Generator().manual_seed(seed)
    spec, std = net.spec, net.spec.initializer_std
    scaled = {m.tokens for m in net.modules() if isinstance(m, Embed) and m.scale != 1.0}
    for module in net.modules():
        if isinstance(module, nn.Linear):
            if not (isinstance(module, Unembed) and spec.tied):  # a tied one is the embedding's to initialise
                module.weight.normal_(0, std, generator=generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(0, spec.d**-0.5 if module in scaled else std, generator=generator)
        elif isinstance(module, Learned):
            module.weight.normal_(0, std, generator=generator)
    writers = [m.W_o for m in net.modules() if isinstance(m, Heads)]
    writers += [m.down for m in net.modules() if isinstance(m, MLP | GatedMLP)]
    for writer in writers:
        writer.weight.mul_(1 / math.sqrt(len(writers)))
