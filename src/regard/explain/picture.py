"""Figures of a run, for papers: `trace.svg("attention", "a.svg", site="decoder.0.attention", head=3)`.

In: a `Trace`, a panel's name and its options. Out: an SVG whose labels are text, or a PNG. Drawn by matplotlib without
pyplot's global state, in the colours of the page: blue to orange around zero, light to dark for weights and probabilities.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from regard.errors import NotFound, TaskError, quoted
from regard.explain.lens.logit_lens import logit_lens
from regard.explain.predictions import answer, answer_positions, answer_row, likeliest, position_caption
from regard.explain.trace import Array, Trace
from regard.model.graph import Site
from regard.model.wiring import wiring

INK, FAINT, LINE = "#1d2129", "#62666e", "#dcd8cd"
DIVERGING = LinearSegmentedColormap.from_list("regard", ["#174a86", "#7fabd8", "#f4f2ec", "#eda867", "#a94e06"])
SEQUENTIAL = LinearSegmentedColormap.from_list("regard-weights", ["#f4f2ec", "#b7bac3", "#646a79", "#1b2130"])
WEIGHTS = "#8f6a00"  # the page's colour for A
STYLE: Any = {
    "svg.fonttype": "none",  # labels stay text
    "svg.hashsalt": "regard",
    "font.size": 8,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": LINE,
    "axes.titlesize": 9,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}
INCH_PER_CELL, LARGEST = 0.22, 12.0
DIGITS_UP_TO = 14  # tokens up to which the cells show their numbers
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML


def write_picture(trace: Trace, panel: str, path: Path, kind: str, **which: Any) -> Path:
    """kind: svg or png. which: site and head, token, or position; by default the first site and the last token."""
    if panel not in PANELS:
        raise NotFound(f"There is no panel {quoted(panel)}; there are {', '.join(PANELS)}.")
    draw, known = PANELS[panel]
    unknown = next((key for key in which if key not in known), None)
    if unknown is not None:
        takes = f"it takes {' and '.join(known)}" if known else "it takes no options"
        raise TaskError(f"The panel {panel} has no option {quoted(unknown)}; {takes}.")
    canvas = {"svg": FigureCanvasSVG, "png": FigureCanvasAgg}.get(kind)
    if canvas is None:
        raise TaskError(f"A picture is svg or png, not {quoted(kind)}.")
    if path.is_dir():
        raise TaskError(f"{path} is a directory; give the name of a file in it.")
    with matplotlib.rc_context(rc=STYLE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"Glyph .* missing from", UserWarning
        )  # a viewer of the SVG may have the glyph
        figure = draw(trace, **which)
        canvas(figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(path, format=kind, dpi=200, bbox_inches="tight", pad_inches=0.08, metadata=metadata)
    return path


# ── labels and positions ──────────────────────────────────────────────────────────────────────────────────────────


def shown(piece: str) -> str:
    """A token as a label: a space as a dot, a line break as an arrow."""
    text = piece.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text) or "∅"


def labels(trace: Trace, axis: str) -> list[str]:
    return [shown(piece) for piece in trace.tokens_of(axis)]


def draw_text(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Text as it is: a token with dollar signs is no formula."""
    ax.text(x, y, text, parse_math=False, **style)


def site_of(trace: Trace, site: str | None) -> Site:
    sites = trace.graph.sites
    if not sites:
        raise TaskError("This run has no attention to draw.")
    if site is None:
        return next((each for each in sites if each.stack == "decoder"), sites[0])
    found = next((each for each in sites if each.site == site), None)
    if found is None:
        raise NotFound(f"There is no attention at {quoted(site)}; there is {', '.join(each.site for each in sites)}.")
    return found


def weights_of(trace: Trace, site: Site, head: int) -> Array:
    if not 0 <= head < site.heads:
        raise NotFound(f"{site.site} has no head {head}; they are 0 to {site.heads - 1}.")
    return trace[site.weights][head]


def token_of(count: int, token: int) -> int:
    if not -count <= token < count:
        raise NotFound(f"There is no token {token}; they are 0 to {count - 1}.")
    return token % count


def answer_position(trace: Trace, position: int | None) -> int:
    """The position of the prediction: by default the last token, the first mask, or the first word of a tagged text."""
    if "logits" not in trace or len(trace.shape("logits")) == 1:
        return -1
    own = answer_positions(trace)
    if position is None:
        return own[0] if own and trace.spec.head.kind != "lm" else -1
    if trace.spec.head.kind == "tag" and token_of(trace.shape("logits")[0], position) not in own:
        raise TaskError(f"Token {position} is not the first piece of a word, so it has no tag.")
    return position


def ticks(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), rows, parse_math=False)
    ax.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor", parse_math=False)
    ax.xaxis.tick_top()
    for side in ax.spines.values():
        side.set_visible(False)


def cells(ax: Axes, x: Array, *, bound: float, diverging: bool = False) -> Any:
    colours = DIVERGING if diverging else SEQUENTIAL
    return ax.imshow(x, cmap=colours, vmin=-bound if diverging else 0, vmax=bound, aspect="auto")


def inches(*counts: int) -> list[float]:
    return [min(max(INCH_PER_CELL * count, 0.9), LARGEST) for count in counts]


# ── panels ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def attention(trace: Trace, site: str | None = None, head: int = 0) -> Figure:
    """One head's weights, queries down and keys across; with numbers if they fit."""
    where = site_of(trace, site)
    A = weights_of(trace, where, head)
    small = max(A.shape) <= DIGITS_UP_TO
    height, width = inches(*(2 * n if small else n for n in A.shape))
    figure = Figure(figsize=(width + 0.8, height))
    ax = figure.subplots()
    picture = cells(ax, A, bound=1.0)
    ticks(ax, labels(trace, where.queries), labels(trace, where.keys))
    if small:
        for (i, j), a in np.ndenumerate(A):
            draw_text(
                ax, j, i, f"{a:.2f}", ha="center", va="center", fontsize=6.5, color="#f7f5f0" if a > 0.55 else INK
            )
    ax.set_title(f"{where.site}, head {head}", loc="left", pad=8)
    figure.colorbar(picture, ax=ax, fraction=0.04, pad=0.02, label="weight").outline.set_visible(False)
    return figure


def heads(trace: Trace, site: str | None = None) -> Figure:
    """Small maps of all heads: blocks down, heads across; or the heads of one site."""
    sites = [site_of(trace, site)] if site is not None else trace.graph.sites
    if not sites:
        raise TaskError("This run has no attention to draw.")
    across = max(each.heads for each in sites)
    size = min(1.1, 16 / across)
    figure = Figure(figsize=(size * across + 0.9, size * len(sites) + 0.4))
    grid = figure.subplots(len(sites), across, squeeze=False, gridspec_kw={"wspace": 0.08, "hspace": 0.08})
    for row, each in zip(grid, sites, strict=True):
        for head, ax in enumerate(row):
            ax.set_xticks([]), ax.set_yticks([])
            for side in ax.spines.values():
                side.set_color(LINE)
            if head >= each.heads:
                ax.set_visible(False)
                continue
            cells(ax, weights_of(trace, each, head), bound=1.0)
            if each is sites[0]:
                ax.set_title(str(head), fontsize=7, pad=2, color=FAINT)
        row[0].set_ylabel(each.site.removesuffix(".attention"), rotation=0, ha="right", va="center", fontsize=7)
    return figure


def lines(trace: Trace, site: str | None = None, head: int = 0) -> Figure:
    """Attention as lines from queries (left) to keys (right), as strong as the weight."""
    where = site_of(trace, site)
    A = weights_of(trace, where, head)
    rows = max(A.shape)
    figure = Figure(figsize=(3.2, min(max(INCH_PER_CELL * rows, 1.0), 2 * LARGEST)))
    ax = figure.subplots()
    ax.axis("off"), ax.set_xlim(0, 1), ax.set_ylim(rows - 0.5, -0.5)
    for side, axis, align in ((0.0, where.queries, "right"), (1.0, where.keys, "left")):
        for i, word in enumerate(labels(trace, axis)):
            draw_text(ax, side + (0.03 if side else -0.03), i, word, ha=align, va="center")
    for i, j in np.argwhere(A > 0.01).tolist():
        a = float(A[i, j])
        ax.plot(
            [0, 1], [i, j], color=WEIGHTS, alpha=min(1.0, 0.05 + a), linewidth=0.3 + 2.2 * a, solid_capstyle="round"
        )
    ax.set_title(f"{where.site}, head {head}", loc="left")
    return figure


def residual(trace: Trace, token: int = -1, stack: str | None = None) -> Figure:
    """The norm of one token's residual stream after every sum, and of what each attention and each MLP adds to it."""
    stacks = list(dict.fromkeys(site.stack for site in trace.graph.sites))
    stack = stack or next((each for each in ("decoder", *stacks) if each in stacks), None)
    if stack not in stacks:
        raise NotFound(
            f"This run has no stack {quoted(stack)} with a residual stream; it has {' and '.join(stacks) or 'none'}."
        )
    blocks = [block for block in wiring(trace.graph).blocks if block.stack == stack]
    added = [(each.node, branch) for block in blocks for each in block.sums for branch in each.branches]
    if not added:
        raise TaskError(f"The {stack} of this model has no residual stream.")
    place = token_of(trace.shape(added[0][0])[0], token)
    size = [[float(np.linalg.norm(trace[name][place])) for name in (total, branch.node)] for total, branch in added]
    figure = Figure(figsize=(0.34 * len(added) + 1.2, 2.4))
    ax = figure.subplots()
    at = range(len(added))
    ax.plot(at, [total for total, _ in size], color=INK, marker="o", markersize=3, linewidth=1, label="the stream")
    ax.bar(
        at,
        [length for _, length in size],
        color=["#7fabd8" if branch.sites else "#eda867" for _, branch in added],
        width=0.6,
    )
    ax.set_xticks(
        at, [b.node.removeprefix(f"{stack}.") for _, b in added], rotation=60, ha="right", rotation_mode="anchor"
    )
    ax.set_ylabel("length ‖x‖")
    word = labels(trace, trace.graph[added[0][0]].axes[0])[place]
    ax.set_title(f"residual stream of {word}: what is there (line), what is added (bars)", loc="left", parse_math=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return figure


def logit_lens_table(trace: Trace, token: int | None = None) -> Figure:
    """The likeliest predictions after each block."""
    token = answer_position(trace, token)
    rows = logit_lens(trace, token)
    most = max(len(row.top) for row in rows)
    figure = Figure(figsize=(1.0 * most + 0.6, max(0.26 * len(rows), 1.0)))
    ax = figure.subplots()
    P = np.array([[guess.probability for guess in row.top] for row in rows])
    cells(ax, P, bound=1.0)
    for y, row in enumerate(rows):
        for x, guess in enumerate(row.top):
            colour = "#f7f5f0" if guess.probability > 0.55 else INK
            draw_text(
                ax,
                x,
                y,
                f"{shown(guess.piece)}  {guess.probability:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color=colour,
            )
    ticks(ax, [row.node for row in rows], [])
    at = answer_row(trace, token)
    after = f" {position_caption(trace, labels(trace, trace.graph['logits'].axes[0])[at[0]])}" if at else ""
    ax.set_title(f"logit lens{after}", loc="left", parse_math=False)
    return figure


def output(trace: Trace, position: int | None = None, most: int = 15) -> Figure:
    """The likeliest predictions as bars."""
    position = answer_position(trace, position)
    row = answer_row(trace, position)
    guesses = likeliest(trace, answer(trace, position), most)
    figure = Figure(figsize=(3.6, max(0.2 * len(guesses), 0.8)))
    ax = figure.subplots()
    ax.barh(range(len(guesses)), [guess.probability for guess in guesses], color="#646a79", height=0.65)
    ax.set_yticks(range(len(guesses)), [shown(guess.piece) for guess in guesses], parse_math=False)
    ax.invert_yaxis()
    for y, guess in enumerate(guesses):
        draw_text(ax, guess.probability + 0.01, y, f"{guess.probability:.3f}", va="center", fontsize=7, color=FAINT)
    ax.set_xlim(0, min(1.0, 1.15 * guesses[0].probability + 0.05))
    ax.set_xlabel("probability")
    after = (
        position_caption(trace, labels(trace, trace.graph["logits"].axes[0])[row[0]]) if row else "of the whole text"
    )
    ax.set_title(after, loc="left", parse_math=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return figure


def tokens(trace: Trace) -> Figure:
    """The tokens with their ids and embeddings."""
    places = [trace.graph[made[-1]] for made in wiring(trace.graph).embeddings.values()]
    sizes = [trace.shape(n.name) for n in places]
    figure = Figure(figsize=(6.5, sum(max(0.2 * N, 0.6) for N, _ in sizes) + 0.4 * len(sizes)))
    axes = figure.subplots(
        len(places), 1, squeeze=False, gridspec_kw={"height_ratios": [N for N, _ in sizes], "hspace": 0.35}
    )
    for ax, node in zip(axes[:, 0], places, strict=True):
        X = trace[node.name]
        ids = trace.target_ids if node.axes[0] == "target" else trace.ids
        cells(ax, X, bound=float(np.quantile(np.abs(X), 0.995)) or 1.0, diverging=True)
        words = [f"{word}  {id}" for word, id in zip(labels(trace, node.axes[0]), ids or [], strict=True)]
        ticks(ax, words, [])
        ax.set_title(f"{node.name}: {X.shape[0]} tokens, {X.shape[1]} features", loc="left")
    return figure


PANELS: dict[str, tuple[Callable[..., Figure], tuple[str, ...]]] = {
    "attention": (attention, ("site", "head")),
    "heads": (heads, ("site",)),
    "lines": (lines, ("site", "head")),
    "residual": (residual, ("token", "stack")),
    "logit_lens": (logit_lens_table, ("token",)),
    "output": (output, ("position", "most")),
    "tokens": (tokens, ()),
}
