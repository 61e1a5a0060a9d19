"""Quantized model directories, for models that GGUF has no architecture for.

Next to config.json and the tokenizer there is `model.gguf`: a GGUF container with architecture "regard", whose tensors have
the network's own parameter names and block formats. Every family can be stored so, heads included; only regard opens it.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.model.weight_map import Rule, Table
from regard.store.gguf import GGUF, read_gguf

if TYPE_CHECKING:
    from regard.store.safetensors import Checkpoint

FILE = "model.gguf"
ARCHITECTURE = "regard"


def own_table(parameters: Iterable[str]) -> Table:
    """The weight map in which every parameter has its own name."""
    patterns = dict.fromkeys(re.sub(r"\.\d+\.", ".{i}.", name, count=1) for name in parameters)
    return Table(tuple(Rule(pattern, pattern) for pattern in patterns))


def has_blocks(directory: Path) -> bool:
    """Whether it is a quantized model directory."""
    return (directory / FILE).is_file() and not any(directory.glob("*.safetensors*"))


def open_weights(directory: Path) -> "Checkpoint | GGUF":
    """The weights of a directory, quantized (model.gguf) or as safetensors."""
    if has_blocks(directory):
        return read_gguf(directory / FILE)
    from regard.store.safetensors import open_checkpoint

    return open_checkpoint(directory)
