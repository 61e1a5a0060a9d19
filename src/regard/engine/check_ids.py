"""Token ids where they enter a network: each must have a row in the embedding, and each position one in its table.

The native engine checks the ids of every sequence, wherever they come from; its C code checks once more and refuses the
batch. The reference and PyTorch networks check where they look up rows (`nn.table`). A tokenizer's vocabulary is compared
with the embedding when a model is opened (`Tokenizer.check_vocab`).
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
    """Validate ids given by the caller, of any type: whole numbers with a row in the embedding."""
    listed = list(ids)
    for id in listed:
        if isinstance(id, bool) or not isinstance(id, Integral):
            raise GenerationError(f"A prompt is text, or ids from 0 to {n_rows - 1}, and {quoted(id)} is neither.")
    whole = [int(id) for id in listed]
    check_ids(whole, n_rows)
    return whole


def check_lengths(
    sequences: Sequence[Sequence[int]], n_rows: int, limit: int, before: Sequence[int] | None = None
) -> None:
    """Refuse ids without a row, and sequences of more than `limit` tokens (the model's positions, or the capacity of the
    KV cache). before: the length of each sequence without its new tokens."""
    for ids, length in zip(sequences, before or [0] * len(sequences), strict=True):
        check_ids(ids, n_rows)
        if length + len(ids) > limit:
            raise TooLong(f"A text has {length + len(ids):,} tokens, but the limit is {limit:,}: shorten it.")
