"""A model's directory whose weights are in blocks of small integers, for what GGUF has no architecture for.

Beside config.json and the tokenizer lies `model.gguf`: a GGUF container with architecture "regard" whose tensors have the
network's own names. Every family can be stored so, heads included; it opens here and nowhere else.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.model.weightmap import Rule, Table
from regard.store.gguf import GGUF, read_gguf

if TYPE_CHECKING:
    from regard.store.safetensors import Checkpoint

FILE = "model.gguf"
ARCHITECTURE = "regard"


def own_table(parameters: Iterable[str]) -> Table:
    """Every parameter under its own name."""
    patterns = dict.fromkeys(re.sub(r"\.\d+\.", ".{i}.", name, count=1) for name in parameters)
    return Table(tuple(Rule(pattern, pattern) for pattern in patterns))


def has_blocks(directory: Path) -> bool:
    return (directory / FILE).is_file() and not any(directory.glob("*.safetensors*"))


def open_weights(directory: Path) -> "Checkpoint | GGUF":
    """The weights of a directory, in whichever of the two ways they are stored."""
    if has_blocks(directory):
        return read_gguf(directory / FILE)
    from regard.store.safetensors import open_checkpoint

    return open_checkpoint(directory)
