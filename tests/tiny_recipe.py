"""Recipes small enough to read, in a module that other processes can import quickly."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.train.preprocess import Example, PackedTokenizer, Skip, smallest_dtype
from regard.train.row import Row


@dataclass
class Stream:
    """Texts end to end, an end-of-text token after each."""

    packed: PackedTokenizer
    task: str = "lm"

    @property
    def columns(self) -> Mapping[str, str]:
        return {"ids": smallest_dtype(self.packed.tokenizer.n_vocab)}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    @property
    def tokenizer_sha256(self) -> str:
        return self.packed.sha256

    def encode(self, row: Row) -> Example:
        tokenizer = self.packed.tokenizer
        (ids,) = tokenizer.encode_batch([row["text"]], add_special=False)  # without offsets, which take time
        return {"ids": [*ids, tokenizer.eos_id or 0] if row.get("ends", True) else ids}


@dataclass
class Pairs:
    """Sources and targets of at most so many tokens."""

    packed: PackedTokenizer
    max_length: int
    task: str = "translate"

    @property
    def columns(self) -> Mapping[str, str]:
        return dict.fromkeys(("source", "target"), smallest_dtype(self.packed.tokenizer.n_vocab))

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"max_length": self.max_length}

    @property
    def tokenizer_sha256(self) -> str:
        return self.packed.sha256

    def encode(self, row: Row) -> Example | Skip:
        found = {name: self.packed.tokenizer.encode(row[name]) for name in ("source", "target")}
        too_long = max(map(len, found.values())) > self.max_length
        return Skip(f"longer than {self.max_length}") if too_long else found


@dataclass
class Codes:
    """The code points of a text: no tokenizer at all. A text may ask for other things, for tests of what goes wrong."""

    dtype: str = "uint32"
    task: str = "codes"
    tokenizer_sha256: str = ""

    @property
    def columns(self) -> Mapping[str, str]:
        return {"codes": self.dtype, "length": "int64"}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    def encode(self, row: Row) -> Example | Skip | list[Example]:
        text: str = row["text"]
        if text == "skip me":
            return Skip("not wanted")
        if text == "kill me":
            os._exit(9)
        if text == "wait":
            time.sleep(60)
        if text.startswith("words "):
            return [self._example(word) for word in text.split()[1:]]
        return self._example(text)

    def _example(self, text: str) -> Example:
        return {"codes": [ord(c) for c in text], "length": [len(text)]}
