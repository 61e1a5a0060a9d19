"""Texts as ids that a model can read whole. Longer ones are refused or, where that is wished for, cut: never silently."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from regard.api.ask import prompts_of
from regard.errors import TooLong

if TYPE_CHECKING:
    from regard.api.model import Model

log = logging.getLogger("regard")
_noted: ContextVar[list[int] | None] = ContextVar("noted", default=None)


def encode_all(model: "Model", texts: Sequence[str | Sequence[int]]) -> list[list[int]]:
    """The ids of each text; one that is given as ids is taken as it is."""
    encoded = iter(model.tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
    rows = [next(encoded) if isinstance(text, str) else prompts_of(model, text, False)[0] for text in texts]
    return [ids or [model.first_token()] for ids in rows]


def fit(model: "Model", rows: list[list[int]], truncate: bool = False, limit: int | None = None) -> list[list[int]]:
    """Rows of at most as many tokens as the model reads. limit: the length that its files say texts are cut to, if any."""
    most = min(limit or model.spec.context, model.spec.source_context)
    long = [i for i, ids in enumerate(rows) if len(ids) > most]
    if long and not truncate and limit is None:
        which = f"Text {long[0]}" if len(rows) > 1 else "The text"
        raise TooLong(
            f"{which} has {len(rows[long[0]]):,} tokens, but {model.name} reads at most {most:,}: shorten it, or have it "
            "cut by truncate=True (on the command line --truncate)."
        )
    if long and (noted := _noted.get()) is not None:
        noted += long
    elif long:
        log.warning("%d of %d texts have more than %d tokens and were cut.", len(long), len(rows), most)
    ends = {model.tokenizer.sep_id, model.tokenizer.eos_id}  # which stay
    return [ids if len(ids) <= most else [*ids[: most - 1], ids[-1]] if ids[-1] in ends else ids[:most] for ids in rows]


@contextmanager
def noting_cuts() -> Iterator[list[int]]:
    """The numbers of the texts that are cut, noted here instead of in the log."""
    noted: list[int] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
