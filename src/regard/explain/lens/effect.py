"""What does the answer depend on? Take a head away and see; or ask the gradient.

In: a `Trace`. Both run the network again, with the trace's own edits: on all of a site's heads at once, each missing in one
row of the batch; or with gradients, back to the embeddings. Of a causal text, only what the token in question can see.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import TaskError
from regard.explain.graph import Site
from regard.explain.held import is_block
from regard.explain.lens.sight import Sight, sight
from regard.explain.outcome import answer, answer_id, answer_row
from regard.explain.trace import Trace, remember
from regard.model.recurrent import Recurrent


@dataclass
class Rerun(ABC):
    """Watches a run up to the logits of one answer. What other tokens alone lead to is not made."""

    trace: Trace
    row: tuple[int, ...]
    logits: Tensor = field(init=False)  # (B, n_vocab) or (B, n_labels)

    @abstractmethod
    def change(self, name: str, x: Tensor) -> Tensor: ...

    def __call__(self, name: str, x: Tensor) -> Tensor:
        edits = self.trace.run.edits
        x = self.change(name, x if edits is None else edits(name, x))
        if name == self.last_common:
            return x[:, self.row[0], None]
        if name == "logits":
            self.logits = x[:, 0 if self.last_common else self.row[0]] if self.row else x
        return x

    def run(self, gradients: bool = False) -> None:
        self.sight.run().forward(self, gradients)

    @cached_property
    def sight(self) -> Sight:
        whole = not self.row or self.trace.run.edits is not None
        return Sight(self.trace) if whole else sight(self.trace, self.row[0])

    @cached_property
    def last_common(self) -> str | None:
        """The node after which each token is on its own: the sum behind the last attention; behind edits, the last states.

        None where the answer is made of all tokens, or an edit of the logits counts on all of them.
        """
        edits, graph = self.trace.run.edits, self.trace.graph
        if not self.row or (edits is not None and "logits" in edits.nodes()):
            return None
        looking = [f"{site.stack}.{site.layer}.H" for site in graph.sites if site.kind != "cross"]
        return looking[-1] if edits is None and looking else graph["logits"].inputs[0]


# ── without a head ──────────────────────────────────────────────────────────────────────────────────────────────────


def ablation(
    trace: Trace, token: int = -1, id: int | None = None, sites: Collection[str] | None = None
) -> dict[str, Tensor]:
    """By site, (h,): how the log-probability of the likeliest answer (or of `id`) changes when a head's Z is zero.

    Negative: the head was for it. sites: which ones, if not all. It is what
    `trace.edit({"decoder.0.attention.head.3": "zero"})` would show, for each.
    """
    if isinstance(trace.net, Recurrent):
        raise TaskError("A recurrent network has no heads to take away.")
    row, id = answer_row(trace, token), answer_id(trace, token, id)
    before = answer(trace, token).log_softmax(-1)[id]
    effects = {}
    for site in trace.graph.sites:
        if sites is None or site.site in sites:
            watcher = Ablating(trace, row, site)
            watcher.run()
            effects[site.site] = (watcher.logits.double().log_softmax(-1)[:, id] - before).float().cpu()
    return effects


@dataclass
class Ablating(Rerun):
    """From a site on, row h of the batch is without head h. The blocks before it are known."""

    site: Site

    def known(self, place: str) -> Tensor | None:
        if not is_block(place) or depth(place) >= depth(f"{self.site.stack}.{self.site.layer}"):
            return None
        out = self.sight.of(f"{place}.out")
        remember(self.trace.run.edits, f"{place}.out", out)
        return out

    def change(self, name: str, x: Tensor) -> Tensor:
        if name != f"{self.site.site}.Z":
            return x
        kept = 1 - torch.eye(self.site.heads, dtype=x.dtype, device=x.device)  # (h missing, h)
        return x * kept[:, :, None, None]


def depth(block: str) -> tuple[bool, int]:
    """In the order of the run, which reads before it writes."""
    stack, layer = block.split(".")
    return stack == "decoder", int(layer)


# ── the gradient ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Saliency:
    """Per token: x · ∂logit/∂x with its embedding x. Positive: the token speaks for the answer `id`."""

    id: int
    source: Tensor
    target: Tensor | None


def gradient_times_input(trace: Trace, token: int = -1, id: int | None = None) -> Saliency:
    """From the logit of the likeliest answer (or of `id`) back to each token's embedding."""
    row, id = answer_row(trace, token), answer_id(trace, token, id)
    watcher = Differentiating(trace, row)
    watcher.run(gradients=True)
    leaves = watcher.embeddings
    gradients = torch.autograd.grad(
        watcher.logits[0, id], list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    shares = []
    for (name, x), g in zip(leaves.items(), gradients, strict=True):
        share = torch.zeros(trace.shape(name)[0])  # tokens that are not seen have none
        share[: x.shape[1]] = (x * g)[0].sum(-1).detach()
        shares.append(share)
    return Saliency(id, shares[0], shares[1] if len(shares) > 1 else None)


@dataclass
class Differentiating(Rerun):
    """The embeddings become the variables."""

    embeddings: dict[str, Tensor] = field(default_factory=dict)

    def change(self, name: str, x: Tensor) -> Tensor:
        if name.endswith("embed.tokens"):
            x = self.embeddings[name] = x.detach().requires_grad_()
        return x
