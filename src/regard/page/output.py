"""The output stage of the page: from logits to probabilities and the chosen token, for each kind of head.

For text it uses the functions that generate it: logits over the temperature, softmax over the whole vocabulary, top-k,
top-p and min-p, and the seeded draw. The token drawn here is the one that `generate` draws with the same settings at this
position.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.engine.sampling import RowState, distribution, next_ids, random_bits
from regard.engine.settings import Settings
from regard.engine.top_k import ranked
from regard.errors import TaskError, TokenizerError
from regard.explain.logits import softmax
from regard.explain.predictions import tagged
from regard.explain.trace import Array, Trace

if TYPE_CHECKING:
    from regard.api import Model

MAX_ROWS = 200


@dataclass(frozen=True)
class SamplingChoice:
    """How the next token is chosen. The defaults filter nothing; without a seed no token is drawn."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def settings(self, model: "Model") -> Settings:
        return Settings(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed or 0,
            suppress_tokens=model.ids_without_token,
        )


def output(model: "Model", trace: Trace, position: int | None, choice: SamplingChoice) -> dict[str, Any]:
    head = model.spec.head.kind
    if head == "none":
        raise TaskError(f"{model.name} has no head: its output is the states themselves, the last block's out.")
    logits = trace["logits"]
    if head == "classify":
        return class_rows("class", logits, model.spec.head.labels)
    if position is None and head == "mlm" and model.tokenizer.mask_id in trace.ids:
        position = trace.ids.index(model.tokenizer.mask_id)
    if position is None and head == "tag":
        position = next(iter(tagged(trace)), None)  # the first word
    position = resolve_position(position, len(logits))
    if head == "tag":
        return class_rows("tags", logits[position], model.spec.head.labels) | {
            "position": position,
            "tagged": position in tagged(trace),
        }
    if head == "mlm":
        return token_rows(model, logits[position], RowState(choice.settings(model), []), None, "mask") | {
            "position": position
        }
    row = history(trace, position, choice.settings(model))
    drawn = draw(model, logits[position], row, choice)
    return token_rows(model, logits[position], row, drawn, "next") | {"position": position}


def resolve_position(position: int | None, length: int) -> int:
    """The position, by default the last one, checked."""
    chosen = length - 1 if position is None else position
    if not 0 <= chosen < length:
        raise TaskError(f"position is {position}, but the run has {length} of them, counted from 0.")
    return chosen


def class_rows(kind: str, logits: Array, labels: tuple[str, ...]) -> dict[str, Any]:
    P = softmax(logits.astype(np.float64))
    rows = [
        {"piece": labels[i], "id": i, "logit": float(logits[i]), "scaled": float(logits[i]), "kept": True}
        | {"probability": float(P[i]), "final": float(P[i])}
        for i in np.argsort(-logits, kind="stable").tolist()
    ]
    return {
        "kind": kind,
        "rows": rows,
        "kept": len(rows),
        "vocabulary": len(rows),
        **denominator(logits),
        "drawn": None,
    }


def token_rows(model: "Model", logits: Array, row: RowState, drawn: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    """The likeliest tokens with their probabilities over the whole vocabulary, before and after top-k, top-p and min-p."""
    temperature = row.settings.temperature or 1.0
    scaled = logits.astype(np.float64) / temperature
    P, final = softmax(scaled), distribution(logits[None], [row])[0]
    _, ids = ranked(logits[None], min(MAX_ROWS, len(logits)))
    rows = [
        {"piece": piece(model, i), "id": i, "logit": float(logits[i]), "scaled": float(scaled[i])}
        | {"kept": bool(final[i] > 0), "probability": float(P[i]), "final": float(final[i])}
        for i in ids[0].tolist()
    ]
    counts = {"kept": int((final > 0).sum()), "vocabulary": len(logits)}
    return {"kind": kind, "rows": rows, **counts, **denominator(scaled), "drawn": drawn}


def denominator(scaled: Array) -> dict[str, float]:
    """The terms of the softmax: probability = e^(scaled - highest) / sum."""
    exact = scaled.astype(np.float64)
    return {"highest": float(exact.max()), "sum": float(np.exp(exact - exact.max()).sum())}


def history(trace: Trace, position: int, settings: Settings) -> RowState:
    """The row's state when this token was chosen: the draw depends on how many were generated before it."""
    ids = (trace.target_ids or trace.ids)[: position + 1]
    generated = sum(1 for step in trace.steps if step.position <= position)
    row = RowState(settings, ids[: len(ids) - generated])
    for id in ids[len(ids) - generated :]:
        row.push(id)
    return row


def draw(model: "Model", logits: Array, row: RowState, choice: SamplingChoice) -> dict[str, Any] | None:
    if choice.seed is None and choice.temperature > 0:
        return None
    ids, logprobs = next_ids(logits[None], [row.fork()])
    u = random_bits(row.settings.seed or 0, 0, row.step) / 2**64 if choice.temperature > 0 else None
    id = int(ids[0])
    return {"id": id, "piece": piece(model, id), "probability": math.exp(logprobs[0]), "u": u, "step": row.step}


def piece(model: "Model", id: int) -> str:
    """The token's text; ids beyond the tokenizer's vocabulary have none and get a number."""
    try:
        return model.tokenizer.pieces([id])[0]
    except TokenizerError:
        return f"#{id}"
