"""A text read again by the reference: the attention of an answer's tokens, and the log-probabilities of a prompt's.

Fast engines keep no attention. So an answer whose attention is asked for is run once more, watched, and it is checked that
the reference would have chosen the same tokens with the same settings and the same random numbers.
"""

import math
from typing import Any

import torch

from regard.api import Model
from regard.engine.generate import Answer, Token
from regard.engine.sample import RowState, logprobs, next_ids, top_logprobs
from regard.errors import TaskError
from regard.explain.trace import Trace
from regard.model.transformer import DecoderOnly
from regard.serve.wire import Explain

MOST_NUMBERS = 1_000_000  # in one answer
ROWS = 128  # of logits that are held at once


def check_explain(wish: Explain, model: Model, rows: list[RowState]) -> tuple[list[int], list[int]]:
    """The layers and heads that are wanted, refused if they are not there or too much to send."""
    stack = model.spec.decoder
    assert stack is not None
    layers, heads = list(range(stack.n_layers)), list(range(stack.attention.heads))
    wanted = (layers if wish.layers is None else wish.layers, heads if wish.heads is None else wish.heads)
    for what, there, asked in zip(("layers", "heads"), (layers, heads), wanted, strict=True):
        for each in asked:
            if each not in there:
                raise TaskError(f"explain.{what} has {each}, but {model.name} has those from 0 to {there[-1]}.")
    cells = sum((row.limit or 0) * (row.prompt_length + (row.limit or 0)) for row in rows)
    if cells * len(wanted[0]) * len(wanted[1]) > MOST_NUMBERS:
        raise TaskError(
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


def rounded(weights: torch.Tensor) -> list[list[float]]:
    """To as many digits as they have: they lie between 0 and 1."""
    return [[round(weight, 7) for weight in each] for each in weights.tolist()]


def agreement(trace: Trace, row: RowState, answer: Answer) -> dict[str, Any]:
    """Whether the reference's logits lead to the same tokens, and how far its log-probabilities are from those told."""
    again = RowState(row.settings, row.ids[: row.prompt_length], sample=row.sample, limit=row.limit)
    logits, largest = trace["logits"][again.prompt_length - 1 :], 0.0
    for i, id in enumerate(answer.ids):
        chosen, logprob = next_ids(logits[i : i + 1], [again])
        if int(chosen) != id:
            return {"agrees": False, "differs_at": i, "largest_logprob_difference": largest}
        largest = max(largest, abs(float(logprob) - answer.logprobs[i]))
    return {"agrees": True, "differs_at": None, "largest_logprob_difference": largest}


@torch.inference_mode()
def prompt_tokens(model: Model, ids: list[int], alternatives: int | None) -> list[Token]:
    """A prompt's tokens, each with its log-probability given those before it; the first has none, and says so by NaN.

    `alternatives` is None where no log-probabilities are wanted.
    """
    stream = model.tokenizer.stream(skip_special=False)
    texts = [stream.push(id) for id in ids]
    texts[-1] += stream.flush()
    tokens = [Token(0, id, math.nan, text) for id, text in zip(ids, texts, strict=True)]
    if alternatives is None or len(ids) < 2:
        return tokens
    net = model.net
    assert isinstance(net, DecoderOnly)
    states = net.states(torch.tensor([ids], device=model.device))[0]
    for first in range(0, len(ids) - 1, ROWS):
        followers = ids[first + 1 : first + 1 + ROWS]
        logits = net.logits(states[first : first + len(followers)])
        its = logprobs(logits, torch.tensor(followers, device=logits.device)[:, None])[:, 0].tolist()
        likely = top_logprobs(logits, alternatives) if alternatives else None
        for i, logprob in enumerate(its):
            listed = list(zip(likely[0][i].tolist(), likely[1][i].tolist(), strict=True)) if likely else []
            tokens[first + 1 + i].logprob, tokens[first + 1 + i].alternatives = logprob, listed
    return tokens
