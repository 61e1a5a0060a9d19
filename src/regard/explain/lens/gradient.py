"""Gradient × input: how much an answer depends on each token's embedding.

In: a `Trace`. The network is run again in PyTorch, with the trace's own edits, and differentiated back to the embeddings.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.explain.lens.ablation import Rerun
from regard.explain.predictions import answer_id, answer_row
from regard.explain.trace import Array, Trace
from regard.model.build import module_of


@dataclass(frozen=True)
class Saliency:
    """Per token: x · ∂logit/∂x with its embedding x. Positive: the token supports the answer `id`."""

    id: int
    source: Array
    target: Array | None


def gradient_times_input(trace: Trace, token: int = -1, id: int | None = None) -> Saliency:
    """From the logit of the likeliest answer (or of `id`) back to each token's embedding."""
    row, id = answer_row(trace, token), answer_id(trace, token, id)
    observer = Differentiating(trace, row)
    with torch.enable_grad():
        observer.run()
        leaves = observer.embeddings
        logit = observer.logits[..., id].sum()
        gradients = torch.autograd.grad(logit, list(leaves.values()), allow_unused=True, materialize_grads=True)
    shares = []
    for (name, x), g in zip(leaves.items(), gradients, strict=True):
        share = np.zeros(trace.shape(name)[0], np.float32)  # tokens after the causal prefix have none
        share[: len(x)] = (x * g).sum(-1).detach().numpy()
        shares.append(share)
    return Saliency(id, shares[0], shares[1] if len(shares) > 1 else None)


@dataclass
class Differentiating(Rerun):
    """Observer that makes the embeddings leaves of the autograd graph."""

    embeddings: dict[str, Tensor] = field(default_factory=dict)

    def run(self) -> None:
        run = self.prefix.run()
        run.forward(self, array=torch.tensor, net=module_of(run.net))

    def change(self, name: str, x: Any) -> Any:
        if name in self.trace.graph.nodes and self.trace.graph[name].looks_up_ids:
            x = self.embeddings[name] = x.detach().requires_grad_()
        return x
