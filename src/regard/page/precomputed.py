"""Results that the browser cannot compute from an exported file, or not quickly: predictions, lenses, ablations.

In: a `Trace`. Out: JSON-friendly mappings for `contents`. Of a large vocabulary each position has its likeliest tokens, and
the others in groups of similar logits.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from regard.errors import TaskError, TokenizerError
from regard.explain import lens
from regard.explain.lens.ablation import Ablating
from regard.explain.lens.logit_lens import head_logits
from regard.explain.logits import largest, log_softmax, logsumexp, softmax
from regard.explain.trace import Array, Trace
from regard.model.graph import Site
from regard.page.tensor_codec import encode, encode_integers

Progress = Callable[[int, int], None]  # heads done, heads in all

SMALL_VOCABULARY = 8192  # up to which all logits are stored
LIKELIEST, GROUPS = 200, 64  # of a larger vocabulary: single tokens, and groups of the others
ABLATED_TOKENS = 50  # predictions stored of a run without a head
MAX_LOGITS = 20_000_000  # of the runs without each of a site's heads; beyond it, only those of the last token
GUESSES = 5  # per row of the logit lens
ATTRIBUTED_LAST, ATTRIBUTED = 10, 3  # predictions with an attribution, at the last token and at the others
MANY_TOKENS = 128  # beyond which only the last token has attributions


def precomputed(trace: Trace, small: bool, ablate: bool, progress: Progress) -> dict[str, Any]:
    """small: the weights are in the file, so the browser can ablate heads by itself.

    ablate: run the model without each head, from its layer on; `progress` is called after each site.
    """
    found: dict[str, Any] = {"lenses": {"reach": reach(trace)}, "answers": None, "without": None, "pieces": {}}
    if "logits" not in trace:
        return found
    whole, mentioned = whole_vocabulary(trace), set[int]()
    if not whole:
        found["answers"] = likeliest(trace["logits"], mentioned)
    if trace.spec.recurrent is None:
        found["lenses"] |= {
            "logit_lens": logit_lens_rows(trace, mentioned),
            "rollout": {stack: encode(lens.attention_rollout(trace, stack)) for stack in self_attention_stacks(trace)},
            "attribution": attributions(trace, small),
        }
        if ablate and not trace.edits:
            found["without"] = without_heads(trace, mentioned if not (small and whole) else None, progress)
    ids = range(trace.shape("logits")[-1]) if whole else sorted(mentioned)
    return found | {"pieces": {str(i): spelling(trace, i) for i in ids}}


def whole_vocabulary(trace: Trace) -> bool:
    """Whether all logits are stored."""
    return "logits" not in trace or trace.shape("logits")[-1] <= SMALL_VOCABULARY


def spelling(trace: Trace, id: int) -> str:
    """A label or a token's text; ids beyond the tokenizer's vocabulary have neither and get a number."""
    labels = trace.spec.head.labels
    if labels and trace.shape("logits")[-1] == len(labels):
        return labels[id]
    try:
        return trace.pieces([id])[0]
    except TokenizerError:
        return f"#{id}"


def rows_of(logits: Array) -> Array:
    """(N, n_vocab); N is 1 if there is one prediction for the whole text."""
    return logits if logits.ndim == 2 else logits[None]


# ── predictions ───────────────────────────────────────────────────────────────────────────────────────────────────


def likeliest(logits: Array, mentioned: set[int]) -> dict[str, Any]:
    """Per position: the likeliest ids with their logits, and the sizes and mean logits of groups of the others.

    A group's logit is log mean exp of its logits, so the groups add up to exactly the denominator of the softmax.
    """
    values, ids = largest(logits, LIKELIEST)
    mentioned.update(ids.flatten().tolist())
    others = logits.astype(np.float64)
    np.put_along_axis(others, ids, -np.inf, -1)
    others = -np.sort(-others, -1)[..., : -ids.shape[-1]]
    groups = np.array_split(others, GROUPS, -1)
    counts = [group.shape[-1] for group in groups]
    means = np.stack([logsumexp(group) for group in groups], -1) - np.log(counts)
    rest = {"counts": counts, "logits": encode(means)}
    return {"ids": encode_integers(ids), "logits": encode(values), "others": rest, "vocabulary": logits.shape[-1]}


def without_heads(trace: Trace, mentioned: set[int] | None, progress: Progress) -> dict[str, Any]:
    """Each head ablated in turn. effect, by site (h, rows): the change of the likeliest answer's log-probability.

    rows: the positions that are stored. With `mentioned`, also the likeliest predictions: ids and logits (h, rows, few),
    and sums, the logarithm of the softmax's denominator.
    """
    base = rows_of(trace["logits"]).astype(np.float64)
    most = max(site.heads for site in trace.graph.sites) * base.size
    rows = list(range(len(base))) if most <= MAX_LOGITS else [len(base) - 1]
    base = log_softmax(base[rows])
    before, best = base.max(-1), base.argmax(-1)[:, None]  # (rows,), (rows, 1)
    found: dict[str, Any] = {"rows": rows, "effect": {}}
    named: dict[str, Any] = {"ids": {}, "logits": {}, "sums": {}}
    heads = list(itertools.accumulate(site.heads for site in trace.graph.sites))
    for site, done in zip(trace.graph.sites, heads, strict=True):
        X = ablated(trace, site, () if len(rows) == len(rows_of(trace["logits"])) else (rows[0],))
        X = X.reshape(site.heads, len(rows), -1)
        sums = logsumexp(X.astype(np.float64))
        there = np.take_along_axis(X, np.broadcast_to(best, (site.heads, *best.shape)), -1)[..., 0]
        found["effect"][site.site] = encode(there - sums - before)
        if mentioned is not None:
            values, ids = largest(X, ABLATED_TOKENS)
            mentioned.update(np.unique(ids).tolist())
            named["ids"][site.site], named["logits"][site.site] = encode_integers(ids), encode(values)
            named["sums"][site.site] = encode(sums)
        progress(done, heads[-1])
    return found if mentioned is None else found | named


def ablated(trace: Trace, site: Site, row: tuple[int, ...]) -> Array:
    """Logits with each head of a site ablated, (h, …): of one row, or of all."""
    observer = Ablating(trace=trace, row=row, site=site)
    trace.run.forward(observer)
    return observer.logits


# ── lenses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def logit_lens_rows(trace: Trace, mentioned: set[int]) -> dict[str, Any]:
    """The logit lens at every token: ids and probabilities after each block, (nodes, tokens, guesses)."""
    try:
        nodes = [row.node for row in lens.logit_lens(trace, -1, 1)]
    except TaskError as error:
        return {"refused": str(error)}
    guesses = [largest(softmax(rows_of(head_logits(trace, trace[node])).astype(np.float64)), GUESSES) for node in nodes]
    P, ids = (np.stack(each) for each in zip(*guesses, strict=True))
    mentioned.update(ids.flatten().tolist())
    return {"nodes": nodes, "ids": encode_integers(ids), "probabilities": encode(P)}


def self_attention_stacks(trace: Trace) -> list[str]:
    return list(dict.fromkeys(site.stack for site in trace.graph.sites if site.kind != "cross"))


def reach(trace: Trace) -> dict[str, Any]:
    """By site, (h, T): ‖V[j] W_o[h]‖, what a weight of 1 on token j would contribute."""
    found = {}
    for site in trace.graph.sites:
        M, values = trace.graph.output_of(site), trace.graph.mix_of(site).inputs[1]
        if M is not None and values in trace:
            V, W_o = trace[values], trace[M.inputs[1]]
            V = V.repeat(site.heads // len(V), 0)  # (h, T, d_k)
            found[site.site] = encode(np.linalg.norm(V @ W_o.reshape(site.heads, -1, W_o.shape[-1]), axis=-1))
    return found


def attributions(trace: Trace, small: bool) -> dict[str, Any]:
    """Attributions of the likeliest predictions: of a small model at every token, of a large one at the last.

    parts: label and node of each part; rows: "token,id" → the parts' values, the bias, and the logit.
    """
    logits = rows_of(trace["logits"])
    last = len(logits) - 1
    tokens = range(len(logits)) if small and last < MANY_TOKENS else (last,)
    found: dict[str, Any] = {"parts": [], "rows": {}}
    try:
        for i in tokens:
            most = min(ATTRIBUTED_LAST if i == last else ATTRIBUTED, logits.shape[-1])
            for id in largest(logits[i], most)[1].tolist():
                row = lens.attribution(trace, i, id)
                found["parts"] = [[part.label, part.node] for part in row.parts]
                found["rows"][f"{i},{id}"] = [[float(f"{part.value:.6g}") for part in row.parts], row.bias, row.total]
    except TaskError as error:
        return found | {"refused": str(error)}
    return found
