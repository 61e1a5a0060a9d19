"""`model.trace`: a forward pass over a text, a text and its continuation, or a source and its target, as a `Trace`."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.api.inference import batch
from regard.errors import TaskError
from regard.explain import trace as traces
from regard.explain.trace import MEMORY_LIMIT, Step

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.engine.generate import Token


class Trace(traces.Trace):
    """The trace that `model.trace` returns. It can also be exported as a page."""

    def html(self, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Path:
        """Write one HTML file with the page and this trace, which opens from disk without a network.

        progress: called with the heads done and all heads, while each head is ablated in turn.
        """
        from regard.page.export import write_html

        return write_html(self, Path(path), progress=progress)

    def _repr_html_(self) -> str:
        from regard.page.export import notebook_frame

        return notebook_frame(self)


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
    model.settings.replace(**sampling)  # refuses an unknown keyword even if nothing is generated
    if target is not None and (spec.kind != "encoder-decoder" or max_new_tokens):
        wrong = "give it, or max_new_tokens, not both" if max_new_tokens else f"{model.name} is not one"
        raise TaskError(f"Only an encoder-decoder has a target: {wrong}.")
    ids, target_ids = ids_of(model, text, spec.source_vocab, spec.source_context) or [model.first_token()], None
    generated: list[Token] = []
    generates = spec.kind == "encoder-decoder" and spec.head.kind == "lm" and target is None
    if generates or max_new_tokens:
        limit = {"max_new_tokens": max_new_tokens} if max_new_tokens else {}
        generated = list(model.stream_tokens(ids, alternatives=10, **{"temperature": 0, **limit, **sampling}))
    if spec.kind == "encoder-decoder":
        start, given = model.settings.decoder_start_token_id or 0, ids if target is None else target
        after = [token.id for token in generated] if generates else ids_of(model, given, spec.n_vocab, spec.context - 1)
        target_ids = [start, *(after[:-1] if after and after[-1] in spec.eos_ids else after)]
    else:
        ids = [*ids, *(token.id for token in generated)]
    found = traces.trace(
        model.reference,
        ids,
        model.opened.tokenizer,
        target_ids,
        sites=sites,
        memory_limit=MEMORY_LIMIT if memory_limit is None else memory_limit,
        name=model.name,
        text=text if isinstance(text, str) else None,
        version=model.version,
        kind=Trace,
    )
    assert isinstance(found, Trace)
    begin = 1 if target_ids is not None else len(ids) - len(generated)
    for i, token in enumerate(generated):
        likely = tuple((found.pieces([id])[0], id, math.exp(p)) for id, p in token.alternatives)
        piece = found.pieces([token.id])[0]
        found.steps.append(Step(begin + i, token.id, piece, math.exp(token.logprob), likely, begin + i - 1 if i else 0))
    return found.edit(edits) if edits else found


def ids_of(model: "Model", given: str | Sequence[int], n_vocab: int, limit: int) -> list[int]:
    """A text's ids, or the given ids, checked. For masked language models the text may contain the mask token."""
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
