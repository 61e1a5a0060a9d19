"""Logit lens: predictions from intermediate states, by the final norm and the unembedding (nostalgebraist 2020)."""

from dataclasses import dataclass

from regard.errors import TaskError
from regard.explain.activation_cache import is_block
from regard.explain.predictions import Guess, answer_row, likeliest
from regard.explain.trace import Array, Trace
from regard.model.wiring import wiring


@dataclass(frozen=True)
class LensRow:
    """A node of the residual stream, and the likeliest tokens predicted from it."""

    node: str
    top: list[Guess]


def logit_lens(trace: Trace, token: int = -1, most: int = 5) -> list[LensRow]:
    """Predictions after the embeddings and after each block. The last row is the model's own."""
    row, (embed, *blocks) = answer_row(trace, token), stream(trace)
    nodes = list(trace.graph.nodes)
    changed = [name for name in nodes[nodes.index(blocks[-1]) + 1 :] if name in trace.edited]
    if changed:
        raise TaskError(
            f"An edit changed a node after the last block ({changed[0]}). The logit lens applies the unedited head, so its "
            "last row would differ from this run; remove that edit."
        )
    rows = []
    for node in (embed, *blocks):
        X = trace[node][row[0], None] if row else trace[node]  # the states that the answer is computed from
        rows.append(LensRow(node, likeliest(trace, head_logits(trace, X).flatten(), most)))
    return rows


def stream(trace: Trace) -> list[str]:
    """The residual stream of the last stack: the input of its first block, and the output of each block."""
    parts = wiring(trace.graph)
    if not parts.blocks:
        raise TaskError("The logit lens needs a residual stream between blocks, and a recurrent network has none.")
    stack = parts.blocks[-1].stack
    return [parts.embeddings[stack][-1], *(block.out for block in parts.blocks if block.stack == stack)]


def head_logits(trace: Trace, X: Array) -> Array:
    """States (N, d) of any depth → logits, by what follows the last block."""
    observer = HeadOnly(X)
    trace.run.forward(observer)
    return observer.logits


class HeadOnly:
    """Observer of a run in which embeddings and blocks are replaced by given states: only what follows is computed."""

    logits: Array

    def __init__(self, states: Array) -> None:
        self.states = states

    def known(self, place: str) -> Array | None:
        return self.states if is_block(place) or place.rpartition(".")[2] == "embed" else None

    def __call__(self, name: str, x: Array) -> Array:
        if name == "logits":
            self.logits = x
        return x
