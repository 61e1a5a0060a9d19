"""The lenses of `regard.explain.lens` by the names that the page requests, with their numbers as lists."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regard.errors import NotFound, TaskError, quoted
from regard.explain import lens
from regard.explain.trace import Array, Trace

MAX_CELLS = 512 * 512  # of a matrix that is sent as JSON


@dataclass(frozen=True)
class LensRequest:
    """The parameters of all lenses; each uses those it needs."""

    token: int = -1
    id: int | None = None
    site: str | None = None
    head: int = 0
    stack: str | None = None
    layer: int | None = None
    node: str | None = None


def apply_lens(trace: Trace, name: str, request: LensRequest) -> dict[str, Any]:
    if name not in LENSES:
        raise NotFound(f"There is no lens {quoted(name)}; there are {', '.join(LENSES)}.")
    return LENSES[name](trace, request)


def heads(trace: Trace, request: LensRequest) -> dict[str, Any]:
    kinds = ("entropy", "previous", "induction", "first")
    scores = lens.head_scores(trace).items()
    return {"sites": {site: {kind: listed(getattr(each, kind)) for kind in kinds} for site, each in scores}}


def logit_lens(trace: Trace, request: LensRequest) -> dict[str, Any]:
    rows = lens.logit_lens(trace, request.token)
    return {"rows": [{"node": r.node, "top": [[g.piece, g.id, g.probability] for g in r.top]} for r in rows]}


def rollout(trace: Trace, request: LensRequest) -> dict[str, Any]:
    matrix = lens.attention_rollout(trace, request.stack, request.layer)
    values = small(matrix).astype(np.float64).round(7)  # fractions of 1, in few digits
    return {"shape": list(matrix.shape), "values": values.flatten().tolist()}


def contribution(trace: Trace, request: LensRequest) -> dict[str, Any]:
    if request.site is None:
        raise TaskError("The lens contribution is of one head: give its site and head.")
    found = lens.contribution(trace, request.site, request.head)
    return {
        "norms": small(found.norms).tolist(),
        "weights": found.weights.tolist(),
        "disagreement": found.disagreement,
    }


def disagreement(trace: Trace, request: LensRequest) -> dict[str, Any]:
    """Per head, how far its attention weights are from its contributions: 0 means the same, 1 is the most."""
    sites = [site for site in trace.graph.sites if trace.graph.output_of(site) is not None]
    each = {s.site: [lens.contribution(trace, s.site, h).disagreement for h in range(s.heads)] for s in sites}
    return {"sites": each}


def attribution(trace: Trace, request: LensRequest) -> dict[str, Any]:
    return asdict(lens.attribution(trace, request.token, request.id))


def ablation(trace: Trace, request: LensRequest) -> dict[str, Any]:
    """Of all sites, or of one, so that a large model can be measured step by step."""
    sites = None if request.site is None else (lens.flow.site_of(trace, request.site).site,)
    effects = lens.ablation(trace, request.token, request.id, sites)
    return {"sites": {site: listed(effect) for site, effect in effects.items()}}


def gradient(trace: Trace, request: LensRequest) -> dict[str, Any]:
    found = lens.gradient_times_input(trace, request.token, request.id)
    return {"id": found.id, "values": listed(found.source), "target_values": listed(found.target)}


def gates(trace: Trace, request: LensRequest) -> dict[str, Any]:
    if request.node is None:
        raise TaskError("The lens gates is of one GRU: give the node of its states.")
    found = lens.gates(trace, request.node)
    parts = {name: small(x).astype(np.float32).flatten().tolist() for name, x in vars(found).items()}
    return {"shape": list(found.after.shape), **parts}


LENSES: dict[str, Callable[[Trace, LensRequest], dict[str, Any]]] = {
    "heads": heads,
    "logit_lens": logit_lens,
    "rollout": rollout,
    "contribution": contribution,
    "disagreement": disagreement,
    "attribution": attribution,
    "ablation": ablation,
    "gradient": gradient,
    "gates": gates,
}


def listed(x: Array | None) -> list[float | None] | None:
    """As a list, with None for NaN: weights that an edit made negative have no entropy."""
    return None if x is None else [None if math.isnan(each) else each for each in x.tolist()]


def small(x: Array) -> Array:
    """The array, if it is small enough to send as JSON."""
    if x.size > MAX_CELLS:
        raise TaskError(f"This lens shows at most {MAX_CELLS:,} numbers, and the run has {x.size:,}: shorten the text.")
    return x
