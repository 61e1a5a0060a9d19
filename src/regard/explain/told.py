"""A model and a run in JSON's words, without any of the run's numbers: what the page draws its map and its stages from.

The server answers with it, and a file that is handed on carries it.
"""

from dataclasses import asdict
from typing import Any

from regard.explain.caption import scaling
from regard.explain.graph import Node
from regard.explain.outcome import deciding
from regard.explain.trace import Trace
from regard.model.describe import describe
from regard.model.spec import RecurrentSpec, Spec, StackSpec


def told(trace: Trace) -> dict[str, Any]:
    """All that can be said of a run but its numbers."""
    head = trace.net.spec.head
    return {
        "tokens": trace.tokens,
        "ids": trace.ids,
        "target_tokens": trace.target_tokens,
        "target_ids": trace.target_ids,
        "nodes": [
            {"name": n.name, "op": n.op, "shape": list(trace.shape(n.name)), "axes": n.axes, "inputs": n.inputs}
            | {"facts": node_facts(n)}
            for n in trace.graph
            if n.name in trace
        ],
        "sites": [asdict(site) for site in trace.graph.sites],
        "head": head.kind,
        "labels": list(head.labels),
        "deciding": deciding(trace),
        "steps": [asdict(step) for step in trace.steps],
        "edits": trace.edits,
        "edited": sorted(trace.edited),
    }


def node_facts(node: Node) -> dict[str, Any]:
    """What a caption needs to know beside a node's numbers: scales, windows, ε, and how scores are scaled, in words."""
    facts = {key: value for key, value in node.facts.items() if isinstance(value, int | float | str)}
    return facts | ({"said": scaling(node)} if node.op == "scale" else {})


def facts(name: str, spec: Spec) -> dict[str, Any]:
    """What the map on the page is drawn from."""
    return {
        "name": name,
        "kind": spec.kind,
        "family": spec.family,
        "head": spec.head.kind,
        "labels": list(spec.head.labels),
        "context": spec.context,
        "vocabulary": spec.n_vocab,
        "d": spec.d,
        "recurrent": spec.recurrent is not None,
        "stacks": recurrent_facts(spec.recurrent)
        if spec.recurrent
        else [stack_facts(side, stack, spec.kind) for side, stack in spec.stacks.items()],
        "parameters": describe(spec).parameters,
    }


def recurrent_facts(r: RecurrentSpec) -> list[dict[str, Any]]:
    """A reader in both directions, and a writer that looks at what was read before each word."""
    return [
        {"name": "encoder", "layers": 1, "hidden": r.hidden, "directions": 2, "cross": False},
        {"name": "decoder", "layers": 1, "hidden": r.hidden, "directions": 1, "cross": True},
    ]


def stack_facts(side: str, stack: StackSpec, kind: str) -> dict[str, Any]:
    a, m = stack.attention, stack.mlp
    return {
        "name": side,
        "layers": stack.n_layers,
        "heads": a.heads,
        "kv_heads": a.kv_heads,
        "d_k": a.d_k,
        "d_ff": m.d_ff,
        "wiring": stack.wiring,
        "norm": stack.norm,
        "positions": stack.positions.kind,
        "activation": m.activation,
        "gated": m.gated,
        "mask": "causal" if side == "decoder" else "none",
        "cross": side == "decoder" and kind == "encoder-decoder",
        "window": max((w for w in stack.windows if w), default=None),
        "final_norm": stack.final_norm,
    }
