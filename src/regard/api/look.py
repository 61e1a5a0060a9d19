"""A `Model`'s run as a `Trace`: over a text, over what the model goes on to write, or over a source and its target."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.api.read import batch
from regard.errors import TaskError
from regard.explain.trace import MEMORY_LIMIT, Step, Trace
from regard.explain.trace import trace as trace_network

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.engine.generate import Token


def trace(
    model: "Model",
    text: str | Sequence[int],
    target: str | Sequence[int] | None,
    max_new_tokens: int,
    sites: Sequence[str] | None,
    memory_limit: int | None,
    edits: Mapping[str, Any] | None,
    sampling: dict[str, Any],
) -> Trace:
    spec = model.spec
    model.settings.replace(**sampling)  # refuses a keyword that means nothing, also where nothing is written
    if target is not None and (spec.kind != "encoder-decoder" or max_new_tokens):
        wrong = "it is given or written (max_new_tokens)" if max_new_tokens else f"{model.name} has none"
        raise TaskError(f"A target is what an encoder-decoder is taken to have written: {wrong}.")
    ids, target_ids = ids_of(model, text, spec.source_vocab, spec.source_context) or [model.first_token()], None
    written: list[Token] = []
    writes = spec.kind == "encoder-decoder" and spec.head.kind == "lm" and target is None
    if writes or max_new_tokens:
        most = {"max_new_tokens": max_new_tokens} if max_new_tokens else {}
        written = list(model.stream_tokens(ids, alternatives=10, **{"temperature": 0, **most, **sampling}))
    if spec.kind == "encoder-decoder":
        start, given = model.settings.decoder_start_token_id or 0, ids if target is None else target
        said = [token.id for token in written] if writes else ids_of(model, given, spec.n_vocab, spec.context - 1)
        target_ids = [start, *(said[:-1] if said and said[-1] in spec.eos_ids else said)]
    else:
        ids = [*ids, *(token.id for token in written)]
    found = trace_network(
        model.net,
        ids,
        model.opened.tokenizer,
        target_ids,
        sites=sites,
        memory_limit=MEMORY_LIMIT if memory_limit is None else memory_limit,
        name=model.name,
        text=text if isinstance(text, str) else None,
    )
    begin = 1 if target_ids is not None else len(ids) - len(written)
    for i, token in enumerate(written):
        likely = tuple((found.pieces([id])[0], id, math.exp(p)) for id, p in token.alternatives)
        piece = found.pieces([token.id])[0]
        found.steps.append(Step(begin + i, token.id, piece, math.exp(token.logprob), likely, begin + i - 1 if i else 0))
    return found.edit(edits) if edits else found


def ids_of(model: "Model", given: str | Sequence[int], n_vocab: int, limit: int) -> list[int]:
    """A text's ids, or the given ones, checked. Where masks are filled, they may be spelt in the text."""
    if isinstance(given, str):
        ids = model.tokenizer.encode(given, allow_control=model.spec.head.kind == "mlm", most=limit)
    else:
        try:
            ids = [operator.index(i) for i in given]
        except TypeError:
            raise TaskError("What is traced is a text, or token ids, which are whole numbers.") from None
    if ids:
        batch(model, ids, "ids", n_vocab, limit)
    return ids
