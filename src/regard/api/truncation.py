"""Texts as ids that fit into a model's context. Longer ones are refused or, if requested, truncated: never silently."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from regard.api.generation import encode_prompts
from regard.errors import TooLong

if TYPE_CHECKING:
    from regard.api.model import Model

log = logging.getLogger("regard")
_truncated: ContextVar[list[int] | None] = ContextVar("truncated", default=None)


def encode_all(model: "Model", texts: Sequence[str | Sequence[int]]) -> list[list[int]]:
    """The ids of each text; a text given as ids is used as it is."""
    encoded = iter(model.tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
    rows = [next(encoded) if isinstance(text, str) else encode_prompts(model, text, False)[0] for text in texts]
    return [ids or [model.first_token()] for ids in rows]


def fit(model: "Model", rows: list[list[int]], truncate: bool = False, limit: int | None = None) -> list[list[int]]:
    """Rows that fit into the model's context. limit: the length to which the model's files truncate texts, if any."""
    longest = min(limit or model.spec.context, model.spec.source_context)
    long = [i for i, ids in enumerate(rows) if len(ids) > longest]
    if long and not truncate and limit is None:
        which = f"Text {long[0]}" if len(rows) > 1 else "The text"
        raise TooLong(
            f"{which} has {len(rows[long[0]]):,} tokens, but {model.name} reads at most {longest:,}: shorten it, or "
            "have it cut by truncate=True (on the command line --truncate)."
        )
    if long and (truncated := _truncated.get()) is not None:
        truncated += long
    elif long:
        log.warning("%d of %d texts have more than %d tokens and were cut.", len(long), len(rows), longest)
    ends = {model.tokenizer.sep_id, model.tokenizer.eos_id}  # which are preserved
    return [
        ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]] if ids[-1] in ends else ids[:longest]
        for ids in rows
    ]


@contextmanager
def recording_truncation() -> Iterator[list[int]]:
    """Collect the indices of truncated texts in a list, instead of logging a warning."""
    truncated: list[int] = []
    token = _truncated.set(truncated)
    try:
        yield truncated
    finally:
        _truncated.reset(token)
