"""The lenses of `regard.explain.lens` by the names the page asks for, their numbers as lists."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from regard.errors import NotFound, TaskError, quoted
from regard.explain import lens
from regard.explain.trace import Trace

MOST_CELLS = 512 * 512  # of a matrix that is sent as text


@dataclass(frozen=True)
class Asked:
    """What a lens may be asked about; each takes what it needs."""

    token: int = -1
    id: int | None = None
    site: str | None = None
    head: int = 0
    stack: str | None = None
    layer: int | None = None
    node: str | None = None


def looked_through(trace: Trace, name: str, asked: Asked) -> dict[str, Any]:
    if name not in LENSES:
        raise NotFound(f"There is no lens {quoted(name)}; there are {', '.join(LENSES)}.")
    return LENSES[name](trace, asked)


def heads(trace: Trace, asked: Asked) -> dict[str, Any]:
    kinds = ("entropy", "previous", "induction", "first")
    scores = lens.head_scores(trace).items()
    return {"sites": {site: {kind: listed(getattr(each, kind)) for kind in kinds} for site, each in scores}}


def logit_lens(trace: Trace, asked: Asked) -> dict[str, Any]:
    rows = lens.logit_lens(trace, asked.token)
    return {"rows": [{"node": r.node, "top": [[g.piece, g.id, g.probability] for g in r.top]} for r in rows]}


def rollout(trace: Trace, asked: Asked) -> dict[str, Any]:
    matrix = lens.attention_rollout(trace, asked.stack, asked.layer)
    values = small(matrix).double().round(decimals=7)  # shares of 1, and short to write
    return {"shape": list(matrix.shape), "values": values.flatten().tolist()}


def contribution(trace: Trace, asked: Asked) -> dict[str, Any]:
    if asked.site is None:
        raise TaskError("The lens contribution is of one head: say its site and head.")
    found = lens.contribution(trace, asked.site, asked.head)
    return {
        "norms": small(found.norms).tolist(),
        "weights": found.weights.tolist(),
        "disagreement": found.disagreement,
    }


def disagreement(trace: Trace, asked: Asked) -> dict[str, Any]:
    """Per head, how far its weights are from what they let through: from 0, the same, towards 1."""
    sites = [site for site in trace.graph.sites if f"{site.site}.M" in trace.graph.nodes]
    each = {s.site: [lens.contribution(trace, s.site, h).disagreement for h in range(s.heads)] for s in sites}
    return {"sites": each}


def attribution(trace: Trace, asked: Asked) -> dict[str, Any]:
    return asdict(lens.attribution(trace, asked.token, asked.id))


def ablation(trace: Trace, asked: Asked) -> dict[str, Any]:
    """Of one site when it is said, so that a large model can be asked piece by piece."""
    sites = None if asked.site is None else (lens.flow.site_of(trace, asked.site).site,)
    effects = lens.ablation(trace, asked.token, asked.id, sites)
    return {"sites": {site: listed(effect) for site, effect in effects.items()}}


def gradient(trace: Trace, asked: Asked) -> dict[str, Any]:
    found = lens.gradient_times_input(trace, asked.token, asked.id)
    return {"id": found.id, "values": listed(found.source), "target_values": listed(found.target)}


def gates(trace: Trace, asked: Asked) -> dict[str, Any]:
    found = lens.gates(trace, asked.node or "decoder.states")
    parts = {name: small(x).float().flatten().tolist() for name, x in vars(found).items()}
    return {"shape": list(found.after.shape), **parts}


LENSES: dict[str, Callable[[Trace, Asked], dict[str, Any]]] = {
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


def listed(x: Tensor | None) -> list[float | None] | None:
    """None for what has no number: weights that an edit made negative have no entropy."""
    return None if x is None else [None if math.isnan(each) else each for each in x.tolist()]


def small(x: Tensor) -> Tensor:
    if x.numel() > MOST_CELLS:
        raise TaskError(
            f"This lens shows at most {MOST_CELLS:,} numbers, and the run has {x.numel():,}: shorten the text."
        )
    return x
