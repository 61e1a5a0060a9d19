"""What flows along attention: through all layers (rollout), and in one head when the values are counted too.

In: a `Trace`. Out: matrices of queries by keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import NotFound, TaskError
from regard.explain.graph import Site
from regard.explain.trace import Trace


def attention_rollout(trace: Trace, stack: str | None = None, layer: int | None = None) -> Tensor:
    """How much of each first token is in each last one, (N, N), if attention alone mixed them (Abnar and Zuidema 2020).

    Each layer's weights are averaged over heads and with the identity, for the residual connection; the layers are then
    multiplied. stack: "encoder" or "decoder"; where there are both, the encoder unless said. layer: the one after which
    the tokens are asked what is in them; the last unless said.
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
    identity = mixed = torch.eye(trace.shape(f"{layers[0].site}.weights")[-1])
    for site in layers if layer is None else layers[: layer + 1]:
        mixed = (trace[f"{site.site}.weights"].float().mean(0).cpu() + identity) / 2 @ mixed
    return mixed


@dataclass(frozen=True)
class Contribution:
    """A head's weights beside the lengths of what they let through.

    norms: ‖A[i, j] V[j] W_o‖, (N, T). weights: A, (N, T). disagreement: half of Σ_j |A[i, j] - share of the norms|, mean
    over queries: 0 when weights tell who contributes, near 1 when those looked at have nothing to say. Of a head that an
    edit switched off nothing arrives: its norms are 0, and there is nothing to disagree with.
    """

    norms: Tensor
    weights: Tensor
    disagreement: float | None


def contribution(trace: Trace, site: str, head: int) -> Contribution:
    """A weight is not a contribution: a token may be looked at whose value is almost nothing (Kobayashi et al. 2020)."""
    where = site_of(trace, site)
    if not 0 <= head < where.heads:
        raise NotFound(f"{site} has no head {head}; they are 0 to {where.heads - 1}.")
    A, V = trace[f"{site}.weights"][head].double(), trace[f"{site}.V"].double()
    V = V[head * len(V) // where.heads]  # (T, d_k), of the group's key/value head
    W_o = trace[f"{site}.W_o.weight"].double().unflatten(0, (where.heads, -1))[head]  # (d_k, d)
    norms = A.abs() * (V @ W_o).norm(dim=-1)  # (N, T)
    if silent(trace, site, head):
        return Contribution(torch.zeros_like(norms).float(), A.float(), None)
    shares = norms / norms.sum(-1, keepdim=True).clamp_min(torch.finfo(norms.dtype).tiny)
    return Contribution(norms.float(), A.float(), float((A - shares).abs().sum(-1).mean() / 2))


def silent(trace: Trace, site: str, head: int) -> bool:
    """Whether an edit lets nothing of a head through."""
    Z, M = f"{site}.Z", f"{site}.M"
    return (Z in trace.edited and not trace[Z][head].any()) or (M in trace.edited and not trace[M].any())


def site_of(trace: Trace, site: str) -> Site:
    for each in trace.graph.sites:
        if each.site == site and f"{site}.M" in trace.graph.nodes:
            return each
    there = ", ".join(each.site for each in trace.graph.sites if f"{each.site}.M" in trace.graph.nodes)
    raise NotFound(f"There is no attention with values and W_o at {site!r}; there is {there or 'none in this model'}.")
