"""Preprocessing: rows → columns of token ids, in several worker processes.

In: rows and a task's preprocessor. Out: ids, column by column, and how many rows were skipped for which reason. A
preprocessor is pickled for the workers, so it has settings and a tokenizer's JSON rather than a tokenizer. This module and
what it imports stay light: every worker imports them.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from multiprocessing.connection import wait
from typing import Any, NamedTuple, Protocol

import numpy as np
import tokenizers
from numpy.typing import NDArray

from regard.errors import DataError, RegardError
from regard.text.tokenizer import Tokenizer
from regard.train.fast_bpe import Encode, fast_encoder
from regard.train.row import Row

Example = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Skip:
    """A row that is well-formed but left out, and why: "longer than 128 tokens" (printed after a count)."""

    reason: str


@dataclass(frozen=True)
class Shortened:
    """An example that was truncated, and why, worded like a skipped row's reason."""

    example: Example
    reason: str


class Preprocessor(Protocol):
    """How a task turns a row into examples (`train/encoding.py` has them). It is pickled once for every worker."""

    @property
    def task(self) -> str: ...

    @property
    def columns(self) -> Mapping[str, str]:
        """Column name → dtype, for example `smallest_dtype(n_vocab)`."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the examples depend on besides the tokenizer, as JSON values; a dataset with other ones is not reused."""
        ...

    @property
    def tokenizer_sha256(self) -> str: ...

    def encode(self, row: Row) -> Example | Shortened | Skip | list[Example]:
        """A row as one example, several (a long text in pieces), or none."""
        ...


def smallest_dtype(n: int) -> str:
    """The dtype of unsigned integers for 0 … n-1."""
    return "uint16" if n <= 1 << 16 else "uint32"


def json_sha256(value: object) -> str:
    """The hash by which data and model of a resumed run, or a dataset, are recognised; key order does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class PackedTokenizer:
    """A tokenizer that can be pickled; in the worker it is built again, once."""

    def __init__(self, tokenizer: Tokenizer):
        self._json = tokenizer.raw.to_str()
        self._specials, self._templates, self._where = tokenizer.specials, tokenizer.chat_templates, tokenizer.where
        self.sha256 = json_sha256([self._json, self._specials, self._templates])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        raw = tokenizers.Tokenizer.from_str(self._json)
        return Tokenizer(raw, specials=self._specials, chat_templates=self._templates, where=self._where)

    @cached_property
    def encode(self) -> Encode:
        """Text → ids with special tokens."""
        return fast_encoder(self.tokenizer, add_special=True)

    @cached_property
    def encode_bare(self) -> Encode:
        """Text → ids without special tokens."""
        return fast_encoder(self.tokenizer, add_special=False)

    def __getstate__(self) -> dict[str, Any]:
        built = ("tokenizer", "encode", "encode_bare")
        return {name: value for name, value in self.__dict__.items() if name not in built}


class Chunk(NamedTuple):
    """Rows to be encoded together, and how many bytes had been read after them."""

    rows: list[Row]
    bytes_read: int


@dataclass
class Encoded:
    """The examples of a chunk: every column's values, concatenated, and their lengths."""

    bytes_read: int
    values: dict[str, NDArray[Any]]
    lengths: dict[str, NDArray[np.int64]]
    skipped: Counter[str] = field(default_factory=Counter)
    shortened: Counter[str] = field(default_factory=Counter)


def encode_chunk(preprocessor: Preprocessor, chunk: Chunk) -> Encoded:
    skipped, shortened = Counter[str](), Counter[str]()
    examples: list[Example] = []
    for row in chunk.rows:
        try:
            found = preprocessor.encode(row)
        except RegardError as problem:
            raise DataError(f"{row['file']}:{row['line']}: {problem}") from None
        if isinstance(found, Skip):
            skipped[found.reason] += 1
        elif isinstance(found, Shortened):
            shortened[found.reason] += 1
            examples.append(found.example)
        else:
            examples += found if isinstance(found, list) else [found]
    values, lengths = {}, {}
    for name, dtype in preprocessor.columns.items():
        lengths[name] = np.array([len(example[name]) for example in examples], np.int64)
        values[name] = _narrowed([example[name] for example in examples], name, dtype)
    return Encoded(chunk.bytes_read, values, lengths, skipped, shortened)


def _narrowed(lists: list[Sequence[int]], name: str, dtype: str) -> NDArray[Any]:
    values = np.fromiter(chain.from_iterable(lists), np.int64)
    limits = np.iinfo(dtype)
    if len(values) and not (limits.min <= values.min() and values.max() <= limits.max):
        raise DataError(
            f"The column {name!r} has numbers from {values.min()} to {values.max()}, too large for {dtype}."
        )
    return values.astype(np.dtype(dtype).newbyteorder("<"))


def encode_all(preprocessor: Preprocessor, chunks: Iterable[Chunk], workers: int) -> Generator[Encoded, None, None]:
    """Every chunk encoded, in order. With several workers only a few chunks at a time are in memory."""
    if workers <= 1:
        for chunk in chunks:
            yield encode_chunk(preprocessor, chunk)
        return
    context = multiprocessing.get_context("spawn")  # a forked copy of a process with threads may hang
    pool = ProcessPoolExecutor(workers, context, _begin, (preprocessor,))
    pending: deque[Future[Encoded]] = deque()
    try:
        for chunk in chunks:
            pending.append(pool.submit(_work, chunk))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as problem:
        raise DataError(
            "A process that encodes text ended early: it was killed, memory ran out, or the program that started it "
            "has no `if __name__ == '__main__':`; try again with one worker."
        ) from problem
    finally:
        pool.shutdown(cancel_futures=True)


_preprocessor: Preprocessor  # of this worker process


def _begin(preprocessor: Preprocessor) -> None:
    global _preprocessor
    _preprocessor = preprocessor
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process per core is parallel enough
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent process does: one that is killed cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(chunk: Chunk) -> Encoded:
    return encode_chunk(_preprocessor, chunk)
