"""The gates of a recurrent network: for every token and unit, the reset and update gates of a GRU.

In: a `Trace` of the recurrent network of 2015. Out: the gates of one of its GRUs, each (N, units). The encoder's units are
those of the forward GRU followed by those of the backward one, as in its states.
"""

from dataclasses import dataclass

import numpy as np

from regard.errors import TaskError
from regard.explain.recompute import values_of
from regard.explain.trace import Array, Trace
from regard.model.graph import Graph, Node


@dataclass(frozen=True)
class Gates:
    """after = (1 - z) n + z before: update gate z, candidate n; the reset gate r scales what n takes from before."""

    r: Array
    z: Array
    n: Array
    before: Array
    after: Array


def gates(trace: Trace, node: str) -> Gates:
    """The gates of a GRU at each token. node: its states, or those of two GRUs concatenated; see `gru_states`."""
    known = gru_states(trace.graph)
    if node not in known:
        there = " and ".join(known) or "none in this model"
        raise TaskError(f"Gates are a recurrent network's; its GRUs: {there}.")
    directions = [gates_of(trace, each) for each in known[node]]
    r, z, n, before = (np.concatenate(each, -1) for each in zip(*directions, strict=True))
    return Gates(r, z, n, before, trace[node].astype(np.float64))


def gru_states(graph: Graph) -> dict[str, list[Node]]:
    """Node → the GRUs whose states it holds: one, or two concatenated."""
    found = {node.name: [node] for node in graph if node.op == "blend"}
    for node in graph:
        if node.op == "beside" and node.inputs and set(node.inputs) <= found.keys():
            found[node.name] = [each for name in node.inputs for each in found.pop(name)]
    return found


def gates_of(trace: Trace, states: Node) -> tuple[Array, Array, Array, Array]:
    """r, z, n and the state before, for each token: states = blend(z, n, before); r is the gate that n depends on."""
    graph, (z, n) = trace.graph, states.inputs[:2]
    r = next(name for name in graph[n].inputs if name in graph.nodes and graph[name].op == "activation")
    steps = [row.inputs[2] for row in states.symbol.inputs if row is not None]
    before = np.stack([values_of(trace, h) for h in steps if h is not None])
    R, Z, N = (trace[name].astype(np.float64) for name in (r, z, n))
    return R, Z, N, before
