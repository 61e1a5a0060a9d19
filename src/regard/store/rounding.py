"""Weights as a coarser format would store them, in the network at hand: what quantisation costs, without a file."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.model.spec import Spec
from regard.model.transformer import Network, blueprint
from regard.store.network import put, share_loaded
from regard.store.quant import FORMATS, Bytes, dequantise, quantise

KEPT = ("embed.positions.weight", "embed.types.weight")  # whole in files of any format
NAMES = {"q8": "Q8_0", "q8_0": "Q8_0", "q4": "Q4_0", "q4_0": "Q4_0", "q4_1": "Q4_1"}


def is_rounded(path: str, shape: Sequence[int], format: str) -> bool:
    """Whether a parameter is stored in the format: every matrix whose rows divide into its blocks."""
    return not path.endswith(KEPT) and len(shape) == 2 and shape[1] % FORMATS[format].block_elements == 0


def rounded(W: Tensor, format: str) -> tuple[Tensor, Bytes]:
    """The matrix as the format has it, in its own dtype, and its rows as they would lie in the file."""
    raw = quantise(W.detach().float().cpu().numpy(), format)
    numbers = torch.from_numpy(dequantise(raw.reshape(-1), format, tuple(W.shape)))
    return numbers.to(W.dtype).to(W.device), raw


def round_weights(net: nn.Module, name: str) -> dict[str, tuple[str, Bytes]]:
    """Round what a file of the format would; for each such parameter, the format and the rows as the file has them."""
    if name not in NAMES:
        raise ConfigError(f"quantize is {name!r}; it can be {', '.join(NAMES)}.")
    format, stored = NAMES[name], dict[str, tuple[str, Bytes]]()
    for path, parameter in net.named_parameters():
        if is_rounded(path, parameter.shape, format):
            parameter.data, raw = rounded(parameter, format)
            stored[path] = format, raw
    return stored


def rounded_twin(net: Network, spec: Spec, format: str) -> Network:
    """Another network with the weights that a file of the format would hold; what is not rounded is shared."""
    twin = blueprint(spec)
    for path, parameter in net.named_parameters():
        put(twin, path, rounded(parameter, format)[0] if is_rounded(path, parameter.shape, format) else parameter.data)
    share_loaded(twin, spec)
    return twin.eval()
