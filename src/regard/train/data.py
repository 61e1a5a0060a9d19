"""A prepared dataset as batches: which examples a step takes, and which are held out.

Rows are divided into training and held-out once, by a permutation that depends on the seed alone; the order of training is
another, new for every epoch. Language models take blocks of a stream instead of rows and hold out its end.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import DataError
from regard.train.order import Batch as Picked
from regard.train.order import Batches, Cursor, Permutation, Windows
from regard.train.parallel import Parallel
from regard.train.settings import TrainSettings
from regard.train.shards import Columns
from regard.train.task.base import Batch, Example, Task

HELD_OUT_MOST = 2000  # examples
HELD_OUT_SEED = 1
MOST_WORDS = 1 << 20  # of an example; as many random numbers are drawn


class Rows:
    """Examples that are rows: `picked(j)` is example j of this part of the dataset."""

    def __init__(self, columns: Columns, first: int, last: int, seed: int) -> None:
        self.columns, self.first, self.n = columns, first, last - first
        self.where = Permutation(len(columns), seed, HELD_OUT_SEED)

    def picked(self, j: int) -> Example:
        return self.columns[self.where[self.first + j]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The longer side of each example."""
        each = [self.columns.lengths(name) for name in ("ids", "source", "target") if name in self.columns.names]
        longest: NDArray[np.int32] = np.maximum.reduce(each)
        return longest[self.where(np.arange(self.first, self.first + self.n))]


class Blocks:
    """Examples that are blocks of one long stream of tokens."""

    def __init__(self, columns: Columns, first: int, last: int, block_size: int) -> None:
        self.stream, self.windows = columns.stream("ids"), Windows(len(columns.stream("ids")), block_size)
        self.first, self.n = first, last - first
        self.ends = last == len(self.windows)  # whether the stream's last tokens would be among these
        self.lengths = np.full(self.n, block_size, np.int32)

    def picked(self, j: int) -> Example:
        return {"ids": self.stream.read(*self.windows.span(self.first + j))}


def parts(
    task: Task, columns: Columns, held_out: Columns | None, s: TrainSettings
) -> tuple[Rows | Blocks, Rows | Blocks]:
    """What is trained on and what is held out."""

    def make(columns: Columns, first: int, last: int) -> Rows | Blocks:
        if s.task == "lm":
            return Blocks(columns, first, last, s.block_size)
        return Rows(columns, first, last, s.seed)

    def size(columns: Columns) -> int:
        return len(Windows(len(columns.stream("ids")), s.block_size)) if s.task == "lm" else len(columns)

    n = size(columns)
    if held_out is not None:
        return make(columns, 0, n), make(held_out, 0, size(held_out))
    aside = min(HELD_OUT_MOST, max(1, round(n * s.eval_share)))
    if n - aside < 1:
        raise DataError(f"There are only {n} examples, too few to train on some and hold out others; give more data.")
    return make(columns, 0, n - aside), make(columns, n - aside, n)


class Feed:
    """The loop's source of batches. Everything it gives is a function of the cursor, the seed and the step."""

    def __init__(
        self, task: Task, columns: Columns, held_out: Columns | None, settings: TrainSettings, together: Parallel
    ) -> None:
        self.task, self.settings, self.together = task, settings, together
        self.train, self.aside = parts(task, columns, held_out, settings)
        self.columns = [columns] if held_out is None else [columns, held_out]
        s, budget = settings, settings.batch_tokens
        self.batches = Batches(
            self.train.n,
            seed=s.seed,
            batch_size=None if budget else min(s.batch_size, self.train.n),
            token_budget=budget,
            lengths=self.train.lengths if budget else None,
            drop_last=not budget,
            rank=together.rank,
            world=together.world,
        )
        self.cursor: dict[str, int] = {}
        self._next: tuple[dict[str, int], Iterator[Picked]] | None = None

    def take(self, step: int) -> list[Batch]:
        if self._next is None or self._next[0] != self.cursor:
            self._next = (self.cursor, self.batches.from_cursor(Cursor.from_json(self.cursor)))
        indices, after = next(self._next[1])
        self.cursor = after.to_json()
        self._next = (self.cursor, self._next[1])
        generator = torch.Generator().manual_seed(collate_seed(self.settings.seed, step, self.together.rank))
        absent = not indices  # more processes than examples: this one goes through the motions
        examples = self.read(self.train, indices or [0])
        made = [self.task.collate(part, generator) for part in divided(examples, self.settings.accumulate)]
        return [batch.without_weight() for batch in made] if absent else made

    def read(self, part: Rows | Blocks, indices: Sequence[int]) -> list[Example]:
        """Examples as they lie on the disk, where another process can write: every number is one that the network knows."""
        for columns in self.columns:
            columns.refuse_if_shrunk()
        examples = [part.picked(j) for j in indices]
        for example in examples:
            for name, values in example.items():
                below = limit(name, self.task)
                if len(values) and not (-(name == "words") <= int(values.min()) and int(values.max()) < below):
                    raise DataError(
                        f"{self.columns[0].directory.parent}: {name} has numbers from {values.min()} to {values.max()} "
                        f"where only those below {below} are known; remove the directory, and it is prepared again."
                    )
        return examples

    def left_over(self) -> list[str]:
        """What is there and not used, in sentences."""
        s, sentences = self.settings, list[str]()
        for part, name in ((self.train, "text"), (self.aside, "held-out text")):
            if isinstance(part, Blocks) and part.ends and part.windows.dropped:
                n = part.windows.dropped
                sentences.append(f"The last {n:,} tokens of the {name} are too few for a block of {s.block_size}.")
        if self.batches.dropped:
            n = self.batches.dropped
            sentences.append(f"Every epoch leaves out {n:,} examples, not always the same: too few for a batch.")
        if self.aside.n > HELD_OUT_MOST:
            sentences.append(f"Of {self.aside.n:,} held-out examples {HELD_OUT_MOST:,} are judged at an evaluation.")
        return sentences

    @cached_property
    def _held_out(self) -> list[Batch]:
        """The same batches at every evaluation, masked tokens included. Texts of like length are together; which lengths
        come first is left to chance, since answers are written out for the first batches only."""
        generator = torch.Generator().manual_seed(HELD_OUT_SEED)
        order = np.arange(min(self.aside.n, HELD_OUT_MOST))
        order = order[np.argsort(self.aside.lengths[: len(order)], kind="stable")]
        size = self.settings.batch_size
        chunks = [order[i : i + size] for i in range(0, len(order), size)]
        mixed = [chunks[i] for i in Permutation(len(chunks), HELD_OUT_SEED)(np.arange(len(chunks)))]
        return [self.task.collate(self.read(self.aside, chunk.tolist()), generator) for chunk in mixed]

    def held_out(self) -> list[Batch]:
        return self._held_out

    def tokens_at_once(self) -> int:
        """About how many tokens of one side a process computes with at a time, at most."""
        longest = int(self.train.lengths.max(initial=1))
        tokens = self.settings.batch_tokens or (self.batches.batch_size or 1) * longest
        return -(-tokens // (self.together.world * self.settings.accumulate))

    def steps_per_epoch(self) -> float:
        return self.batches.estimate()


def limit(name: str, task: Task) -> int:
    """What the numbers of a column are below, as `encoding.py` makes them. (Of words, -1 is none.)"""
    known = {"label": len(task.labels), "tags": len(task.labels) + 1, "said": 2, "words": MOST_WORDS}
    return known.get(name, task.tokenizer.n_vocab)


def divided(examples: Sequence[Example], parts: int) -> list[Sequence[Example]]:
    """At most `parts` contiguous parts of nearly equal size."""
    parts = min(parts, len(examples))
    cuts = [len(examples) * i // parts for i in range(parts + 1)]
    return [examples[a:b] for a, b in pairwise(cuts)]


def collate_seed(seed: int, step: int, rank: int) -> int:
    return (seed * 1_000_033 + step) * 8209 + rank & 0x7FFF_FFFF_FFFF_FFFF
