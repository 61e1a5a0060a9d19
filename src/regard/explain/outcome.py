"""What a run says in the end: next tokens, words for a mask, classes or tags, each by its name.

In: a `Trace`. Out: the row of its logits that answers at a token, and names for its entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.errors import NotFound, TaskError
from regard.explain.trace import Trace


@dataclass(frozen=True)
class Guess:
    piece: str
    id: int
    probability: float


def deciding(trace: Trace) -> list[int | None] | None:
    """Of a tagged text, for each token the one whose answer is its word's tag: the word's first piece.

    None for a token that is part of no word ([CLS], [SEP]), and for all where the model does not tag.
    """
    if trace.net.spec.head.kind != "tag":
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
    """The tokens whose answer is a tag."""
    return [i for i, first in enumerate(deciding(trace) or []) if first == i]


def answering(trace: Trace) -> list[int]:
    """The tokens whose outcome is the run's answer: the last of a text, the masks, a tagged text's words, or all."""
    n, kind = trace.shape("logits")[0], trace.net.spec.head.kind
    if kind == "lm" and trace.target_tokens is None:
        return [n - 1]
    if kind == "tag":
        return tagged(trace)
    mask = trace.tokenizer.mask_id if trace.tokenizer and kind == "mlm" else None
    return [i for i, id in enumerate(trace.ids) if id == mask] or list(range(n))


def whose(trace: Trace, token: str) -> str:
    """Which answer a row of logits is, in words."""
    return f"{ {'mlm': 'in the place of', 'tag': 'of'}.get(trace.net.spec.head.kind, 'after') } {token}"


def answer_row(trace: Trace, token: int = -1) -> tuple[int, ...]:
    """Where in the logits the answer at a token stands: its row, or () where there is one answer for the whole text."""
    if "logits" not in trace:
        raise TaskError("This model ends with states and has no head: there are no logits to ask about.")
    shape = trace.shape("logits")
    if len(shape) == 1:
        return ()
    if not -shape[0] <= token < shape[0]:
        raise NotFound(f"There is no token {token}; the answers are at tokens 0 to {shape[0] - 1}.")
    return (token % shape[0],)


def answer(trace: Trace, token: int = -1) -> Tensor:
    """The logits at a token, (n_vocab,) or (n_labels,)."""
    return trace["logits"][answer_row(trace, token)].double()


def answer_id(trace: Trace, token: int, id: int | None) -> int:
    """The id that is asked about: what the run itself finds likeliest, unless given."""
    logits = answer(trace, token)
    if id is None:
        return int(logits.argmax())
    if not 0 <= id < len(logits):
        raise NotFound(f"There is no id {id}; they end at {len(logits) - 1}.")
    return id


def names(trace: Trace, ids: Sequence[int]) -> list[str]:
    """What outcomes are called: labels where the model has them, pieces of text otherwise."""
    labels = trace.net.spec.head.labels
    if labels and trace.shape("logits")[-1] == len(labels):
        return [labels[i] for i in ids]
    return trace.tokenizer.pieces(list(ids)) if trace.tokenizer else [str(i) for i in ids]


def likeliest(trace: Trace, logits: Tensor, most: int) -> list[Guess]:
    """The largest entries of a row of logits as probabilities, largest first."""
    p, ids = logits.double().softmax(-1).topk(min(most, len(logits)))
    pieces = names(trace, ids.tolist())
    return [Guess(piece, id, value) for piece, id, value in zip(pieces, ids.tolist(), p.tolist(), strict=True)]
