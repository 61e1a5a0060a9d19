"""Weights as a coarser format would store them, in the network at hand: what quantisation costs, without a file."""

import torch
from torch import nn

from regard.errors import ConfigError
from regard.store.quant import FORMATS, Bytes, dequantise, quantise

KEPT = ("embed.positions.weight", "embed.types.weight")  # whole in files of any format
NAMES = {"q8": "Q8_0", "q8_0": "Q8_0", "q4": "Q4_0", "q4_0": "Q4_0", "q4_1": "Q4_1"}


def round_weights(net: nn.Module, name: str) -> dict[str, tuple[str, Bytes]]:
    """Round what a file of the format would: every matrix whose rows divide into blocks.

    For each of them, the format and the rows as they would lie in the file.
    """
    if name not in NAMES:
        raise ConfigError(f"quantize is {name!r}; it can be {', '.join(NAMES)}.")
    format, stored = NAMES[name], dict[str, tuple[str, Bytes]]()
    for path, parameter in net.named_parameters():
        if path.endswith(KEPT):
            continue
        if parameter.dim() == 2 and parameter.shape[1] % FORMATS[format].block_elements == 0:
            raw = quantise(parameter.detach().float().cpu().numpy(), format)
            rounded = torch.from_numpy(dequantise(raw.reshape(-1), format, tuple(parameter.shape)))
            parameter.data = rounded.to(parameter.dtype).to(parameter.device)
            stored[path] = format, raw
    return stored
