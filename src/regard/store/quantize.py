"""Quantize weights in memory, to a block format and back to float32: what quantization costs, without a file."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError
from regard.store.number_formats import FORMATS, Bytes, dequantize, quantize

NEVER_QUANTIZED = ("embed.positions.weight", "embed.types.weight")  # float32 in files of any format
NAMES = {"q8": "Q8_0", "q8_0": "Q8_0", "q4": "Q4_0", "q4_0": "Q4_0", "q4_1": "Q4_1"}
Arrays = Mapping[str, NDArray[np.float32]]
Blocks = dict[str, tuple[str, Bytes]]  # parameter → number format and quantized rows, as in a file


def is_quantized(path: str, shape: Sequence[int], format: str) -> bool:
    """Whether a parameter is quantized: every matrix whose rows divide into blocks of the format."""
    return not path.endswith(NEVER_QUANTIZED) and len(shape) == 2 and shape[1] % FORMATS[format].block_elements == 0


def quantize_weights(arrays: Arrays, name: str) -> tuple[dict[str, NDArray[np.float32]], Blocks]:
    """As `quantized`, by a name of `NAMES` ("q8"): the `quantize` argument of `regard.load`."""
    if name not in NAMES:
        raise ConfigError(f"quantize is {name!r}; it can be {', '.join(NAMES)}.")
    return quantized(arrays, NAMES[name])


def quantized(arrays: Arrays, format: str) -> tuple[dict[str, NDArray[np.float32]], Blocks]:
    """The weights as loaded from a file of the format, and the rows of those it quantizes. Tied ones stay tied."""
    made, stored, done = dict(arrays), Blocks(), dict[int, tuple[NDArray[np.float32], Bytes]]()
    for path, W in arrays.items():
        if is_quantized(path, W.shape, format):
            if id(W) not in done:
                raw = quantize(W, format)
                done[id(W)] = dequantize(raw.reshape(-1), format, W.shape), raw
            made[path], stored[path] = done[id(W)][0], (format, done[id(W)][1])
    return made, stored
