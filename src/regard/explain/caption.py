"""Captions for the steps of an attention site: how scores are scaled, what the mask hides, whether rows sum to 1.

In: a trace, a site and a head. Out: node → caption. A caption follows from the node's operation and its attributes; an
operation that is not known here, or several in one node, are captioned with the formula. For an edited node, the values are
compared with those it would have without the edit. `page/web/parts/captions.js` computes the same captions on the page.
"""

import math

import numpy as np

from regard.explain.activation_cache import block_of
from regard.explain.recompute import recompute
from regard.explain.show import written
from regard.explain.trace import Array, Trace
from regard.model.graph import Graph, Site

NEAR = 2**-7  # relative; bfloat16 rounds by less


def step(graph: Graph, site: Site, name: str) -> str:
    """How a step is computed from the one before it, or the first from Q and K."""
    node = graph[name]
    if not node.single:
        return formula(graph, name)
    match node.op:
        case "dot":
            return "dot products"
        case "scale":
            return scaling(graph, site, name)
        case "cap":
            return "kept within ±{0:g}: {0:g} · tanh(x / {0:g})".format(node.facts["most"])
        case "mask":
            return "hidden entries become -∞"
        case "softmax":
            return "each row sums to 1"
    return formula(graph, name)


def formula(graph: Graph, name: str) -> str:
    return written(graph[name].symbol, graph, block_of(name), top=True)


def scaling(graph: Graph, site: Site, name: str) -> str:
    """How dot products become scores: divided by √d_k, by the layer's number, or by something else."""
    scale, number = float(graph[name].facts["by"]), site.layer + 1
    d_k = 0 if site.Q is None else graph[site.Q].shape[-1]
    root = math.sqrt(d_k)
    if scale == 1:
        return "not divided (this model takes the dot products as they are)"
    if math.isclose(scale * root, 1):
        return f"divided by √{d_k} = {short(root)}"
    if math.isclose(scale * root * number, 1):
        return f"divided by √{d_k} and by the layer's number, {number}: by {short(root * number)}"
    if math.isclose(scale * number, 1):
        return f"divided by the layer's number, {number}, and not by √{d_k}"
    return f"times {scale:.4g}"


def short(x: float) -> str:
    return f"{x:.3f}".rstrip("0").rstrip(".")


def captions(trace: Trace, site: Site, head: int) -> dict[str, str]:
    """Node → caption, for each step of the site and for Z."""
    return {name: caption(trace, site, head, name) for name in (*site.steps, site.Z)}


def caption(trace: Trace, site: Site, head: int, name: str) -> str:
    node, X = trace.graph[name], float64(trace, name)[head]
    text = "the weighted sum of its values" if name == site.Z else step(trace.graph, site, name)
    if node.op == "mask":
        text = mask_caption(trace, site, np.isneginf(X))
    if name == site.weights and (name in trace.edited or node.op != "softmax"):
        text = row_sums(text, X, node.op == "softmax")
    if name not in trace.edited:
        return text
    before = next((float64(trace, x)[head] for x in node.inputs if {x, name} <= {*site.steps}), None)
    unedited = recompute(trace, node.symbol)[head]
    if node.op == "mask" and before is not None:
        unedited = np.where(np.isneginf(X), X, before)  # what it hides is in the caption already
    moved = count_differing(X, unedited)
    if moved and name == site.Z and not X.any():
        return "0: an edit switched this head off"
    if moved and before is not None and not count_differing(X, before):
        return OFF.get(node.op, "an edit switched this step off")
    return text + changed_note(moved, X)


OFF = {"scale": "not divided (an edit switched the scaling off)"}


def row_sums(text: str, A: Array, softmax: bool) -> str:
    """A caption for attention weights whose rows may not sum to 1. softmax: whether they are the result of one."""
    odd = int((np.abs(A.sum(-1) - 1) > NEAR).sum())
    if softmax:
        return f"{odd} of {len(A)} rows do not sum to 1" if odd else text
    return f"{text}; " + (f"{odd} of {len(A)} rows do not sum to 1" if odd else "each row sums to 1")


def float64(trace: Trace, name: str) -> Array:
    return trace[name].astype(np.float64)


def mask_caption(trace: Trace, site: Site, hidden: Array) -> str:
    """What a mask hides. hidden: (N, T)."""
    count, (N, T) = int(hidden.sum()), hidden.shape
    if not count:
        return "nothing is hidden"
    if site.kind == "causal":
        window = trace.graph.mask_of(site).window
        usual = np.triu(np.ones((N, T), bool), 1)
        if window is not None:
            usual |= np.tril(np.ones((N, T), bool), -window)
        more = int((hidden & ~usual).sum())
        if not (usual & ~hidden).any():
            far = f", and those {window} or more places back" if window is not None and window < N else ""
            return f"later tokens are hidden{far}" + (f", and {more} more pair{'s' * (more > 1)}" if more else "")
    return f"{count} of {N * T} pairs of query and key {'is' if count == 1 else 'are'} hidden"


def count_differing(a: Array, b: Array) -> int:
    """How many entries differ by more than rounding."""
    return int((~np.isclose(a, b, rtol=NEAR, atol=1e-6)).sum())


def changed_note(count: int, whole: Array) -> str:
    return f"; {count} of {whole.size} numbers changed by an edit" if count else ""
