"""The contents of an exported file: enough arrays to show every node of a trace, within a size limit.

In: a `Trace`. Out: one JSON-friendly mapping. How much is stored depends on the size of the trace, the first that fits:

    everything, exactly (float32)   toy models: every node and every weight, so that a browser can even run edits
    the base, exactly               nodes that cannot be computed from others without weights: embeddings, Q, K, V, M, the
    the base, in half precision     MLP's up and out; scores, attention weights, Z, sums and norms follow from these
    the base, rounded               to 8 significant bits, neurons to 6: a GPT-2 of 124 million parameters on 64 tokens
"""

import math
from dataclasses import dataclass
from typing import Any

from regard.errors import TaskError
from regard.explain.edit_targets import EditTargets
from regard.explain.letters import letters
from regard.explain.reason import operation_note
from regard.explain.render import latex_letter
from regard.explain.trace import Array, Trace
from regard.model.graph import Node
from regard.model.shapes import count_parameters
from regard.nn.expression import to_json
from regard.page.precomputed import Progress, precomputed, whole_vocabulary
from regard.page.tensor_codec import EXACT, HALF, encode, fits_half
from regard.page.trace_json import model_json, trace_json

MAX_EXACT, BUDGET, MAX_BYTES = 4 << 20, 7 << 20, 64 << 20  # bytes of arrays: stored exactly, aimed at, refused beyond
FEW_PARAMETERS = 1_200_000  # up to which all weights are stored
ROUGH, NEURONS = 8, 6  # significant bits of rounded arrays: bfloat16's, and of neurons, which are most of the size
WIDTHS = {EXACT: 3.6, HALF: 1.7, ROUGH: 1.25}  # bytes that a number takes, compressed


@dataclass(frozen=True)
class Selection:
    """Which nodes of a trace are stored, and with how many significant bits."""

    all: bool
    bits: int
    names: tuple[str, ...]

    def bits_for(self, node: Node, x: Array) -> int:
        if self.bits >= EXACT or not fits_half(x):
            return EXACT
        return NEURONS if self.bits == ROUGH and "neuron" in node.axes else self.bits


def contents(
    trace: Trace, name: str, text: str, *, ablate_large: bool = True, progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """name, text: the model's name and the input. ablate_large: ablate the heads of a large model, too."""
    spec, stored = trace.spec, select(trace)
    small = count_parameters(spec) <= FEW_PARAMETERS
    card = {"name": name, "kind": spec.kind, "family": spec.family, "head": spec.head.kind}
    return {
        "model": model_json(name, spec),
        "card": card | {"about": "saved with regard", "examples": [text]},
        "trace": {"trace": "plain", "model": name, "text": text, "milliseconds": 0.0} | trace_json(trace),
        "formulas": {node.name: to_json(node.general_formula) for node in trace.graph if node.name in trace},
        "constants": {name: {"shape": x.shape, "values": x.tolist()} for name, x in trace.graph.constants.items()},
        "letters": letters_json(trace),
        "notes": {node.name: operation_note(trace.graph, node) for node in trace.graph if node.name in trace},
        "places": targets_json(trace),
        "keeps": {"all": stored.all, "bits": stored.bits, "weights": small},
        "nodes": {each: encode(trace[each], stored.bits_for(trace.graph[each], trace[each])) for each in stored.names},
        "weights": weights(trace, small),
        "spelt": trace.tokenizer is not None,  # False: tokens are shown as ids
    } | precomputed(trace, small, ablate_large or small, progress)


def letters_json(trace: Trace) -> dict[str, tuple[str, str]]:
    """The letters of nodes, weights and constants, in symbols and in LaTeX."""
    names = {name for node in trace.graph for name in (node.name, *(x.name for x in node.operands))}
    known = letters(trace.graph)
    return {name: (known[name], latex_letter(known[name])) for name in sorted(names)}


def targets_json(trace: Trace) -> dict[str, Any]:
    """The targets of edits: switches (node and replacement), indexed paths (node and axis), masks, nodes without edits."""
    known = EditTargets(trace.graph, {node.name: node.shape for node in trace.graph})
    return {
        "switches": {name: [[s.node, s.instead] for s in found] for name, found in known.switches.items()},
        "counted": {name: [node, axis] for name, (node, axis) in known.indexed.items()},
        "masks": {name: trace.graph.hidden_at(site) for name, site in known.masks.items()},
        "fixed": ["probabilities", *sorted(trace.graph.observe_only)],
    }


def select(trace: Trace) -> Selection:
    """The first row of the module's table that fits."""
    excluded = {"probabilities"} if whole_vocabulary(trace) else {"probabilities", "logits"}
    every = tuple(node.name for node in trace.graph if node.name in trace and node.name not in excluded)
    if size(trace, every, 4) <= MAX_EXACT:
        return Selection(True, EXACT, every)
    base = tuple(name for name in every if needs_weights(trace.graph[name]) or name in trace.edited)
    for bits in (EXACT, HALF):
        if size(trace, base, WIDTHS[bits]) <= BUDGET:
            return Selection(False, bits, base)
    needed = size(trace, base, WIDTHS[ROUGH])
    if needed > MAX_BYTES:
        raise TaskError(
            f"The arrays of this run of {len(trace.ids):,} tokens take about {needed / 1e6:.0f} MB, which is too much for "
            "one page; give a shorter text, or open it with regard view."
        )
    return Selection(False, ROUGH, base)


def size(trace: Trace, names: tuple[str, ...], width: float) -> int:
    return int(sum(math.prod(trace.shape(name)) for name in names) * width)


def weights(trace: Trace, all: bool) -> dict[str, Any]:
    """Weights by name; tied ones are stored once. flip: stored transposed. Of a large model only γ and β of norms."""
    found: dict[str, Any] = {}
    first = {name: group[0] for group in trace.spec.tied for name in group}
    norms = {name for node in trace.graph if node.op == "affine" for name in node.inputs[1:]}
    for name, declared in trace.declared.items():
        if not (all or name in norms):
            continue
        stored = first.get(name, name)
        flip = {"flip": declared.transposed}
        found[name] = flip | ({"of": stored} if stored in found else encode(trace.run.net.get(name)))
    return found


def needs_weights(node: Node) -> bool:
    """Whether it is computed with a weight matrix, which the file of a large model does not have."""
    return any(x.op is None and x.ndim == 2 for x in node.operands)
