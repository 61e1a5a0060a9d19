"""What the steps of an attention did in a run, in words: what divides its scores, whom its mask hides, what is handed on.

In: a run, a site and a head. Out: phrases that are true of them. What the graph says holds of a node that no edit wrote
over; of one that was, its numbers are compared with what they would be without the edit. `page/parts/captions.js` says the
same on the page.
"""

import math

from torch import Tensor

from regard.explain.graph import Node, Site
from regard.explain.trace import Trace

NEAR = 2**-7  # relative; bfloat16 rounds by less


def scaling(node: Node) -> str:
    """How a dot product becomes a score, as the model's spec says."""
    if node.op != "scale":
        return "a small network compares the state with each source token"
    scale, d_k = float(node.facts["scale"]), node.facts["d_k"]
    root, number = math.sqrt(d_k), int(node.name.split(".")[1]) + 1
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
    """By step (scores, masked, weights, Z)."""

    def numbers(step: str) -> Tensor:
        return trace[f"{site.site}.{step}"][head].double().cpu()

    def written_over(step: str) -> bool:
        return f"{site.site}.{step}" in trace.edited

    node = trace.graph[f"{site.site}.scores"]
    last = "masked" if f"{site.site}.masked" in trace else "scores"
    hidden = numbers(last) == -math.inf
    said = {"scores": scaling(node), "weights": "each row sums to 1", "Z": "the weighted sum of its values"}
    if last == "masked":
        said["masked"] = hiding(trace, site, hidden)
    if written_over("scores"):
        S, dots = numbers("scores"), numbers("dots")
        plain = dots * float(node.facts["scale"])
        if differing(S, plain) and not differing(S, dots):
            said["scores"] = "not divided (an edit switched the scaling off)"
        else:
            said["scores"] += changed(differing(S, plain), S)
    if written_over("masked"):
        M, S = numbers("masked"), numbers("scores")
        said["masked"] += changed(differing(M.where(~hidden, S), S), M)
    if written_over("weights"):
        A = numbers("weights")
        odd = int(((A.sum(-1) - 1).abs() > NEAR).sum())
        said["weights"] = f"{odd} of {len(A)} rows do not sum to 1" if odd else said["weights"]
        said["weights"] += changed(differing(A, numbers(last).softmax(-1)), A)
    if written_over("Z"):
        V = trace[f"{site.site}.V"].double().cpu()
        Z, mixed = numbers("Z"), numbers("weights") @ V[head * len(V) // site.heads]
        off = differing(Z, mixed) and not Z.any()
        said["Z"] = "0: an edit switched this head off" if off else said["Z"] + changed(differing(Z, mixed), Z)
    return said


def hiding(trace: Trace, site: Site, hidden: Tensor) -> str:
    """Whom the queries do not see, (N, T)."""
    count, (N, T) = int(hidden.sum()), hidden.shape
    if not count:
        return "nothing is hidden"
    if site.kind == "causal":
        window = trace.graph.net.spec.stacks[site.stack].window(site.layer)
        usual = hidden.new_ones(N, T).triu(1)
        if window is not None:
            usual |= hidden.new_ones(N, T).tril(-window)
        more = int((hidden & ~usual).sum())
        if not (usual & ~hidden).any():
            far = f", and those {window} or more places back" if window is not None and window < N else ""
            return f"later tokens are hidden{far}" + (f", and {more} more pair{'s' * (more > 1)}" if more else "")
    return f"{count} of {N * T} pairs of query and key {'is' if count == 1 else 'are'} hidden"


def differing(a: Tensor, b: Tensor) -> int:
    """How many entries are not alike."""
    return int((~a.isclose(b, rtol=NEAR, atol=1e-6)).sum())


def changed(count: int, whole: Tensor) -> str:
    return f"; {count} of {whole.numel()} numbers changed by an edit" if count else ""
