"""Flow along attention: rollout through all layers, and value-weighted contributions of one head.

In: a `Trace`. Out: matrices of queries by keys.
"""

from dataclasses import dataclass

import numpy as np

from regard.errors import NotFound, TaskError
from regard.explain.trace import Array, Trace
from regard.model.graph import Site


def attention_rollout(trace: Trace, stack: str | None = None, layer: int | None = None) -> Array:
    """Attention rollout, (N, N): how much of each input token is in each token after a layer (Abnar and Zuidema 2020).

    Each layer's weights are averaged over heads and with the identity, for the residual connection; the layers are then
    multiplied. stack: "encoder" or "decoder"; by default the encoder, if there is one. layer: by default the last.
    """
    sites = [site for site in trace.graph.sites if site.kind != "cross"]
    stacks = list(dict.fromkeys(site.stack for site in sites))
    if not stacks:
        raise TaskError("Rollout follows self-attention through layers, and a recurrent network has none.")
    stack = stacks[0] if stack is None else stack
    if stack not in stacks:
        raise NotFound(f"This model has no stack {stack!r}; it has {' and '.join(stacks)}.")
    layers = [site for site in sites if site.stack == stack]
    if layer is not None and not 0 <= layer < len(layers):
        raise NotFound(f"The {stack} has no layer {layer}; they are 0 to {len(layers) - 1}.")
    identity = mixed = np.eye(trace.shape(layers[0].weights)[-1], dtype=np.float32)
    for site in layers if layer is None else layers[: layer + 1]:
        mixed = (trace[site.weights].mean(0) + identity) / 2 @ mixed
    return mixed


@dataclass(frozen=True)
class Contribution:
    """A head's attention weights, and the norms of what each key contributes through them.

    norms: ‖A[i, j] V[j] W_o‖, (N, T). weights: A, (N, T). disagreement: half of Σ_j |A[i, j] - share of the norms|, mean
    over queries: 0 if weights are proportional to contributions, near 1 if keys with large weights contribute little. Of a
    head that an edit switched off, the norms are 0 and disagreement is None.
    """

    norms: Array
    weights: Array
    disagreement: float | None


def contribution(trace: Trace, site: str, head: int) -> Contribution:
    """What each key contributes to a head's output: its weight may be large and its value small (Kobayashi et al. 2020)."""
    where = site_of(trace, site)
    if not 0 <= head < where.heads:
        raise NotFound(f"{site} has no head {head}; they are 0 to {where.heads - 1}.")
    M, Z = trace.graph.output_of(where), trace.graph.mix_of(where)
    assert M is not None
    A, V = (trace[name].astype(np.float64) for name in Z.inputs)
    A = A[head]
    V = V[head * len(V) // where.heads]  # (T, d_k), of the group's key/value head
    W_o = trace[M.inputs[1]].astype(np.float64)
    W_o = W_o.reshape(where.heads, -1, W_o.shape[-1])[head]  # (d_k, d)
    norms = np.abs(A) * np.linalg.norm(V @ W_o, axis=-1)  # (N, T)
    if is_off(trace, where, head):
        return Contribution(np.zeros(norms.shape, np.float32), A.astype(np.float32), None)
    shares = norms / np.maximum(norms.sum(-1, keepdims=True), np.finfo(norms.dtype).tiny)
    disagreement = float(np.abs(A - shares).sum(-1).mean() / 2)
    return Contribution(norms.astype(np.float32), A.astype(np.float32), disagreement)


def is_off(trace: Trace, site: Site, head: int) -> bool:
    """Whether an edit set the output of a head to zero."""
    off = site.Z in trace.edited and not trace[site.Z][head].any()
    return off or (site.M in trace.edited and not trace[site.M].any())


def site_of(trace: Trace, site: str) -> Site:
    for each in trace.graph.sites:
        if each.site == site and trace.graph.output_of(each) is not None:
            return each
    there = ", ".join(each.site for each in trace.graph.sites if trace.graph.output_of(each) is not None)
    raise NotFound(f"There is no attention with values and W_o at {site!r}; there is {there or 'none in this model'}.")
