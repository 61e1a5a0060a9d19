"""The `explain` and `echo` options: the attention of generated tokens, and the log-probabilities of prompt tokens.

The native engine stores no attention weights. So for `explain` the answer is replayed on the reference with a trace, and
it is checked that the reference would have chosen the same tokens with the same settings and random numbers. A prompt's
log-probabilities come from the engine that generates.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.api import Model
from regard.engine.generate import Answer, Token
from regard.engine.sampling import RowState, logprobs, next_ids
from regard.engine.scheduler import top_tokens
from regard.engine.top_k import Floats
from regard.errors import GenerationError
from regard.model.graph import Graph
from regard.model.transformer import DecoderOnly
from regard.serve.request_schema import ExplainOptions

if TYPE_CHECKING:  # imported only when a trace is requested
    from regard.explain.trace import Array, Trace

MAX_NUMBERS = 1_000_000  # in one response
ROWS = 64  # of logits at a time, as in a chunk of a prefill, so that requests being decoded wait no longer than for one


def check_explain(options: ExplainOptions, model: Model, rows: list[RowState]) -> tuple[list[int], list[int]]:
    """The layers and heads that were requested; refused if the model lacks one or the response would be too large."""
    stack = model.spec.decoder
    assert stack is not None
    layers, heads = list(range(stack.n_layers)), list(range(stack.attention.heads))
    requested = (
        layers if options.layers is None else options.layers,
        heads if options.heads is None else options.heads,
    )
    for field, existing, indices in zip(("layers", "heads"), (layers, heads), requested, strict=True):
        for i in indices:
            if i not in existing:
                raise GenerationError(f"explain.{field} has {i}, but {model.name} has those from 0 to {existing[-1]}.")
    cells = sum((row.limit or 0) * (row.prompt_length + (row.limit or 0)) for row in rows)
    total = cells * len(requested[0]) * len(requested[1])
    if total > MAX_NUMBERS:
        raise GenerationError(
            f"explain would return up to {total:,} numbers, and {MAX_NUMBERS:,} can be "
            "returned: ask for fewer layers, heads or tokens."
        )
    return requested


def explain(model: Model, row: RowState, answer: Answer, layers: list[int], heads: list[int]) -> dict[str, Any]:
    """The attention weights with which each token of an answer was generated, as in `response_schema.Explained`."""
    prompt = row.ids[: row.prompt_length]
    tokens = model.tokenizer.pieces([*prompt, *answer.ids])
    common = {"tokens": tokens, "answer_begins": len(prompt), "layers": layers, "heads": heads}
    if not answer.ids:
        empty: list[Any] = [[[] for _ in heads] for _ in layers]
        return {**common, "attention": empty, "agrees": True, "differs_at": None, "largest_logprob_difference": 0.0}
    shares = {site.layer: site.weights for site in Graph(model.spec, 1).sites}
    sites = [shares[layer] for layer in layers]
    trace = model.trace([*prompt, *answer.ids[:-1]], sites=["logits", *sites])  # the last token was never an input
    generated = slice(len(prompt) - 1, None)
    attention = [[rounded(trace[site][head, generated]) for head in heads] for site in sites]
    return {**common, "attention": attention, **agreement(trace, row, answer)}


def rounded(weights: "Array") -> list[list[float]]:
    """To 7 digits, the precision of float32 between 0 and 1."""
    return [[round(weight, 7) for weight in each] for each in weights.tolist()]


def agreement(trace: "Trace", row: RowState, answer: Answer) -> dict[str, Any]:
    """Where the reference's logits first lead to another token, and how far its log-probabilities of the generated tokens
    are from those of the engine. With weights of 8 or 4 bits they differ a little, as may a choice between near ties."""
    again = RowState(row.settings, row.ids[: row.prompt_length], sample=row.sample, limit=row.limit)
    logits = trace["logits"][again.prompt_length - 1 :]
    apart = logprobs(logits, np.array(answer.ids)[:, None])[:, 0] - np.array(answer.logprobs, np.float32)
    chosen = (int(next_ids(logits[i : i + 1], [again])[0][0]) for i in range(len(answer.ids)))
    differs = next((i for i, (ours, theirs) in enumerate(zip(chosen, answer.ids, strict=True)) if ours != theirs), None)
    return {
        "agrees": differs is None,
        "differs_at": differs,
        "largest_logprob_difference": float(np.abs(apart).max()),
    }


def score_prompt(model: Model, ids: list[int], alternatives: int | None, *, control: bool) -> list[Token]:
    """A prompt's tokens, each with its log-probability given those before it; that of the first is NaN.

    alternatives: None if log-probabilities were not requested. control: the prompt was given as ids, so its control tokens
    have text; those that the tokenizer added to a text prompt have none.
    """
    stream = model.tokenizer.stream(skip_special=not control)
    texts = [stream.push(id) for id in ids]
    texts[-1] += stream.flush()
    tokens = [Token(0, id, math.nan, text) for id, text in zip(ids, texts, strict=True)]
    if alternatives is None or len(ids) < 2:
        return tokens
    rows = (block[i : i + 1] for block in every_logits(model, ids[:-1]) for i in range(len(block)))
    for token, row in zip(tokens[1:], rows, strict=True):
        token.logprob = float(logprobs(row, np.array([[token.id]]))[0, 0])
        token.alternatives = top_tokens(row, alternatives)
    return tokens


def every_logits(model: Model, ids: list[int]) -> Iterator[Floats]:
    """The logits (n_vocab) at each position of a sequence, a block of rows at a time."""
    if (engine := model.engine) is not None:
        text = engine.new_cache(len(ids))
        for first in range(0, len(ids), ROWS):
            block = ids[first : first + ROWS]
            yield engine.forward([text], [block], text.capacity, wanted=[len(block)])
    else:
        yield from reference_logits(model, ids)


def reference_logits(model: Model, ids: list[int]) -> Iterator[Floats]:
    net = model.reference
    assert isinstance(net, DecoderOnly)
    states = net.states(np.array(ids))  # (N, d)
    for first in range(0, len(ids), ROWS):
        yield net.logits(states[first : first + ROWS])
