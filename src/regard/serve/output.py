"""From logits to the answer: what the output stage of the page shows, by what head the model has.

For text, the very functions that generate it: logits over the temperature, softmax over the whole vocabulary, the cuts, and
the seeded draw. What is drawn here is what `generate` draws with the same settings at this place.
"""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.api import Model
from regard.engine.decode import numbers
from regard.engine.rank import ranked
from regard.engine.sample import RowState, distribution, next_ids, random_bits
from regard.engine.settings import Settings
from regard.errors import TaskError, TokenizerError
from regard.explain.outcome import tagged
from regard.explain.trace import Trace

MOST_ROWS = 200


@dataclass(frozen=True)
class Choice:
    """How the next token would be chosen; a setting that is not given is off, and no seed means no draw."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def settings(self, model: Model) -> Settings:
        return Settings(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed or 0,
            suppress_tokens=model.unspeakable,
        )


def output(model: Model, trace: Trace, position: int | None, choice: Choice) -> dict[str, Any]:
    head = model.spec.head.kind
    if head == "none":
        raise TaskError(f"{model.name} has no head: its output is the states themselves, the last block's out.")
    logits = trace["logits"]
    if head == "classify":
        return classes("class", logits, model.spec.head.labels)
    if position is None and head == "mlm" and model.tokenizer.mask_id in trace.ids:
        position = trace.ids.index(model.tokenizer.mask_id)
    if position is None and head == "tag":
        position = next(iter(tagged(trace)), None)  # the first word
    place = at(position, len(logits))
    if head == "tag":
        return classes("tags", logits[place], model.spec.head.labels) | {
            "position": place,
            "tagged": place in tagged(trace),
        }
    if head == "mlm":
        return words(model, logits[place], RowState(choice.settings(model), []), None, "mask") | {"position": place}
    row = history(trace, place, choice.settings(model))
    drawn = draw(model, logits[place], row, choice)
    return words(model, logits[place], row, drawn, "next") | {"position": place}


def at(position: int | None, length: int) -> int:
    """The last one unless it is said."""
    place = length - 1 if position is None else position
    if not 0 <= place < length:
        raise TaskError(f"position is {position}, but the run has {length} of them, counted from 0.")
    return place


def classes(kind: str, logits: Tensor, labels: tuple[str, ...]) -> dict[str, Any]:
    P = logits.double().softmax(-1)
    rows = [
        {"piece": labels[i], "id": i, "logit": float(logits[i]), "scaled": float(logits[i]), "kept": True}
        | {"probability": float(P[i]), "final": float(P[i])}
        for i in logits.argsort(descending=True, stable=True).tolist()
    ]
    return {
        "kind": kind,
        "rows": rows,
        "kept": len(rows),
        "vocabulary": len(rows),
        **denominator(logits),
        "drawn": None,
    }


def words(model: Model, logits: Tensor, row: RowState, drawn: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    """The likeliest tokens before and after the cuts; probabilities are over the whole vocabulary."""
    temperature = row.settings.temperature or 1.0
    scaled = logits.double() / temperature
    P, final = scaled.softmax(-1), distribution(numbers(logits[None]), [row])[0]
    _, ids = ranked(numbers(logits[None]), min(MOST_ROWS, len(logits)))
    rows = [
        {"piece": piece(model, i), "id": i, "logit": float(logits[i]), "scaled": float(scaled[i])}
        | {"kept": bool(final[i] > 0), "probability": float(P[i]), "final": float(final[i])}
        for i in ids[0].tolist()
    ]
    counts = {"kept": int((final > 0).sum()), "vocabulary": len(logits)}
    return {"kind": kind, "rows": rows, **counts, **denominator(scaled), "drawn": drawn}


def denominator(scaled: Tensor) -> dict[str, float]:
    """Of the softmax: probability = e^(scaled - highest) / sum."""
    highest = scaled.double().max()
    return {"highest": float(highest), "sum": float((scaled.double() - highest).exp().sum())}


def history(trace: Trace, place: int, settings: Settings) -> RowState:
    """The row as it was when this token was chosen: the draw depends on how many were generated before it."""
    ids = (trace.target_ids or trace.ids)[: place + 1]
    generated = sum(1 for step in trace.steps if step.position <= place)
    row = RowState(settings, ids[: len(ids) - generated])
    for id in ids[len(ids) - generated :]:
        row.push(id)
    return row


def draw(model: Model, logits: Tensor, row: RowState, choice: Choice) -> dict[str, Any] | None:
    if choice.seed is None and choice.temperature > 0:
        return None
    ids, logprobs = next_ids(numbers(logits[None]), [row.fork()])
    u = random_bits(row.settings.seed or 0, 0, row.step) / 2**64 if choice.temperature > 0 else None
    id = int(ids[0])
    return {"id": id, "piece": piece(model, id), "probability": math.exp(logprobs[0]), "u": u, "step": row.step}


def piece(model: Model, id: int) -> str:
    """Rows of the vocabulary beyond the tokenizer's have no spelling."""
    try:
        return model.tokenizer.pieces([id])[0]
    except TokenizerError:
        return f"#{id}"
