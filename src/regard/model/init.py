"""Weight initialisation for a network that is trained from scratch."""

import math

import torch

from regard.model.build import Network
from regard.nn.attention import Heads
from regard.nn.embed import Embed, Unembed
from regard.nn.linear import Linear
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.table import Table


@torch.no_grad()
def initialise(net: Network, seed: int) -> None:
    """Normal with the spec's standard deviation, biases 0, norms 1; output projections scaled down with depth.

    Radford et al. (2019) scale the matrices that write into the residual stream by 1/√(their number), so that its variance
    does not grow with depth. Embeddings that the forward multiplies by √d are initialised with 1/√d.
    """
    generator = torch.Generator().manual_seed(seed)
    spec, std = net.spec, net.spec.initializer_std
    scaled = {m.tokens for m in net.modules() if isinstance(m, Embed) and m.scale != 1.0}
    for module in net.modules():
        if isinstance(module, Linear):
            if not (isinstance(module, Unembed) and spec.tied):  # a tied one is initialised as the embedding
                module.weight.normal_(0, std, generator=generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, Table):
            module.weight.normal_(0, spec.d**-0.5 if module in scaled else std, generator=generator)
    writers = [m.W_o for m in net.modules() if isinstance(m, Heads)]
    writers += [m.down for m in net.modules() if isinstance(m, MLP | GatedMLP)]
    for writer in writers:
        writer.weight.mul_(1 / math.sqrt(len(writers)))
