"""Ablation: how much each head matters for an answer.

In: a `Trace`. The network is run again, with the trace's own edits, once per attention site: row h of the batch is without
head h. In a causal stack only the tokens up to the answer are run.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from regard.errors import TaskError
from regard.explain.activation_cache import is_block
from regard.explain.lens.causal_prefix import CausalPrefix, prefix_of
from regard.explain.logits import log_softmax
from regard.explain.predictions import answer, answer_id, answer_row
from regard.explain.trace import Array, Trace, save_for_edits
from regard.model.graph import Site


@dataclass
class Rerun(ABC):
    """Observer of a run up to the logits of one answer; once tokens are independent, only one is computed."""

    trace: Trace
    row: tuple[int, ...]
    logits: Array = field(init=False)  # (B, n_vocab) or (B, n_labels)

    @abstractmethod
    def change(self, name: str, x: Array) -> Array: ...

    def __call__(self, name: str, x: Array) -> Array:
        edits = self.trace.run.edits
        x = self.change(name, x if edits is None else edits(name, x))
        if name == self.last_common:
            x = x[..., self.row[0] : self.row[0] + 1, :]
        if name == "logits":
            self.logits = x[..., 0 if self.last_common else self.row[0], :] if self.row else x
        return x

    def run(self) -> None:
        self.prefix.run().forward(self)

    @cached_property
    def prefix(self) -> CausalPrefix:
        whole = not self.row or self.trace.run.edits is not None
        return CausalPrefix(self.trace) if whole else prefix_of(self.trace, self.row[0])

    @cached_property
    def last_common(self) -> str | None:
        """The node after which no tokens are mixed: the sum after the last attention; with edits, the last states.

        None if the answer is computed from all tokens, or if an edit of the logits needs all of them.
        """
        edits, graph = self.trace.run.edits, self.trace.graph
        if not self.row or (edits is not None and "logits" in edits.nodes()):
            return None
        logits = graph["logits"]
        return graph.last_common(logits.axes[0]) if edits is None else logits.inputs[0]


# ── one head at a time ──────────────────────────────────────────────────────────────────────────────────────────────


def ablation(
    trace: Trace, token: int = -1, id: int | None = None, sites: Collection[str] | None = None
) -> dict[str, Array]:
    """By site, (h,): the change of the log-probability of the likeliest answer (or of `id`) when a head's Z is zero.

    Negative: the head supports the answer. sites: which ones; all by default. The same as
    `trace.edit({"decoder.0.attention.head.3": "zero"})` for each head.
    """
    if trace.spec.recurrent is not None:
        raise TaskError("A recurrent network has no heads to ablate.")
    row, id = answer_row(trace, token), answer_id(trace, token, id)
    before = log_softmax(answer(trace, token))[id]
    effects = {}
    for site in trace.graph.sites:
        if sites is None or site.site in sites:
            observer = Ablating(trace, row, site)
            observer.run()
            after = log_softmax(observer.logits.astype(np.float64))[:, id]
            effects[site.site] = (after - before).astype(np.float32)
    return effects


@dataclass
class Ablating(Rerun):
    """From a site on, row h of the batch is without head h. The blocks before it are not run again."""

    site: Site

    def known(self, place: str) -> Array | None:
        if not is_block(place) or depth(place) >= depth(f"{self.site.stack}.{self.site.layer}"):
            return None
        out = self.prefix.of(f"{place}.out")
        save_for_edits(self.trace.run.edits, f"{place}.out", out)
        return out

    def change(self, name: str, x: Array) -> Array:
        if name != self.trace.graph.mix_of(self.site).name:
            return x
        others = 1 - np.eye(self.site.heads, dtype=x.dtype)  # (h ablated, h)
        return x * others[:, :, None, None]


def depth(block: str) -> tuple[bool, int]:
    """For comparing blocks in execution order: the encoder before the decoder."""
    stack, layer = block.split(".")
    return stack == "decoder", int(layer)
