"""Example i of a split, drawn on its own: which dice make it, and which split a text belongs to.

In come a kind of text, a seed, a split and an index; out comes the one example they stand for, on every machine and in
any order. A text belongs to the split that a hash of its words says, whatever the seed, so nothing a model is examined
on was ever in its training: a draw that belongs elsewhere is thrown again.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from regard.errors import DataError
from regard.store.atomic_write import replace_file

T = TypeVar("T")

SPLITS = ("train", "dev", "test")
PER_CENT = {"dev": range(90, 95), "test": range(95, 100)}  # the rest is for training


class Dice:
    """Choices made from `Random.random()` alone: the only sequence Python promises to keep from version to version."""

    def __init__(self, key: str) -> None:
        self.random = Random(key).random  # a str seeds through SHA-512, never through hash()

    def below(self, n: int) -> int:
        return int(self.random() * n)

    def number(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def two(self, options: Sequence[T]) -> tuple[T, T]:
        """Two different members, in either order."""
        i = self.below(len(options))
        j = self.below(len(options) - 1)
        return options[i], options[j + (j >= i)]

    def weigh(self, options: Sequence[tuple[T, int]]) -> T:
        """One of the options, as often as its weight says."""
        left = self.below(sum(weight for _, weight in options))
        for option, weight in options:
            if left < weight:
                return option
            left -= weight
        raise AssertionError("unreachable: `left` is below the sum of the weights")


def normalise(text: str) -> str:
    """The words alone: case, punctuation and spacing must not let a text into two splits."""
    return " ".join(re.findall(r"\w+", text.lower()))


def split_of(text: str) -> str:
    digest = hashlib.blake2b(normalise(text).encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") % 100
    return next((split for split, places in PER_CENT.items() if place in places), "train")


def draw(kind: str, seed: int, split: str, i: int, make: Callable[[Dice], T], text: Callable[[T], str]) -> T:
    """The first thing `make` makes, with the dice of (kind, seed, split, i), whose text belongs to the split."""
    if split not in SPLITS:
        raise DataError(f"There is no split {split!r}; use train, dev or test.")
    dice = Dice(f"{kind}/{seed}/{split}/{i}")
    while True:
        made = make(dice)
        if split_of(text(made)) == split:
            return made


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """A text file in UTF-8 with Unix line ends, whole or not at all."""
    with replace_file(Path(path)) as file:
        file.writelines(f"{line}\n".encode() for line in lines)
