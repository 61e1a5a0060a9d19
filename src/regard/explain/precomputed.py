"""What a browser cannot compute from a file's numbers, or not quickly: answers, lenses, and the runs without each head.

In: a `Trace`. Out: JSON-friendly mappings for `contents`. Of a large vocabulary each position keeps its likeliest tokens by
name, and the others in groups of like logits.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.errors import TaskError, TokenizerError
from regard.explain import lens
from regard.explain.graph import Site
from regard.explain.lens.early import said
from regard.explain.lens.effect import Ablating
from regard.explain.parcel import parcel, whole_numbers
from regard.explain.trace import Trace
from regard.model.recurrent import Recurrent

Progress = Callable[[int, int], None]  # heads done, heads in all

FEW_WORDS = 8192  # a vocabulary whose logits are all kept
LIKELIEST, GROUPS = 200, 64  # of a larger one: tokens by name, and groups of the others
WITHOUT = 50  # answers kept of a run without a head
ALL_ANSWERS = 20_000_000  # logits of the runs without a site's heads; beyond it, only those of the last token
GUESSES = 5  # of the logit lens
SPOKEN_FOR, SPOKEN_FOR_BEFORE = 10, 3  # answers that are attributed at the last token and at the others
MANY_TOKENS = 128  # beyond which only the last token's are


def precomputed(trace: Trace, small: bool, ablate: bool, progress: Progress) -> dict[str, Any]:
    """small: the weights are in the file too, so the browser can run the model without a head by itself.

    ablate: run the model again without each head, from its layer on; `progress` hears of each layer.
    """
    found: dict[str, Any] = {"lenses": {"reach": reach(trace)}, "answers": None, "without": None, "pieces": {}}
    if "logits" not in trace:
        return found
    whole, mentioned = whole_vocabulary(trace), set[int]()
    if not whole:
        found["answers"] = likeliest(trace["logits"], mentioned)
    if not isinstance(trace.net, Recurrent):
        found["lenses"] |= {
            "logit_lens": early_guesses(trace, mentioned),
            "rollout": {stack: parcel(lens.attention_rollout(trace, stack)) for stack in looking_at_itself(trace)},
            "attribution": attributions(trace, small),
        }
        if ablate and not trace.edits:
            found["without"] = without_heads(trace, mentioned if not (small and whole) else None, progress)
    ids = range(trace.shape("logits")[-1]) if whole else sorted(mentioned)
    return found | {"pieces": {str(i): spelling(trace, i) for i in ids}}


def whole_vocabulary(trace: Trace) -> bool:
    """Whether all logits are kept."""
    return "logits" not in trace or trace.shape("logits")[-1] <= FEW_WORDS


def spelling(trace: Trace, id: int) -> str:
    """A label or a piece; rows of the vocabulary beyond the tokenizer's have neither."""
    labels = trace.net.spec.head.labels
    if labels and trace.shape("logits")[-1] == len(labels):
        return labels[id]
    try:
        return trace.pieces([id])[0]
    except TokenizerError:
        return f"#{id}"


def rows_of(logits: Tensor) -> Tensor:
    """(N, n_vocab), also where there is one answer for the whole text."""
    return logits if logits.dim() == 2 else logits[None]


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def likeliest(logits: Tensor, mentioned: set[int]) -> dict[str, Any]:
    """Per position: the likeliest ids with their logits, and of the others how many have about which logit.

    A group's logit is that of its mean exponential, so the groups sum to exactly what the softmax divides by.
    """
    values, ids = logits.float().topk(LIKELIEST, -1)
    mentioned.update(ids.flatten().tolist())
    others = logits.double().scatter(-1, ids, -torch.inf).sort(-1, descending=True).values[..., :-LIKELIEST]
    groups = others.tensor_split(GROUPS, -1)
    counts = torch.tensor([group.shape[-1] for group in groups])
    means = torch.stack([group.logsumexp(-1) for group in groups], -1) - counts.to(others).log()
    rest = {"counts": counts.tolist(), "logits": parcel(means)}
    return {"ids": whole_numbers(ids), "logits": parcel(values), "others": rest, "vocabulary": logits.shape[-1]}


@torch.no_grad()
def without_heads(trace: Trace, mentioned: set[int] | None, progress: Progress) -> dict[str, Any]:
    """Each head taken away in turn. effect, by site (h, rows): the change of the likeliest answer's log-probability.

    rows: the positions that are kept. With `mentioned`, also the likeliest answers themselves: ids and logits
    (h, rows, few), and sums, the logarithm of what the softmax divides by.
    """
    base = rows_of(trace["logits"]).double()
    most = max(site.heads for site in trace.graph.sites) * base.numel()
    rows = list(range(len(base))) if most <= ALL_ANSWERS else [len(base) - 1]
    base = base[rows].log_softmax(-1)
    before, best = base.max(-1, keepdim=True)  # (rows, 1)
    found: dict[str, Any] = {"rows": rows, "effect": {}}
    named: dict[str, Any] = {"ids": {}, "logits": {}, "sums": {}}
    heads = list(itertools.accumulate(site.heads for site in trace.graph.sites))
    for site, done in zip(trace.graph.sites, heads, strict=True):
        X = ablated(trace, site, () if len(rows) == len(rows_of(trace["logits"])) else (rows[0],))
        X = X.reshape(site.heads, len(rows), -1)
        sums = X.double().logsumexp(-1)
        found["effect"][site.site] = parcel(X.gather(-1, best.expand(site.heads, -1, -1))[..., 0] - sums - before[:, 0])
        if mentioned is not None:
            values, ids = X.topk(min(WITHOUT, X.shape[-1]), -1)
            mentioned.update(ids.unique().tolist())
            named["ids"][site.site], named["logits"][site.site] = whole_numbers(ids), parcel(values)
            named["sums"][site.site] = parcel(sums)
        progress(done, heads[-1])
    return found if mentioned is None else found | named


def ablated(trace: Trace, site: Site, row: tuple[int, ...]) -> Tensor:
    """Logits with each head of a site missing in turn, (h, …): of one row, or of all."""
    watcher = Ablating(trace=trace, row=row, site=site)
    trace.run.forward(watcher)
    return watcher.logits


# ── lenses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@torch.no_grad()
def early_guesses(trace: Trace, mentioned: set[int]) -> dict[str, Any]:
    """The logit lens of every token at once: what would be said after each block, (nodes, tokens, guesses)."""
    try:
        nodes = [row.node for row in lens.logit_lens(trace, -1, 1)]
    except TaskError as error:
        return {"refused": str(error)}
    most = min(GUESSES, trace.shape("logits")[-1])
    guesses = [rows_of(said(trace, trace[node][None])[0]).double().softmax(-1).topk(most, -1) for node in nodes]
    ids, P = torch.stack([guess.indices for guess in guesses]), torch.stack([guess.values for guess in guesses])
    mentioned.update(ids.flatten().tolist())
    return {"nodes": nodes, "ids": whole_numbers(ids), "probabilities": parcel(P)}


def looking_at_itself(trace: Trace) -> list[str]:
    return list(dict.fromkeys(site.stack for site in trace.graph.sites if site.kind != "cross"))


def reach(trace: Trace) -> dict[str, Any]:
    """By site, (h, T): ‖V[j] W_o[h]‖, what a weight of 1 on token j would let through."""
    found = {}
    for site in trace.graph.sites:
        if f"{site.site}.M" in trace.graph.nodes and f"{site.site}.V" in trace:
            V, W_o = trace[f"{site.site}.V"].float(), trace[f"{site.site}.W_o.weight"].float()
            V = V.repeat_interleave(site.heads // len(V), 0)  # (h, T, d_k)
            found[site.site] = parcel((V @ W_o.unflatten(0, (site.heads, -1))).norm(dim=-1))
    return found


def attributions(trace: Trace, small: bool) -> dict[str, Any]:
    """Who spoke for the likeliest answers: of a small model at every token, of a large one at the last.

    parts: label and node of each part; rows: "token,id" → the parts' values, the biases', and the logit.
    """
    logits = rows_of(trace["logits"])
    last = len(logits) - 1
    tokens = range(len(logits)) if small and last < MANY_TOKENS else (last,)
    found: dict[str, Any] = {"parts": [], "rows": {}}
    try:
        for i in tokens:
            most = min(SPOKEN_FOR if i == last else SPOKEN_FOR_BEFORE, logits.shape[-1])
            for id in logits[i].topk(most).indices.tolist():
                row = lens.attribution(trace, i, id)
                found["parts"] = [[part.label, part.node] for part in row.parts]
                found["rows"][f"{i},{id}"] = [[float(f"{part.value:.6g}") for part in row.parts], row.bias, row.total]
    except TaskError as error:
        return found | {"refused": str(error)}
    return found
