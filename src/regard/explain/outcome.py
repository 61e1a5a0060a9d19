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
