"""A model and a trace as JSON, without the trace's arrays: what the page draws its map and its stages from.

The server responds with it, and an exported file contains it.
"""

from dataclasses import asdict
from typing import Any

from regard.explain.caption import step
from regard.explain.edit_targets import EditTargets
from regard.explain.predictions import first_pieces
from regard.explain.trace import Trace
from regard.model.describe import describe
from regard.model.graph import Node
from regard.model.spec import RecurrentSpec, Spec, StackSpec
from regard.model.wiring import wiring
from regard.nn.mask import Mask


def trace_json(trace: Trace) -> dict[str, Any]:
    """Tokens, graph, shapes, sites, wiring, edit targets, generated steps and edits of a trace."""
    head, graph = trace.spec.head, trace.graph
    targets = EditTargets(graph, {node.name: node.shape for node in graph})
    captions = {name: step(graph, site, name) for site in graph.sites for name in site.steps}
    return {
        "tokens": trace.tokens,
        "ids": trace.ids,
        "target_tokens": trace.target_tokens,
        "target_ids": trace.target_ids,
        "nodes": [
            {"name": n.name, "op": n.op, "shape": list(trace.shape(n.name)), "axes": n.axes, "inputs": n.inputs}
            | {"facts": node_attributes(n) | ({"said": captions[n.name]} if n.name in captions else {})}
            for n in graph
            if n.name in trace
        ],
        "sites": [asdict(site) | {"masked": (graph.hidden_at(site) or (None, None))[1]} for site in graph.sites],
        "wiring": asdict(wiring(graph)),
        "switches": {name: [switch.node for switch in found] for name, found in targets.switches.items()},
        "counted": {name: node for name, (node, _) in targets.indexed.items()},
        "masks": {name: site.site for name, site in targets.masks.items()},
        "head": head.kind,
        "labels": list(head.labels),
        "deciding": first_pieces(trace),
        "steps": [asdict(step) for step in trace.steps],
        "edits": trace.edits,
        "edited": sorted(trace.edited),
    }


def node_attributes(node: Node) -> dict[str, Any]:
    """Attributes of a node's operation that the page shows: scales, ε, the mask, the token that is picked."""
    facts = {key: value for key, value in node.facts.items() if isinstance(value, int | float | str)}
    if isinstance(mask := node.facts.get("by"), Mask):
        facts |= {"causal": mask.causal} | ({} if mask.window is None else {"window": mask.window})
    if picked := node.viewed_by("pick"):
        facts["row"] = picked.facts["row"]
    if not node.single:
        facts["several"] = True  # operations in one node
    role = "token" if node.looks_up_ids else "position" if node.counts_positions else None
    return facts | ({} if role is None else {"role": role})


def model_json(name: str, spec: Spec) -> dict[str, Any]:
    """A model's sizes and wiring, for the map on the page."""
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
        "stacks": recurrent_stacks_json(spec.recurrent)
        if spec.recurrent
        else [stack_json(side, stack, spec.kind) for side, stack in spec.stacks.items()],
        "parameters": describe(spec).parameters,
    }


def recurrent_stacks_json(r: RecurrentSpec) -> list[dict[str, Any]]:
    """A bidirectional encoder, and a decoder with attention to it."""
    return [
        {"name": "encoder", "layers": 1, "hidden": r.hidden, "directions": 2, "cross": False},
        {"name": "decoder", "layers": 1, "hidden": r.hidden, "directions": 1, "cross": True},
    ]


def stack_json(side: str, stack: StackSpec, kind: str) -> dict[str, Any]:
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
