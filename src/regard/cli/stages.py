"""The stages of a run as matrices to look at: tokens, attention, mlp, residual, output.

In: a trace, a layer and a head. Out: panels, which are numbers with names for their rows and columns and the node they are
of; the terminal draws them and `--json` writes them down.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, stack

from regard.errors import NotFound
from regard.explain.caption import captions
from regard.explain.graph import Site
from regard.explain.outcome import Guess, answering, likeliest
from regard.explain.trace import Trace

STAGES = ("tokens", "attention", "mlp", "residual", "output")
NEURONS = 24  # the loudest ones are shown
GUESSES = 5
SUMS = ("attention.M", "H", "cross.M", "C", "mlp.out", "H_2", "out")  # what is added to the stream, and the sums

VECTORS = {
    "Q": ("what each token asks", "queries"),
    "K": ("what each token offers to be found by", "keys"),
    "V": ("what each token will say", "keys"),
}
MATRICES = {"dots": "Q Kᵀ; rows look at columns", "masked": "mask: ", "weights": "softmax; rows look at columns; "}


@dataclass(frozen=True)
class Panel:
    title: str
    node: str
    at: str  # what of the node it is: "3, :, :"; empty where the numbers are made from several nodes
    values: Tensor  # (rows, columns)
    rows: Sequence[str]
    columns: Sequence[str]
    main: bool = False  # shown when all stages are walked through
    shares: bool = False  # rows sum to 1

    def to_json(self) -> dict[str, Any]:
        value = {"rows": list(self.rows), "columns": list(self.columns), "values": self.values.tolist()}
        return {"node": self.node, "at": self.at, "title": self.title, **value}


@dataclass(frozen=True)
class View:
    """Where in the run one looks."""

    trace: Trace
    layer: int
    head: int
    site: str | None = None

    def check(self) -> "View":
        """A layer, head or site that is not there gets a sentence."""
        sites = self.trace.graph.sites
        if self.site is not None and self.site not in [each.site for each in sites]:
            known = ", ".join(each.site for each in sites if each.layer == self.layer)
            raise NotFound(f"There is no attention at {self.site!r}; in layer {self.layer} there is {known or 'none'}.")
        for name, given, most in (
            ("layer", self.layer, max((each.layer for each in sites), default=0)),
            ("head", self.head, min((each.heads for each in self.sites()), default=1) - 1),
        ):
            if not 0 <= given <= most:
                raise NotFound(f"--{name} is {given}, but they go from 0 to {most} here.")
        return self

    def sites(self) -> list[Site]:
        """The attentions of the layer, or the one that was named."""
        if self.site is not None:
            return [each for each in self.trace.graph.sites if each.site == self.site]
        return [each for each in self.trace.graph.sites if each.layer == self.layer]

    def tokens(self, axis: str) -> list[str]:
        return self.trace.tokens_of(axis)

    def named(self, suffix: str) -> list[str]:
        """Nodes of the layer, in every stack, that end so."""
        return [name for stack in ("encoder", "decoder") if (name := f"{stack}.{self.layer}.{suffix}") in self.trace]


def numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def token_panel(view: View, node: str, title: str, main: bool = False) -> Panel:
    """A node of one row per token and one column per feature."""
    values = view.trace[node]
    return Panel(
        title, node, ":, :", values, view.tokens(view.trace.graph[node].axes[0]), numbers(values.shape[1]), main
    )


# ── the stages ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tokens(view: View) -> Iterator[Panel]:
    told = {"tokens": "the embedding of each token", "positions": "where it stands", "types": "which segment it is in"}
    told |= {"out": "what enters the first block"}
    for place in ("embed", "encoder.embed", "decoder.embed"):
        for part, words in told.items():
            if (node := f"{place}.{part}") in view.trace:
                yield token_panel(view, node, f"{words}; columns are features", main=part == "out")


def attention(view: View) -> Iterator[Panel]:
    for site in view.sites():
        asks, keys = view.tokens(site.queries), view.tokens(site.keys)
        yield from vectors(view, site)
        said = captions(view.trace, site, view.head)
        for part in ("dots", "scores", "masked", "weights"):
            if (node := f"{site.site}.{part}") in view.trace:
                at, main = f"{view.head}, :, :", part == "weights"
                words = MATRICES.get(part, "") + said.get(part, "")
                yield Panel(words, node, at, view.trace[node][view.head], asks, keys, main, shares=main)
        node = f"{site.site}.Z"
        Z = view.trace[node][view.head]
        yield Panel(f"what the head hands on: {said['Z']}", node, f"{view.head}, :, :", Z, asks, numbers(Z.shape[1]))


def vectors(view: View, site: Site) -> Iterator[Panel]:
    """Q, K and V of the head; grouped heads share keys and values."""
    for part, (words, whose) in VECTORS.items():
        for name, turned in ((part, ""), (f"{part}_rotated", ", turned by its position")):
            if (node := f"{site.site}.{name}") in view.trace:
                values = view.trace[node]
                h = view.head * len(values) // site.heads
                rows = view.tokens(getattr(site, whose))
                yield Panel(f"{words}{turned}", node, f"{h}, :, :", values[h], rows, numbers(values.shape[-1]))


def mlp(view: View) -> Iterator[Panel]:
    for act in view.named("mlp.act"):
        gated = act.replace(".act", ".gated")
        fired = gated if gated in view.trace else act
        values = view.trace[fired]
        loud = sorted(values.abs().amax(0).topk(min(NEURONS, values.shape[1])).indices.tolist())
        rows, columns = view.tokens(view.trace.graph[act].axes[0]), [str(n) for n in loud]
        words = f"the {len(loud)} loudest of {values.shape[1]:,} neurons, after the activation"
        yield Panel(words, fired, ":, neurons", values[:, loud], rows, columns, main=True)
        up = act.replace(".act", ".up")
        yield Panel("the same neurons before it", up, ":, neurons", view.trace[up][:, loud], rows, columns)
        yield token_panel(view, act.replace(".act", ".out"), "what the MLP adds; columns are features")


def residual(view: View) -> Iterator[Panel]:
    for name in ("encoder", "decoder"):
        blocks = [node for node in view.trace.nodes() if re.fullmatch(rf"{name}\.\d+\.out", node)]
        if not blocks:
            continue
        first = f"{name}.embed.out" if f"{name}.embed.out" in view.trace else "embed.out"
        rows = view.tokens(view.trace.graph[first].axes[0])
        title = f"{name}: length ‖x‖ of each token after the embedding (e) and each block"
        yield Panel(title, first, "", lengths(view, first, *blocks), rows, ["e", *numbers(len(blocks))], main=True)
        block = f"{name}.{view.layer}"
        parts = [part for part in SUMS if f"{block}.{part}" in view.trace]
        values = lengths(view, *(f"{block}.{part}" for part in parts))
        yield Panel(f"{block}: lengths of what is added, and of the sums", f"{block}.out", "", values, rows, parts)
        for norm in ("norm_1", "norm_cross", "norm_2"):
            facts = [part for part in ("mean", "variance", "mean_square") if f"{block}.{norm}.{part}" in view.trace]
            if facts:
                values = stack([view.trace[f"{block}.{norm}.{part}"][:, 0].float() for part in facts], 1)
                title = f"{block}.{norm}: what each token is normalised by"
                yield Panel(title, f"{block}.{norm}.out", "", values, rows, facts)


def lengths(view: View, *nodes: str) -> Tensor:
    return stack([view.trace[node].float().norm(dim=-1) for node in nodes], 1)  # (tokens, nodes)


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


def answers(trace: Trace) -> list[tuple[str, list[Guess]]]:
    """What the run says in the end: after which token (or for which), and the likeliest outcomes."""
    if "logits" not in trace:
        return []
    logits = trace["logits"]
    if logits.dim() == 1:
        return [("the whole text", likeliest(trace, logits, GUESSES))]
    words = trace.tokens_of(trace.graph["logits"].axes[0])
    return [(words[i], likeliest(trace, logits[i], GUESSES)) for i in answering(trace)]
