"""Embedding tables (of ids, positions, token types), which check their indices: one out of range raises a RegardError."""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.errors import RegardError, TaskError, TooLong, UnknownId, no_row
from regard.nn.operation import Symbol
from regard.nn.operations import lookup
from regard.nn.part import Part, Weight
from regard.nn.see import is_compiling


def no_id(id: int, n: int) -> RegardError:
    return UnknownId(no_row(id, n))


def no_type(type: int, n: int) -> RegardError:
    return TaskError(f"types hold {type}, but the model's embedding of token types has {n} rows.")


class Table(Part):
    """An embedding table, (n, d). refuse: (index, number of rows) → the error for an index out of range."""

    def __init__(self, n: int, d: int, refuse: Callable[[int, int], RegardError] = no_id, offset: int = 0) -> None:
        self.n, self.refuse, self.offset = n + offset, refuse, offset
        self.weight: Any = Weight((("id", n + offset), ("feature", d)))

    def forward(self, ids: Any) -> Any:
        if isinstance(ids, Symbol):
            return lookup(self.weight, ids, offset=self.offset)
        if not is_compiling() and (isinstance(ids, np.ndarray) or not (ids.is_cpu or ids.is_meta)):
            self.check(ids)  # numpy counts -1 from the end, and a CUDA device assert ends the process
        try:
            return lookup(self.weight, ids, offset=self.offset)
        except IndexError:  # PyTorch checks every index on the CPU, so `check` runs only to report which one
            self.check(ids)
            raise

    def check(self, ids: Any) -> None:
        for number in (int(ids.min()) + self.offset, int(ids.max()) + self.offset):
            if not 0 <= number < self.n:
                raise self.refuse(number, self.n)


class Learned(Table):
    """Learned positional embeddings (GPT-2, BERT). `offset` rows precede position 0 (BART: 2)."""

    def __init__(self, n_positions: int, d: int, offset: int = 0) -> None:
        super().__init__(n_positions, d, self.no_position, offset)

    def no_position(self, row: int, n: int) -> RegardError:
        tokens, limit = row + 1 - self.offset, n - self.offset
        return TooLong(f"A text has {tokens:,} tokens, but the model has {limit:,} positions.")
