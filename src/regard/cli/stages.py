"""The stages of a trace as matrices for the terminal: tokens, attention, mlp, residual, output.

In: a trace, a layer and a head. Out: panels: matrices with names for their rows and columns, and the node that they are of.
`regard explain` prints them, or with `--json` writes them as JSON.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from regard.errors import NotFound
from regard.explain.caption import captions
from regard.explain.logits import largest
from regard.explain.predictions import Guess, answer_positions, likeliest
from regard.explain.trace import Array, Trace
from regard.model.graph import Site
from regard.model.wiring import Block, Wiring, wiring

STAGES = ("tokens", "attention", "mlp", "residual", "output")
NEURONS = 24  # shown: those with the largest activations
GUESSES = 5

VECTORS = {
    "Q": ("what each token asks", "queries"),
    "K": ("what each token offers to be found by", "keys"),
    "V": ("what each token will say", "keys"),
}
MADE = {"rotate": ", turned by its position", "normalise": ", brought to one scale", "affine": ", stretched as learned"}
LEADS = {"dot": "Q Kᵀ; rows look at columns; ", "mask": "mask: ", "softmax": "softmax; rows look at columns; "}


@dataclass(frozen=True)
class Panel:
    """A matrix to print, and which part of which node it is."""

    title: str
    node: str
    at: str  # which part of the node it is: "3, :, :"; empty where the numbers are made from several nodes
    values: Array  # (rows, columns)
    rows: Sequence[str]
    columns: Sequence[str]
    main: bool = False  # shown when all stages are printed
    shares: bool = False  # rows sum to 1

    def to_json(self) -> dict[str, Any]:
        value = {"rows": list(self.rows), "columns": list(self.columns), "values": self.values.tolist()}
        return {"node": self.node, "at": self.at, "title": self.title, **value}


@dataclass(frozen=True)
class View:
    """The trace, layer, head and attention site to show."""

    trace: Trace
    layer: int
    head: int
    site: str | None = None

    def check(self) -> "View":
        """Refuse a layer, head or site that does not exist."""
        sites = self.trace.graph.sites
        if self.site is not None and self.site not in [each.site for each in sites]:
            known = ", ".join(each.site for each in sites if each.layer == self.layer)
            raise NotFound(f"There is no attention at {self.site!r}; in layer {self.layer} there is {known or 'none'}.")
        for name, given, most in (
            ("layer", self.layer, max((each.layer for each in sites), default=0)),
            ("head", self.head, min((each.heads for each in self.sites()), default=1) - 1),
        ):
            if not 0 <= given <= most:
                raise NotFound(f"--{name} is {given}; in this model it can be 0 to {most}.")
        return self

    def sites(self) -> list[Site]:
        """The attention sites of the layer, or the one given by name."""
        if self.site is not None:
            return [each for each in self.trace.graph.sites if each.site == self.site]
        return [each for each in self.trace.graph.sites if each.layer == self.layer]

    def tokens(self, axis: str) -> list[str]:
        return self.trace.tokens_of(axis)

    def blocks(self) -> list[Block]:
        """The blocks of the layer, one in every stack."""
        return [block for block in self.wiring.blocks if block.layer == self.layer]

    @cached_property
    def wiring(self) -> Wiring:
        return wiring(self.trace.graph)


def numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def token_panel(view: View, node: str, title: str, main: bool = False) -> Panel:
    """A panel of a node with one row per token and one column per feature."""
    values = view.trace[node]
    return Panel(
        title, node, ":, :", values, view.tokens(view.trace.graph[node].axes[0]), numbers(values.shape[1]), main
    )


# ── the stages ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tokens(view: View) -> Iterator[Panel]:
    for made in view.wiring.embeddings.values():
        *parts, last = (view.trace.graph[name] for name in made)
        for node in parts:
            if not any(name in view.trace.graph.nodes for name in node.inputs):  # looked up, or counted
                words = "the embedding of each token" if node.looks_up_ids else "which segment it is in"
                words = "its position" if node.counts_positions else words
                yield token_panel(view, node.name, f"{words}; columns are features")
        yield token_panel(view, last.name, "what enters the first block; columns are features", main=True)


def attention(view: View) -> Iterator[Panel]:
    for site in view.sites():
        queries, keys = view.tokens(site.queries), view.tokens(site.keys)
        yield from vectors(view, site)
        said = captions(view.trace, site, view.head)
        for node in site.steps:
            at, main, op = f"{view.head}, :, :", node == site.weights, view.trace.graph[node]
            words = (LEADS.get(op.op, "") if op.single else "") + said[node]
            yield Panel(words, node, at, view.trace[node][view.head], queries, keys, main, shares=main)
        Z = view.trace[site.Z][view.head]
        words = f"the head's output: {said[site.Z]}"
        yield Panel(words, site.Z, f"{view.head}, :, :", Z, queries, numbers(Z.shape[1]))


def vectors(view: View, site: Site) -> Iterator[Panel]:
    """Q, K and V of the head, and what they were before; grouped heads share keys and values."""
    for part, (words, whose) in VECTORS.items():
        name = getattr(site, part)
        for node in (
            () if name is None or "channel" not in view.trace.graph[name].axes else view.trace.graph.way_to(name)
        ):
            values = view.trace[node]
            h, made = view.head * len(values) // site.heads, MADE.get(view.trace.graph[node].op, "")
            rows = view.tokens(getattr(site, whose))
            yield Panel(f"{words}{made}", node, f"{h}, :, :", values[h], rows, numbers(values.shape[-1]))


def mlp(view: View) -> Iterator[Panel]:
    here = {out for block in view.blocks() for each in block.sums for branch in each.branches for out in branch.mlps}
    for each in (mlp for mlp in view.wiring.mlps if mlp.out in here):
        fired = each.gated or each.act
        values = view.trace[fired]
        loud = sorted(largest(np.abs(values).max(0), NEURONS)[1].tolist())
        rows, columns = view.tokens(view.trace.graph[fired].axes[0]), [str(n) for n in loud]
        words = f"the {len(loud)} most active of {values.shape[1]:,} neurons, after the activation"
        yield Panel(words, fired, ":, neurons", values[:, loud], rows, columns, main=True)
        yield Panel("the same neurons before it", each.up, ":, neurons", view.trace[each.up][:, loud], rows, columns)
        yield token_panel(view, each.out, "what the MLP adds; columns are features")


def residual(view: View) -> Iterator[Panel]:
    for here in view.blocks():
        blocks = [block.out for block in view.wiring.blocks if block.stack == here.stack]
        first, graph = view.wiring.embeddings[here.stack][-1], view.trace.graph
        rows = view.tokens(graph[first].axes[0])
        title = f"{here.stack}: length ‖x‖ of each token after the embedding (e) and each block"
        yield Panel(title, first, "", lengths(view, first, *blocks), rows, ["e", *numbers(len(blocks))], main=True)
        parts = [name for each in here.sums for name in (*(branch.node for branch in each.branches), each.node)]
        parts += [here.out] if here.out not in parts else []
        columns = [name.removeprefix(f"{here.place}.") for name in parts]
        title = f"{here.place}: lengths of what is added, and of the sums"
        yield Panel(title, here.out, "", lengths(view, *parts), rows, columns)
        for norm in view.wiring.norms:
            if norm.out.startswith(f"{here.place}.") and len(graph[norm.out].axes) == 2:
                by = [name for name in (norm.mean, norm.spread) if name is not None]
                values = np.stack([view.trace[name][:, 0] for name in by], 1)
                title = f"{norm.out.rpartition('.')[0]}: what each token is normalised by"
                yield Panel(title, norm.out, "", values, rows, [graph[name].op for name in by])


def lengths(view: View, *nodes: str) -> Array:
    return np.stack([np.linalg.norm(view.trace[node], axis=-1) for node in nodes], 1)  # (tokens, nodes)


def output(view: View) -> Iterator[Panel]:
    """Not matrices: see `answers`."""
    return iter(())


PANELS: dict[str, Callable[[View], Iterator[Panel]]] = {
    "tokens": tokens,
    "attention": attention,
    "mlp": mlp,
    "residual": residual,
    "output": output,
}


def predictions(trace: Trace) -> list[tuple[str, list[Guess]]]:
    """The model's predictions: after which token (or for which), and the most likely outcomes."""
    if "logits" not in trace:
        return []
    logits = trace["logits"]
    if logits.ndim == 1:
        return [("the whole text", likeliest(trace, logits, GUESSES))]
    words = trace.tokens_of(trace.graph["logits"].axes[0])
    return [(words[i], likeliest(trace, logits[i], GUESSES)) for i in answer_positions(trace)]
