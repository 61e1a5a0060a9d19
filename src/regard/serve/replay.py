"""A text read again: the attention of an answer's tokens, and the log-probabilities of a prompt's.

Fast engines keep no attention. So an answer whose attention is asked for is run once more by the reference, watched, and it
is checked that the reference would have chosen the same tokens with the same settings and the same random numbers. A
prompt's log-probabilities are those of whichever engine writes.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.api import Model
from regard.engine.generate import Answer, Token
from regard.engine.rank import Floats
from regard.engine.sample import RowState, logprobs, next_ids
from regard.engine.schedule import likeliest
from regard.errors import GenerationError
from regard.serve.wire import Explain

if TYPE_CHECKING:  # PyTorch comes with the first text that it has to read
    from torch import Tensor

    from regard.explain.trace import Trace

MOST_NUMBERS = 1_000_000  # in one answer
ROWS = 64  # of logits at once: as much as a chunk of a prompt, so that who is writing waits no longer


def check_explain(wish: Explain, model: Model, rows: list[RowState]) -> tuple[list[int], list[int]]:
    """The layers and heads that are wanted, refused if they are not there or too much to send."""
    stack = model.spec.decoder
    assert stack is not None
    layers, heads = list(range(stack.n_layers)), list(range(stack.attention.heads))
    wanted = (layers if wish.layers is None else wish.layers, heads if wish.heads is None else wish.heads)
    for what, there, asked in zip(("layers", "heads"), (layers, heads), wanted, strict=True):
        for each in asked:
            if each not in there:
                raise GenerationError(f"explain.{what} has {each}, but {model.name} has those from 0 to {there[-1]}.")
    cells = sum((row.limit or 0) * (row.prompt_length + (row.limit or 0)) for row in rows)
    if cells * len(wanted[0]) * len(wanted[1]) > MOST_NUMBERS:
        raise GenerationError(
            f"explain would return up to {cells * len(wanted[0]) * len(wanted[1]):,} numbers, and {MOST_NUMBERS:,} can be "
            "returned: ask for fewer layers, heads or tokens."
        )
    return wanted


def explain(model: Model, row: RowState, answer: Answer, layers: list[int], heads: list[int]) -> dict[str, Any]:
    """The attention with which each token of an answer was written; `answers.Explained` says what is what."""
    prompt = row.ids[: row.prompt_length]
    tokens = model.tokenizer.pieces([*prompt, *answer.ids])
    told = {"tokens": tokens, "answer_begins": len(prompt), "layers": layers, "heads": heads}
    if not answer.ids:
        empty: list[Any] = [[[] for _ in heads] for _ in layers]
        return {**told, "attention": empty, "agrees": True, "differs_at": None, "largest_logprob_difference": 0.0}
    sites = [f"decoder.{layer}.attention.weights" for layer in layers]
    trace = model.trace([*prompt, *answer.ids[:-1]], sites=["logits", *sites])  # nothing followed the last token
    written = slice(len(prompt) - 1, None)
    attention = [[rounded(trace[site][head, written]) for head in heads] for site in sites]
    return {**told, "attention": attention, **agreement(trace, row, answer)}


def rounded(weights: "Tensor") -> list[list[float]]:
    """To as many digits as they have: they lie between 0 and 1."""
    return [[round(weight, 7) for weight in each] for each in weights.tolist()]


def agreement(trace: "Trace", row: RowState, answer: Answer) -> dict[str, Any]:
    """Where the reference's logits first lead to another token, and how far its log-probabilities of what was written are
    from those told. With weights of 8 or 4 bits the two differ a little, and so may a choice between near equals."""
    from regard.engine.decode import numbers

    again = RowState(row.settings, row.ids[: row.prompt_length], sample=row.sample, limit=row.limit)
    logits = numbers(trace["logits"][again.prompt_length - 1 :])
    apart = logprobs(logits, np.array(answer.ids)[:, None])[:, 0] - np.array(answer.logprobs, np.float32)
    chosen = (int(next_ids(logits[i : i + 1], [again])[0][0]) for i in range(len(answer.ids)))
    differs = next((i for i, (ours, theirs) in enumerate(zip(chosen, answer.ids, strict=True)) if ours != theirs), None)
    return {
        "agrees": differs is None,
        "differs_at": differs,
        "largest_logprob_difference": float(np.abs(apart).max()),
    }


def prompt_tokens(model: Model, ids: list[int], alternatives: int | None, *, control: bool) -> list[Token]:
    """A prompt's tokens, each with its log-probability given those before it; the first has none, and says so by NaN.

    `alternatives` is None where no log-probabilities are wanted. `control`: the prompt was given as ids, so that control
    tokens are part of its text; to a text they were added, and have none in it.
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
        token.alternatives = likeliest(row, alternatives)
    return tokens


def every_logits(model: Model, ids: list[int]) -> Iterator[Floats]:
    """The logits of what follows each token of a text, a block of rows at a time."""
    if (engine := model.engine) is not None:
        text = engine.text(len(ids))
        for first in range(0, len(ids), ROWS):
            block = ids[first : first + ROWS]
            yield engine.write([text], [block], text.capacity, wanted=[len(block)])
    else:
        yield from reference_logits(model, ids)


def reference_logits(model: Model, ids: list[int]) -> Iterator[Floats]:
    import torch

    from regard.engine.decode import numbers
    from regard.model.transformer import DecoderOnly

    net = model.net
    assert isinstance(net, DecoderOnly)
    with torch.inference_mode():
        states = net.states(torch.tensor([ids], device=model.device))[0]  # (N, d)
    for rows in states.split(ROWS):
        with torch.inference_mode():
            logits = numbers(net.logits(rows))
        yield logits
