"""What a run takes along when it is handed on: enough numbers to look at all of it, and no more than a file should hold.

In: a `Trace`. Out: one JSON-friendly mapping. How much is kept depends on how much there is, the first that fits:

    everything, exactly (float32)   toy models: every node and every weight, so that a browser can even run edits
    the base, exactly               what cannot be computed from other nodes without weights: embeddings, Q, K, V, M, the
    the base, in half precision     MLP's up and out; scores, weights, Z, sums and norms follow from these
    the base, rounded               to 8 significant bits, neurons to 6: a GPT-2 of 124 million parameters on 64 tokens
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import TaskError
from regard.explain.graph import Node, weight
from regard.explain.parcel import EXACT, HALF, fits_half, parcel
from regard.explain.precomputed import Progress, precomputed, whole_vocabulary
from regard.explain.told import facts, told
from regard.explain.trace import Trace
from regard.nn.mlp import ACTIVATIONS
from regard.nn.position import Rotary, Sinusoidal

PLAIN, BUDGET, MOST = 4 << 20, 7 << 20, 64 << 20  # bytes of numbers: kept whole, aimed at, refused beyond
FEW_PARAMETERS = 1_200_000  # of which all are taken along
NEEDS_WEIGHTS = ("lookup", "linear", "concat", "joined", "gru", "additive")
ROUGH, NEURONS = 8, 6  # significant bits when there is much to keep: bfloat16's; and of neurons, which are most of it
WIDTHS = {EXACT: 3.6, HALF: 1.7, ROUGH: 1.25}  # bytes that a number takes, packed


@dataclass(frozen=True)
class Keeping:
    """Which of a run's nodes are kept, and with how many significant bits."""

    all: bool
    bits: int
    names: tuple[str, ...]

    def bits_for(self, node: Node, x: Tensor) -> int:
        if self.bits >= EXACT or not fits_half(x):
            return EXACT
        return NEURONS if self.bits == ROUGH and "neuron" in node.axes else self.bits


def contents(
    trace: Trace, name: str, text: str, *, patient: bool = True, progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """name, text: what the model and its input are called. patient: also run a large model without each of its heads."""
    spec, kept = trace.net.spec, keeping(trace)
    small = sum(p.numel() for p in trace.net.parameters()) <= FEW_PARAMETERS
    card = {"name": name, "kind": spec.kind, "family": spec.family, "head": spec.head.kind}
    return {
        "model": facts(name, spec),
        "card": card | {"about": "saved with regard", "examples": [text]},
        "trace": {"trace": "plain", "model": name, "text": text, "milliseconds": 0.0} | told(trace),
        "facts": {node.name: node_facts(node) for node in trace.graph},
        "keeps": {"all": kept.all, "bits": kept.bits, "weights": small},
        "nodes": {each: parcel(trace[each], kept.bits_for(trace.graph[each], trace[each])) for each in kept.names},
        "weights": weights(trace, small),
        "spelt": trace.tokenizer is not None,  # otherwise ids stand for themselves
    } | precomputed(trace, small, patient or small, progress)


def keeping(trace: Trace) -> Keeping:
    """The first way of keeping that fits."""
    left_out = {"probabilities"} if whole_vocabulary(trace) else {"probabilities", "logits"}
    every = tuple(node.name for node in trace.graph if node.name in trace and node.name not in left_out)
    if size(trace, every, 4) <= PLAIN:
        return Keeping(True, EXACT, every)
    base = tuple(name for name in every if trace.graph[name].op in NEEDS_WEIGHTS or name in trace.edited)
    for bits in (EXACT, HALF):
        if size(trace, base, WIDTHS[bits]) <= BUDGET:
            return Keeping(False, bits, base)
    needed = size(trace, base, WIDTHS[ROUGH])
    if needed > MOST:
        raise TaskError(
            f"The numbers of this run of {len(trace.ids):,} tokens take about {needed / 1e6:.0f} MB, which is too much for "
            "one page; give a shorter text, or look at it with regard view."
        )
    return Keeping(False, ROUGH, base)


def size(trace: Trace, names: tuple[str, ...], width: float) -> int:
    return int(sum(torch.Size(trace.shape(name)).numel() for name in names) * width)


def weights(trace: Trace, all: bool) -> dict[str, Any]:
    """By name in the lectures' orientation; a matrix with two names (tied embeddings) lies there once.

    Of a large model only the vectors that norms are stretched and shifted with.
    """
    found: dict[str, Any] = {}
    first: dict[int, str] = {}
    norms = {name for node in trace.graph if node.op == "affine" for name in node.inputs[1:]}
    for name, p in trace.net.named_parameters(remove_duplicate=False):
        if not (all or name in norms):
            continue
        value = weight(trace.net, name)
        flip = value is not None and value.stride() != p.stride()
        if p.data_ptr() in first:
            found[name] = {"of": first[p.data_ptr()], "flip": flip}
        else:
            first[p.data_ptr()] = name
            found[name] = {"flip": flip} | parcel(p)
    return found


def node_facts(node: Node) -> dict[str, Any]:
    """What the rules of why need to know beside the operands, in JSON's words."""
    return {key: plain_fact(value) for key, value in node.facts.items() if value is not None}


def plain_fact(value: Any) -> Any:
    if isinstance(value, Sinusoidal):
        return {"d": value.d, "halves": value.halves, "stretch": value.stretch, "offset": value.offset}
    if isinstance(value, Rotary):
        return {"frequencies": value.frequencies().tolist()}
    if callable(value):
        return next(name for name, function in ACTIVATIONS.items() if function is value)
    return value
