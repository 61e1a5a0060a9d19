"""Worksheets to print: exercises on A4 pages with blanks, and the answers on pages of their own.

In: a trace, a seed, a level and for how many students. Out: one HTML document with its own style and no script, which opens
from disk. Every student's sheet has another head, row and slice; the same seed gives the same sheets. All text is escaped.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from typing import Literal

from regard.explain.trace import Trace
from regard.teach.worksheet import Blank, Exercise, Key, exercises

Part = Literal["sheets", "key", "both"]

STYLE = """
@page { size: A4; margin: 16mm 15mm; }
* { box-sizing: border-box; }
body { font: 10.5pt/1.35 Georgia, "Times New Roman", serif; color: #111; margin: 0 auto; max-width: 180mm; }
section { break-after: page; }
section:last-child { break-after: auto; }
header { display: flex; justify-content: space-between; border-bottom: 1px solid #111; padding-bottom: 1.5mm; }
h1 { font-size: 14pt; margin: 4mm 0 1mm; } h2 { font-size: 11pt; margin: 3.5mm 0 .5mm; }
p { margin: 1mm 0; } .small { font-size: 9pt; color: #444; }
.name { flex: 1; margin-left: 10mm; text-align: right; }
.line { display: inline-block; width: 60mm; border-bottom: 1px solid #111; }
.text span { display: inline-block; padding: 0 .8mm; border-radius: 1mm; background: #f1f1ee; margin-right: .5mm;
  white-space: pre-wrap; }
.text span.asked { background: #111; color: #fff; print-color-adjust: exact; }
table { border-collapse: collapse; margin: 1.5mm 0; font-variant-numeric: tabular-nums; break-inside: avoid; }
th, td { border: .3mm solid #999; padding: .8mm 2.2mm; text-align: right; min-width: 13mm; }
th { font-weight: normal; background: #f6f6f3; } th.token, td.token { text-align: left; white-space: pre; }
td.blank { height: 7mm; min-width: 20mm; background: #fff; border: .5mm solid #111; }
td.answer { font-weight: bold; border: .5mm solid #111; } td.run { color: #444; font-size: 9pt; }
@media screen { body { padding: 8mm; } section { padding: 6mm 0; border-bottom: 1px dashed #999; } }
"""


@dataclass(frozen=True)
class Drawing:
    """How the numbers that are asked for are drawn: as boxes, as answers, as fields to type into."""

    asked: Callable[[Exercise, Blank], str]  # its table cell
    later: Callable[[Exercise, Blank], str]  # the cell of a later table which needs that number
    key: bool = False  # with what the run had beside the answers


def box(e: Exercise, blank: Blank) -> str:
    return '<td class="blank"></td>'


def answer(e: Exercise, blank: Blank) -> str:
    return f'<td class="answer">{signed(e.answer(blank))}</td>'


def reference(e: Exercise, blank: Blank) -> str:
    return f'<td class="small">{FROM[blank[0]]}</td>'


def number(e: Exercise, blank: Blank) -> str:
    return f"<td>{signed(e.answer(blank))}</td>"


FROM = {"score": "from 1.", "weight": "from 2."}  # where a later table's numbers are found
SHEET, KEY = Drawing(box, reference), Drawing(answer, number, key=True)


def handout(
    trace: Trace,
    *,
    seed: int = 0,
    level: str = "all",
    students: int = 1,
    model: str = "",
    part: Part = "both",
) -> str:
    """The document: the sheets, the key to them, or the sheets with the key behind them."""
    made = exercises(trace, seed, level, students)
    pages = [page(e, n, model, SHEET) for n, e in enumerate(made, 1)] if part != "key" else []
    pages += [page(e, n, model, KEY) for n, e in enumerate(made, 1)] if part != "sheets" else []
    title = escape(f"Attention by hand: {model}" if model else "Attention by hand")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}"><title>{title}</title>'
    body = "\n".join(pages)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def page(e: Exercise, number: int, model: str, drawing: Drawing) -> str:
    name = "Answer key" if drawing.key else 'Name <span class="line"></span>'
    head = f'<header><span>Sheet {number} · seed {escape(e.seed)}</span><span class="name">{name}</span></header>'
    parts = [head, introduction(e, model), rounding(drawing.key), *(part(e, drawing) for part in PARTS.values())]
    return f'<section class="{"key" if drawing.key else "sheet"}">\n' + "\n".join(parts) + "\n</section>"


# ── the parts of a page ─────────────────────────────────────────────────────────────────────────────────────────────


def introduction(e: Exercise, model: str) -> str:
    kinds = {"self": "self-attention", "causal": "causal self-attention", "cross": "cross attention"}
    place = f"{e.site.stack} block {e.site.layer}, {kinds[e.site.kind]}, head {e.head}"
    of = f" of {plain(model)}" if model else ""
    same = e.site.queries == e.site.keys
    lines = [] if same else [f'<p class="text">The query comes from {strip(e.query_tokens, e.position)}</p>']
    lines.append(f'<p class="text">The keys come from {strip(e.tokens, e.position if same else None)}</p>')
    return (
        f"<h1>What does {quoted(e.query)} look at?</h1>\n"
        f"<p>A real run{of}: {escape(place)}. The query is token {e.position}, {quoted(e.query)}.</p>\n"
        + "\n".join(lines)
    )


def strip(tokens: Sequence[str], asked: int | None) -> str:
    """The tokens in a row, the one that asks on black."""
    return "".join(f'<span class="{"asked" if j == asked else ""}">{visible(t)}</span>' for j, t in enumerate(tokens))


def rounding(key: bool) -> str:
    rule = (
        "Round q·k, scores and z to two decimals, powers of e and shares to three, each before you go on; 5 goes up. "
        "Use the printed numbers only. "
    )
    more = (
        "The answers are computed from the printed, rounded numbers; <i>run</i> is what the model itself had, unrounded."
        if key
        else "They are rounded, and a line says what everything that is not printed adds up to."
    )
    return f'<p class="small">{rule}{more}</p>'


def scores(e: Exercise, drawing: Drawing) -> str:
    others = e.d_k - len(e.features)
    head = ["key", *(f"k<sub>{f}</sub>" for f in e.features), "+ the rest", "q·k", "score"]
    rows = []
    for r, each in enumerate(e.keys):
        given = [cell(x) for x in (*each.k, each.rest)]
        found = [cell_of(e, (c, r), drawing) for c in ("dot", "score")]
        rows.append([token(each), *given, *found, *runs(each, drawing, "dot", "score")])
    query = ", ".join(f"q<sub>{f}</sub> = {signed(x)}" for f, x in zip(e.features, e.q, strict=True))
    return (
        f"<h2>1. Scores: {'(q·k)/√d<sub>k</sub>' if rooted(e) else 'q·k, scaled'}</h2>\n<p>{query}. {divisor(e)} "
        f"<i>The rest</i> is what the other {others} features add to q·k, with what rounding took from these.</p>\n"
        + table(head + (["run q·k", "run score"] if drawing.key else []), rows)
    )


def rooted(e: Exercise) -> bool:
    return abs(float(e.divisor) - math.sqrt(e.d_k)) < 0.006


def divisor(e: Exercise) -> str:
    if rooted(e):
        return f"√{e.d_k} ≈ {e.divisor}."
    return f"The scores of this model are {e.scaled}" + ("." if e.divisor == 1 else f"; divide by {e.divisor}.")


def weights(e: Exercise, drawing: Drawing) -> str:
    head = ["key", "score s", "may be seen", f"e<sup>{exponent(e, 's')}</sup>", "share"]
    given = level_gives(e, "score")
    rows = []
    for r, each in enumerate(e.keys):
        score = cell(each.score) if given else drawing.later(e, ("score", r))
        found = [cell_of(e, (c, r), drawing) for c in ("power", "weight")]
        seen = f"<td>{'yes' if each.seen else 'no: −∞'}</td>"
        rows.append([token(each), score, seen, *found, *runs(each, drawing, "weight")])
    pad = ["<td></td>"] * (1 if drawing.key else 0)
    if e.others:
        name = f'<td class="token">the other {e.others} keys together</td>'
        rows.append([name, "<td></td>", "<td></td>", cell(e.other_powers), "<td></td>", *pad])
    total = cell_of(e, ("total", 0), drawing)
    rows.append(['<td class="token">sum</td>', "<td></td>", "<td></td>", total, "<td></td>", *pad])
    why = (
        ""
        if e.shift == 0
        else f" So that the powers stay handy, {signed(Decimal(e.shift))} is taken from every score; no share changes."
    )
    return f"<h2>2. Weights: each power of e over their sum</h2>\n<p>{hidden(e)}{why}</p>\n" + table(
        head + (["run share"] if drawing.key else []), rows
    )


def exponent(e: Exercise, score: str) -> str:
    """What e is raised to: the score, less what is taken from every score."""
    return score if e.shift == 0 else f"{score} {'−' if e.shift > 0 else '+'} {abs(e.shift)}"


def hidden(e: Exercise) -> str:
    if e.site.kind == "causal":
        return "What the mask hides has the score −∞."
    return "No mask hides anything here: every key is seen."


def mixture(e: Exercise, drawing: Drawing) -> str:
    head = ["key", "share", *(f"v<sub>{c}</sub>" for c in e.channels)]
    given = level_gives(e, "weight")
    rows = []
    for r, each in enumerate(e.keys):
        share = cell(each.weight) if given else drawing.later(e, ("weight", r))
        rows.append([token(each), share, *(cell(x) for x in each.v)])
    rows.append(['<td class="token">+ the rest</td>', "<td></td>", *(cell(x) for x in e.z_rest)])
    rows.append(['<td class="token">z</td>', "<td></td>", *(cell_of(e, ("z", c), drawing) for c in range(len(e.z)))])
    if drawing.key:
        rows.append(['<td class="token">run z</td>', "<td></td>", *(run(z) for z in e.run_z)])
    return (
        "<h2>3. Mixture: z = Σ share × v</h2>\n<p><i>The rest</i> is what the keys that are not printed add, with what "
        "rounding took.</p>\n" + table(head, rows)
    )


def level_gives(e: Exercise, column: str) -> bool:
    """Whether a column of an earlier part may be printed again in a later one."""
    return not any(name == column for name, _ in e.blanks)


PARTS = {"scores": scores, "weights": weights, "z": mixture}  # by level


# ── cells ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f'<th class="token">{t}</th>' if i == 0 else f"<th>{t}</th>" for i, t in enumerate(head))
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="wide"><table>\n<tr>{titles}</tr>\n{body}\n</table></div>'


def cell_of(e: Exercise, blank: Blank, drawing: Drawing) -> str:
    return drawing.asked(e, blank) if blank in e.blanks else cell(e.answer(blank))


def cell(x: Decimal) -> str:
    return f"<td>{signed(x)}</td>"


def signed(x: Decimal) -> str:
    return f"{x}".replace("-", "−")


def runs(each: Key, drawing: Drawing, *columns: str) -> list[str]:
    return [run(each.run[c]) for c in columns] if drawing.key else []


def run(x: float) -> str:
    return f'<td class="run">{f"{x:.6f}".replace("-", "−")}</td>'


def token(each: Key) -> str:
    return f'<td class="token">{visible(each.token)} <span class="small">{each.position}</span></td>'


def quoted(text: str) -> str:
    return f"“{visible(text)}”"


def visible(text: str) -> str:
    """A token as text, its spaces and line breaks shown."""
    return plain(text.replace(" ", "␣").replace("\n", "↵").replace("\t", "→"))


def plain(text: str) -> str:
    """Foreign text as HTML that no reader finds anything in, neither markup nor the braces and signs of quiz formats:
    punctuation becomes character references, and what cannot be printed U+FFFD."""
    shown = (c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "".join(f"&#{ord(c)};" if c.isascii() and not c.isalnum() and c != " " else c for c in shown)
