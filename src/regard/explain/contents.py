"""What a run takes along when it is handed on: enough numbers to look at all of it, and no more than a file should hold.

In: a `Trace`. Out: one JSON-friendly mapping. How much is kept depends on how much there is, the first that fits:

    everything, exactly (float32)      toy models: every node and every weight, so that a browser can even run edits
    the base, exactly                  what cannot be computed from other nodes without weights: embeddings, Q, K, V, M,
    the base, in half precision        the MLP's up and out; scores, weights, Z, sums and norms follow from these
    the base, rounded                  to 8 significant bits, neurons to 6: a GPT-2 of 124 million parameters on 64 tokens

Of a large vocabulary each position keeps its likeliest tokens and the others in groups of like logits.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import TaskError, TokenizerError
from regard.explain import lens
from regard.explain.graph import Node, weight
from regard.explain.lens.early import said
from regard.explain.lens.effect import Ablating
from regard.explain.parcel import EXACT, HALF, fits_half, parcel, whole_numbers
from regard.explain.told import facts, told
from regard.explain.trace import Trace
from regard.model.recurrent import Recurrent
from regard.nn.mlp import ACTIVATIONS
from regard.nn.position import Rotary, Sinusoidal

PLAIN, BUDGET, MOST = 4 << 20, 7 << 20, 64 << 20  # bytes of numbers: kept whole, aimed at, refused beyond
FEW_PARAMETERS = 1_200_000  # of which all are taken along
FEW_WORDS = 8192  # a vocabulary whose logits are all kept
LIKELIEST, GROUPS = 200, 64  # of a larger one: tokens by name, and groups of the others
WITHOUT = 10  # answers kept of a run without a head
ALL_ANSWERS = 20_000_000  # logits of a site's ablated runs; beyond it, only those of the last token
NEEDS_WEIGHTS = ("lookup", "linear", "concat", "joined", "gru", "additive")
ROUGH, NEURONS = 8, 6  # significant bits when there is much to keep: bfloat16's; and of neurons, which are most of it


@dataclass(frozen=True)
class Keeping:
    """What is kept of a run's nodes, and with how many significant bits."""

    all: bool
    bits: int
    names: tuple[str, ...]

    def bits_for(self, node: Node, x: Tensor) -> int:
        if self.bits >= EXACT or not fits_half(x):
            return EXACT
        return NEURONS if self.bits == ROUGH and "neuron" in node.axes else self.bits


def contents(trace: Trace, name: str, text: str) -> dict[str, Any]:
    kept, small = keeping(trace), parameters(trace) <= FEW_PARAMETERS
    spec = trace.net.spec
    card = {
        "name": name,
        "kind": spec.kind,
        "family": spec.family,
        "head": spec.head.kind,
        "about": "",
        "examples": [text],
    }
    return {
        "model": facts(name, spec),
        "card": card,
        "trace": {"trace": "plain", "model": name, "text": text, **told(trace), "milliseconds": 0.0},
        "facts": {node.name: node_facts(node) for node in trace.graph},
        "keeps": {"all": kept.all, "bits": kept.bits, "weights": small},
        "nodes": {each: parcel(trace[each], kept.bits_for(trace.graph[each], trace[each])) for each in kept.names},
        "weights": weights(trace, small),
        "spelt": trace.tokenizer is not None,  # otherwise ids stand for themselves
        "pieces": {},
        **said_in_the_end(trace, small),
    }


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def parameters(trace: Trace) -> int:
    return sum(p.numel() for p in trace.net.parameters())


def whole_vocabulary(trace: Trace) -> bool:
    return "logits" not in trace or trace.shape("logits")[-1] <= FEW_WORDS


def keeping(trace: Trace) -> Keeping:
    """The first way of keeping that fits."""
    left_out = {"probabilities"} if whole_vocabulary(trace) else {"probabilities", "logits"}
    every = tuple(node.name for node in trace.graph if node.name in trace and node.name not in left_out)
    base = tuple(name for name in every if trace.graph[name].op in NEEDS_WEIGHTS)
    if size(trace, every, 4) <= PLAIN:
        return Keeping(True, EXACT, every)
    for bits, width in ((EXACT, 3.6), (HALF, 1.7)):
        if size(trace, base, width) <= BUDGET:
            return Keeping(False, bits, base)
    needed = size(trace, base, 1.25)
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
        value = weight(trace.net, name)
        if value is None or not (all or name in norms):
            continue
        flip = value.shape != p.shape or (value.dim() == 2 and value.stride() != p.stride())
        if p.data_ptr() in first:
            found[name] = {"of": first[p.data_ptr()], "flip": flip}
        else:
            first[p.data_ptr()] = name
            found[name] = {"flip": flip, **parcel(p)}
    return found


def node_facts(node: Node) -> dict[str, Any]:
    """What the rules of why need to know beside the operands, in JSON's words."""
    return {key: plain_fact(value) for key, value in node.facts.items() if value is not None}


def plain_fact(value: Any) -> Any:
    if isinstance(value, Sinusoidal):
        return {"d": value.d, "halves": value.halves, "stretch": value.stretch, "offset": value.offset}
    if isinstance(value, Rotary):
        return {"frequencies": value.frequencies(torch.device("cpu")).tolist()}
    if callable(value):
        return next(name for name, function in ACTIVATIONS.items() if function is value)
    return value


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def said_in_the_end(trace: Trace, small: bool) -> dict[str, Any]:
    """The answers, the lenses, the runs without a head, and the spelling of every id that occurs in them."""
    if "logits" not in trace:
        return {"lenses": {"reach": reach(trace)}, "answers": None, "without": None}
    lenses, mentioned = lenses_of(trace, small)
    answers = None if whole_vocabulary(trace) else likeliest(trace["logits"])
    without = without_heads(trace, names=not (small and whole_vocabulary(trace)))
    if whole_vocabulary(trace):
        ids = set(range(trace.shape("logits")[-1]))
    else:
        ids = mentioned | {*top(trace["logits"], LIKELIEST)[1].flatten().tolist()} | without.pop("mentioned")
    without.pop("mentioned", None)
    if without.get("ids") is not None:
        without["ids"] = {site: whole_numbers(x) for site, x in without["ids"].items()}
    return {"lenses": lenses, "answers": answers, "without": without, "pieces": spelling(trace, sorted(ids))}


def top(logits: Tensor, most: int) -> tuple[Tensor, Tensor]:
    found = logits.float().topk(min(most, logits.shape[-1]), -1)
    return found.values, found.indices


def likeliest(logits: Tensor) -> dict[str, Any]:
    """Per position: the likeliest ids with their logits, and of the others how many have about which logit.

    A group's logit is that of its mean exponential, so the groups sum exactly to what the softmax divides by.
    """
    values, ids = top(logits, LIKELIEST)
    rest = logits.double().scatter(-1, ids, -torch.inf).sort(-1, descending=True).values[..., : -ids.shape[-1]]
    groups = torch.tensor_split(rest, GROUPS, dim=-1)
    means = torch.stack([g.logsumexp(-1) - torch.tensor(float(g.shape[-1])).log() for g in groups], -1)
    counts = torch.tensor([g.shape[-1] for g in groups])
    return {
        "ids": whole_numbers(ids),
        "logits": parcel(values),
        "others": {"counts": counts.tolist(), "logits": parcel(means)},
        "vocabulary": logits.shape[-1],
    }


def spelling(trace: Trace, ids: list[int]) -> dict[str, str]:
    labels = trace.net.spec.head.labels
    if labels and trace.shape("logits")[-1] == len(labels):
        return {str(i): label for i, label in enumerate(labels)}
    return {str(i): piece(trace, i) for i in ids}


def piece(trace: Trace, id: int) -> str:
    """Rows of the vocabulary beyond the tokenizer's have no spelling."""
    try:
        return trace.pieces([id])[0]
    except TokenizerError:
        return f"#{id}"


# ── lenses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def lenses_of(trace: Trace, small: bool) -> tuple[dict[str, Any], set[int]]:
    """Lenses, and the ids they mention. Heads and contributions are computed where they are looked at."""
    found: dict[str, Any] = {"reach": reach(trace)}
    if isinstance(trace.net, Recurrent):
        return found, set()
    early, mentioned = early_guesses(trace)
    stacks = dict.fromkeys(site.stack for site in trace.graph.sites)
    found["logit_lens"] = early
    found["rollout"] = {stack: parcel(lens.attention_rollout(trace, stack)) for stack in stacks}
    found["attribution"] = attributions(trace, small)
    return found, mentioned


@torch.no_grad()
def early_guesses(trace: Trace, most: int = 5) -> tuple[dict[str, Any], set[int]]:
    """The logit lens of every token at once: what would be said after each block, (nodes, tokens, most)."""
    nodes = [row.node for row in lens.logit_lens(trace, -1, 1)]
    guesses = [
        said(trace, trace[node][None])[0].double().softmax(-1).topk(min(most, trace.shape("logits")[-1]), -1)
        for node in nodes
    ]
    ids, P = (torch.stack(each) for each in ([g.indices for g in guesses], [g.values for g in guesses]))
    return {"nodes": nodes, "ids": whole_numbers(ids), "probabilities": parcel(P)}, {*ids.flatten().tolist()}


def reach(trace: Trace) -> dict[str, Any]:
    """Per site, (h, T): ‖V[j] W_o[h]‖, what a weight of 1 on token j would let through."""
    found = {}
    for site in trace.graph.sites:
        if f"{site.site}.M" not in trace.graph.nodes or f"{site.site}.V" not in trace:
            continue
        V, W_o = trace[f"{site.site}.V"].float(), trace[f"{site.site}.W_o.weight"].float()
        V = V.repeat_interleave(site.heads // len(V), 0)  # (h, T, d_k)
        found[site.site] = parcel((V @ W_o.unflatten(0, (site.heads, -1))).norm(dim=-1))
    return found


def attributions(trace: Trace, small: bool) -> dict[str, Any]:
    """Who spoke for the likeliest answers: of a small model at every token, of a large one at the last."""
    logits = trace["logits"] if len(trace.shape("logits")) == 2 else trace["logits"][None]
    last = len(logits) - 1
    asked = [(i, 20 if i == last else 5) for i in range(len(logits))] if small and last < 128 else [(last, 5)]
    found: dict[str, Any] = {"rows": {}}
    try:
        for i, most in asked:
            for id in top(logits[i], most)[1].tolist():
                row = lens.attribution(trace, i, id)
                found["parts"] = [[part.label, part.node] for part in row.parts]
                values = [float(f"{part.value:.6g}") for part in row.parts]
                found["rows"][f"{i},{id}"] = [values, row.bias, row.total]
    except TaskError as error:
        found["refused"] = str(error)
    return found


@torch.no_grad()
def without_heads(trace: Trace, names: bool) -> dict[str, Any]:
    """Each head taken away in turn. effect: what that does to the log-probability of the likeliest answer, per site (h, N).

    names: also the likeliest answers themselves, where the browser cannot compute them. rows: the positions there are.
    """
    shape = trace.shape("logits")
    if isinstance(trace.net, Recurrent):
        return {"effect": {}, "rows": [], "mentioned": set()}
    heads = max((site.heads for site in trace.graph.sites), default=1)
    every = len(shape) == 1 or heads * shape[0] * shape[1] <= ALL_ANSWERS
    rows = list(range(shape[0])) if every and len(shape) == 2 else [shape[0] - 1] if len(shape) == 2 else [0]
    base = trace["logits"].double() if len(shape) == 2 else trace["logits"].double()[None]
    base = base[rows]  # (rows, n_vocab)
    best = base.argmax(-1)
    effect, ids, logits, sums = dict[str, Any](), dict[str, Tensor](), dict[str, Any](), dict[str, Any]()
    for site in trace.graph.sites:
        X = ablated(trace, site, () if every else (rows[0],)).reshape(site.heads, len(rows), -1)
        total = X.double().logsumexp(-1)  # (h, rows)
        at_best = X.gather(-1, best.expand(site.heads, -1)[..., None])[..., 0]
        before = base.gather(-1, best[:, None])[:, 0] - base.logsumexp(-1)
        effect[site.site] = parcel(at_best - total - before)
        if names:
            values, ids[site.site] = top(X, WITHOUT)
            logits[site.site], sums[site.site] = parcel(values), parcel(total)
    found = {"effect": effect, "rows": rows, "mentioned": {int(i) for x in ids.values() for i in x.unique()}}
    return found | ({"ids": ids, "logits": logits, "sums": sums} if names else {})


def ablated(trace: Trace, site: Any, row: tuple[int, ...]) -> Tensor:
    """Logits with each head of a site missing in turn, (h, …)."""
    watcher = Ablating(trace=trace, row=row, site=site)
    trace.run.forward(watcher)
    return watcher.logits
