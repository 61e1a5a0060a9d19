"""What the gates of a recurrent network did: for every token and unit, how much it let through and how much it kept.

In: a `Trace` of the recurrent network of 2015. Out: the gates of one of its two GRUs, each (N, units). The encoder's units
are the forward GRU's followed by the backward one's, as in its states.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import TaskError
from regard.explain.recurrent import first_state
from regard.explain.trace import Trace
from regard.model.recurrent import Recurrent

NODES = ("encoder.reader.H", "decoder.states")


@dataclass(frozen=True)
class Gates:
    """after = (1 - z) n + z before; r is how much of the state before the candidate n sees."""

    r: Tensor
    z: Tensor
    n: Tensor
    before: Tensor
    after: Tensor


def gates(trace: Trace, node: str) -> Gates:
    """node: "encoder.reader.H" or "decoder.states"."""
    if not isinstance(trace.net, Recurrent) or node not in NODES:
        raise TaskError("Gates are a recurrent network's: its GRUs are encoder.reader.H and decoder.states.")
    H = trace[node].double()
    if node == "decoder.states":
        X = torch.cat([trace["decoder.embed.out"], trace["decoder.cross.Z"][0]], -1).double()
        return step(trace, X, torch.cat([first_state(trace)[None], H[:-1]]), H, "decoder.cell.", "")
    X, (there, back) = trace["encoder.embed.out"].double(), H.chunk(2, -1)
    nothing = torch.zeros_like(there[:1])
    ways = (
        step(trace, X, torch.cat([nothing, there[:-1]]), there, "encoder.reader.gru.", "_l0"),
        step(trace, X, torch.cat([back[1:], nothing]), back, "encoder.reader.gru.", "_l0_reverse"),
    )
    return Gates(*(torch.cat(both, -1) for both in zip(*(vars(way).values() for way in ways), strict=True)))


def step(trace: Trace, X: Tensor, before: Tensor, after: Tensor, place: str, way: str) -> Gates:
    """All tokens at once, since the state before each is known. PyTorch keeps the three parts in the order r, z, n."""
    W, U, b, e = (trace[f"{place}{name}{way}"].double() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    a_r, a_z, a_n = (X @ W.T + b).chunk(3, -1)
    u_r, u_z, u_n = (before @ U.T + e).chunk(3, -1)
    r, z = torch.sigmoid(a_r + u_r), torch.sigmoid(a_z + u_z)
    return Gates(r, z, torch.tanh(a_n + r * u_n), before, after)
