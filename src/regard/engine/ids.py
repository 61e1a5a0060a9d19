"""Token ids where they enter a network: each must have a row in the embedding, and each position one in its table.

The native engine calls these for every text that it reads, whichever way the ids came; its C code looks once more and
refuses the batch. PyTorch's networks do the same where they look rows up (`nn.table`). What a tokenizer could give is
compared with the embedding when a model is opened (`Tokenizer.check_vocab`).
"""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from regard.errors import GenerationError, TooLong, UnknownId, no_row, quoted


def check_ids(ids: Sequence[int], n_rows: int) -> None:
    """Refuse an id without a row in an embedding of `n_rows` rows."""
    for id in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= id < n_rows:
            raise UnknownId(no_row(id, n_rows))


def whole_ids(ids: Iterable[Any], n_rows: int) -> list[int]:
    """Ids that somebody gave by hand, of whatever type: whole numbers with a row in the embedding."""
    listed = list(ids)
    for id in listed:
        if isinstance(id, bool) or not isinstance(id, Integral):
            raise GenerationError(f"A prompt is text, or ids from 0 to {n_rows - 1}, and {quoted(id)} is neither.")
    whole = [int(id) for id in listed]
    check_ids(whole, n_rows)
    return whole


def check_texts(texts: Sequence[Sequence[int]], n_rows: int, limit: int, before: Sequence[int] | None = None) -> None:
    """Refuse new tokens of texts, each with so many `before`: ids without a row, and more than `limit` tokens of a text,
    which are the positions that there are or what its cache has room for."""
    for ids, length in zip(texts, before or [0] * len(texts), strict=True):
        check_ids(ids, n_rows)
        if length + len(ids) > limit:
            raise TooLong(f"A text has {length + len(ids):,} tokens, but there is room for {limit:,}: shorten it.")
