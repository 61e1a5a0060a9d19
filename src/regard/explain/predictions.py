"""The predictions of a run: next tokens, tokens for a mask, classes or tags, each with its name.

In: a `Trace`. Out: which row of its logits holds the answer (prediction) at a token, and names for its entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import NotFound, TaskError
from regard.explain.logits import largest, softmax
from regard.explain.trace import Array, Trace


@dataclass(frozen=True)
class Guess:
    """A predicted token, class or tag with its probability."""

    piece: str
    id: int
    probability: float


def first_pieces(trace: Trace) -> list[int | None] | None:
    """For each token of a tagged text, the token whose prediction is its word's tag: the word's first piece.

    None for a token that is not part of a word ([CLS], [SEP]), and instead of the list if the model does not tag.
    """
    if trace.spec.head.kind != "tag":
        return None
    tokenizer, ids = trace.tokenizer, trace.ids
    if tokenizer is None:
        return [*range(len(ids))]
    words = tokenizer.words(trace.run.text or tokenizer.decode(ids))
    again, index = tokenizer.encode_words([word for word, _, _ in words])
    if again == ids:
        first = {word: index.index(word) for word in index if word is not None}
        return [None if word is None else first[word] for word in index]
    around = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    return [None if id in around else i for i, id in enumerate(ids)]


def tagged(trace: Trace) -> list[int]:
    """The tokens whose prediction is a tag: the first piece of each word."""
    return [i for i, first in enumerate(first_pieces(trace) or []) if first == i]


def answer_positions(trace: Trace) -> list[int]:
    """The tokens whose prediction is the run's answer: the last, the masks, the words of a tagged text, or all."""
    n, kind = trace.shape("logits")[0], trace.spec.head.kind
    if kind == "lm" and trace.target_tokens is None:
        return [n - 1]
    if kind == "tag":
        return tagged(trace)
    mask = trace.tokenizer.mask_id if trace.tokenizer and kind == "mlm" else None
    return [i for i, id in enumerate(trace.ids) if id == mask] or list(range(n))


def position_caption(trace: Trace, token: str) -> str:
    """The caption of a prediction: "after cat", "in the place of [MASK]", "of cat"."""
    return f"{ {'mlm': 'in the place of', 'tag': 'of'}.get(trace.spec.head.kind, 'after') } {token}"


def answer_row(trace: Trace, token: int = -1) -> tuple[int, ...]:
    """The index of the answer at a token in the logits: its row, or () if there is one answer for the whole text."""
    if "logits" not in trace:
        raise TaskError("This model has no head: it ends with states, and there are no logits.")
    shape = trace.shape("logits")
    if len(shape) == 1:
        return ()
    if not -shape[0] <= token < shape[0]:
        raise NotFound(f"There is no token {token}; the predictions are at tokens 0 to {shape[0] - 1}.")
    return (token % shape[0],)


def answer(trace: Trace, token: int = -1) -> Array:
    """The logits at a token, (n_vocab,) or (n_labels,)."""
    return trace["logits"][answer_row(trace, token)].astype(np.float64)


def answer_id(trace: Trace, token: int, id: int | None) -> int:
    """The id, or if None the likeliest one of the run; checked."""
    logits = answer(trace, token)
    if id is None:
        return int(logits.argmax())
    if not 0 <= id < len(logits):
        raise NotFound(f"There is no id {id}; the last is {len(logits) - 1}.")
    return id


def names(trace: Trace, ids: Sequence[int]) -> list[str]:
    """Names of outcomes: labels if the model has them, otherwise the text of tokens."""
    labels = trace.spec.head.labels
    if labels and trace.shape("logits")[-1] == len(labels):
        return [labels[i] for i in ids]
    return trace.tokenizer.pieces(list(ids)) if trace.tokenizer else [str(i) for i in ids]


def likeliest(trace: Trace, logits: Array, most: int) -> list[Guess]:
    """The `most` likeliest outcomes of a row of logits, with their probabilities."""
    p, ids = largest(softmax(logits.astype(np.float64)), most)
    pieces = names(trace, ids.tolist())
    return [Guess(piece, id, value) for piece, id, value in zip(pieces, ids.tolist(), p.tolist(), strict=True)]
