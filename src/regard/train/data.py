"""The data loader: a tokenised dataset → the batches of each step, and the held-out batches of evaluations.

In: a dataset's columns, settings, rank and world size. Out: collated batches, split into micro-batches for gradient
accumulation. Rows are divided into training and held-out once, by a permutation that depends on the seed alone; the
training rows are shuffled by another, new for every epoch. Language models train on blocks of a packed stream of tokens
instead of rows and hold out its end.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import DataError
from regard.train.data_order import Batch as IndexBatch
from regard.train.data_order import Batches, Cursor, Permutation, Windows
from regard.train.parallel import Parallel
from regard.train.settings import TrainSettings
from regard.train.shards import Columns
from regard.train.task.base import Batch, Example, Task

MAX_HELD_OUT = 2000  # examples
HELD_OUT_SEED = 1
MAX_WORDS = 1 << 20  # in an example: whole-word masking draws a random number for each


class Rows:
    """Examples that are rows of a dataset: `example(j)` is example j of this part (training or held-out) of it."""

    def __init__(self, columns: Columns, first: int, last: int, seed: int) -> None:
        self.columns, self.first, self.n = columns, first, last - first
        self.where = Permutation(len(columns), seed, HELD_OUT_SEED)

    def example(self, j: int) -> Example:
        return self.columns[self.where[self.first + j]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The length of each example; of a pair, of its longer side."""
        each = [self.columns.lengths(name) for name in ("ids", "source", "target") if name in self.columns.names]
        longest: NDArray[np.int32] = np.maximum.reduce(each)
        return longest[self.where(np.arange(self.first, self.first + self.n))]


class Blocks:
    """Examples that are blocks of one long stream of tokens, in which texts are packed end to end."""

    def __init__(self, columns: Columns, first: int, last: int, block_size: int) -> None:
        self.stream, self.windows = columns.stream("ids"), Windows(len(columns.stream("ids")), block_size)
        self.first, self.n = first, last - first
        self.ends = last == len(self.windows)  # whether this part has the end of the stream
        self.lengths = np.full(self.n, block_size, np.int32)

    def example(self, j: int) -> Example:
        return {"ids": self.stream.read(*self.windows.span(self.first + j))}


def parts(
    task: Task, columns: Columns, held_out: Columns | None, s: TrainSettings
) -> tuple[Rows | Blocks, Rows | Blocks]:
    """The training part and the held-out part."""

    def make(columns: Columns, first: int, last: int) -> Rows | Blocks:
        if s.task == "lm":
            return Blocks(columns, first, last, s.block_size)
        return Rows(columns, first, last, s.seed)

    def size(columns: Columns) -> int:
        return len(Windows(len(columns.stream("ids")), s.block_size)) if s.task == "lm" else len(columns)

    n = size(columns)
    if held_out is not None:
        return make(columns, 0, n), make(held_out, 0, size(held_out))
    n_held_out = min(MAX_HELD_OUT, max(1, round(n * s.eval_share)))
    if n - n_held_out < 1:
        raise DataError(f"There are only {n} examples, too few to train on some and hold out others; give more data.")
    return make(columns, 0, n - n_held_out), make(columns, n - n_held_out, n)


class DataLoader:
    """The training loop's data loader. Its batches are a function of the cursor, the seed and the step alone."""

    def __init__(
        self, task: Task, columns: Columns, held_out: Columns | None, settings: TrainSettings, parallel: Parallel
    ) -> None:
        self.task, self.settings, self.parallel = task, settings, parallel
        self.train, self.held_out_part = parts(task, columns, held_out, settings)
        self.columns = [columns] if held_out is None else [columns, held_out]
        s, budget = settings, settings.batch_tokens
        self.batches = Batches(
            self.train.n,
            seed=s.seed,
            batch_size=None if budget else min(s.batch_size, self.train.n),
            token_budget=budget,
            lengths=self.train.lengths if budget else None,
            drop_last=not budget,
            rank=parallel.rank,
            world_size=parallel.world_size,
        )
        self.cursor: dict[str, int] = {}
        self._next: tuple[dict[str, int], Iterator[IndexBatch]] | None = None

    def micro_batches(self, step: int) -> list[Batch]:
        """This rank's share of the next batch, as micro-batches; the cursor moves on."""
        if self._next is None or self._next[0] != self.cursor:
            self._next = (self.cursor, self.batches.from_cursor(Cursor.from_json(self.cursor)))
        indices, after = next(self._next[1])
        self.cursor = after.to_json()
        self._next = (self.cursor, self._next[1])
        generator = torch.Generator().manual_seed(collate_seed(self.settings.seed, step, self.parallel.rank))
        empty = not indices  # more ranks than examples: this one computes an example with weight 0
        examples = self.read(self.train, indices or [0])
        batches = [self.task.collate(part, generator) for part in split_evenly(examples, self.settings.accumulate)]
        return [batch.without_weight() for batch in batches] if empty else batches

    def read(self, part: Rows | Blocks, indices: Sequence[int]) -> list[Example]:
        """Examples from the disk. Another process may have changed the files, so every id is checked to be in range."""
        for columns in self.columns:
            columns.refuse_if_shrunk()
        examples = [part.example(j) for j in indices]
        for example in examples:
            for name, values in example.items():
                below = limit(name, self.task)
                if len(values) and not (-(name == "words") <= int(values.min()) and int(values.max()) < below):
                    raise DataError(
                        f"{self.columns[0].directory.parent}: {name} has numbers from {values.min()} to {values.max()} "
                        f"where only those below {below} are valid; remove the directory, and it is prepared again."
                    )
        return examples

    def unused_data(self) -> list[str]:
        """Messages about data that training or evaluation leaves out."""
        s, sentences = self.settings, list[str]()
        for part, name in ((self.train, "text"), (self.held_out_part, "held-out text")):
            if isinstance(part, Blocks) and part.ends and part.windows.dropped:
                n = part.windows.dropped
                sentences.append(f"The last {n:,} tokens of the {name} are too few for a block of {s.block_size}.")
        if self.batches.dropped:
            n = self.batches.dropped
            sentences.append(f"Every epoch leaves out {n:,} examples, not always the same: too few for a batch.")
        if self.held_out_part.n > MAX_HELD_OUT:
            n = self.held_out_part.n
            sentences.append(f"Of {n:,} held-out examples {MAX_HELD_OUT:,} are used at an evaluation.")
        return sentences

    @cached_property
    def _held_out(self) -> list[Batch]:
        """The same batches at every evaluation, masked tokens included. Examples of similar length are batched together,
        and the batches shuffled, since an encoder-decoder generates text for the first ones only."""
        generator = torch.Generator().manual_seed(HELD_OUT_SEED)
        order = np.arange(min(self.held_out_part.n, MAX_HELD_OUT))
        order = order[np.argsort(self.held_out_part.lengths[: len(order)], kind="stable")]
        size = self.settings.batch_size
        chunks = [order[i : i + size] for i in range(0, len(order), size)]
        mixed = [chunks[i] for i in Permutation(len(chunks), HELD_OUT_SEED)(np.arange(len(chunks)))]
        return [self.task.collate(self.read(self.held_out_part, chunk.tolist()), generator) for chunk in mixed]

    def held_out(self) -> list[Batch]:
        return self._held_out

    def tokens_per_micro_batch(self) -> int:
        """About how many tokens, at most, a process computes with in one micro-batch (of a pair, on one side)."""
        longest = int(self.train.lengths.max(initial=1))
        tokens = self.settings.batch_tokens or (self.batches.batch_size or 1) * longest
        return -(-tokens // (self.parallel.world_size * self.settings.accumulate))

    def steps_per_epoch(self) -> float:
        return self.batches.estimate()


def limit(name: str, task: Task) -> int:
    """The upper bound (exclusive) of a column's values, as `encoding.py` makes them. (In `words`, -1 is no word.)"""
    known = {"label": len(task.labels), "tags": len(task.labels) + 1, "said": 2, "words": MAX_WORDS}
    return known.get(name, task.tokenizer.n_vocab)


def split_evenly(examples: Sequence[Example], parts: int) -> list[Sequence[Example]]:
    """At most `parts` contiguous parts of nearly equal size."""
    parts = min(parts, len(examples))
    cuts = [len(examples) * i // parts for i in range(parts + 1)]
    return [examples[a:b] for a, b in pairwise(cuts)]


def collate_seed(seed: int, step: int, rank: int) -> int:
    return (seed * 1_000_033 + step) * 8209 + rank & 0x7FFF_FFFF_FFFF_FFFF
