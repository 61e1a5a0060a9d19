"""Worksheets that check themselves: the same exercises with fields to type into, in one page that opens from disk.

In: a trace, a seed, a level and for how many students. Out: one HTML document with its style and its script; it loads
nothing, and its Content-Security-Policy lets nothing else run. A field carries a hint and a salted hash of its answer. The
hash keeps answers from being read in the page's source by accident; it is no secret, since a program that tries all numbers
has them in a moment. A page like this is for practice and not for grades.
"""

import base64
import hashlib
from decimal import Decimal
from html import escape
from pathlib import Path

from regard.explain.trace import Trace
from regard.teach.handout import PARTS, Drawing, introduction, plain, reference
from regard.teach.hint import hint, name
from regard.teach.worksheet import Blank, Exercise, decimals, exercises

WEB = Path(__file__).parent / "web"
POLICY = "default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; form-action 'none'"
WORDS = {2: "two decimals", 3: "three decimals"}
RULE = (
    "Round q·k, scores and z to two decimals, powers of e and shares to three, each before you go on; 5 goes up. "
    "Use the numbers on the sheet only: they are rounded, and a line says what everything that is not there adds up to. "
    "An answer counts if it is at most one off in its last digit; the field then shows the number to go on with."
)


def self_check(trace: Trace, *, seed: int = 0, level: str = "all", students: int = 1, model: str = "") -> str:
    """The document. With several students it has a list to choose one's own sheet from."""
    made = exercises(trace, seed, level, students)
    style, script = ((WEB / file).read_text(encoding="utf-8") for file in ("sheet.css", "sheet.js"))
    policy = POLICY.format(script=allowed(script), style=allowed(style))
    title = f"Attention by hand: {plain(model)}" if model else "Attention by hand"
    sheets = "\n".join(section(e, n, model) for n, e in enumerate(made, 1))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>{style}</style></head>
<body>
<header class="bar">{chooser(made)}
<span id="count" role="status"></span><progress id="progress" aria-label="right"></progress></header>
<noscript><p class="lead">This sheet is checked by a script in this file, and scripts are switched off here.</p></noscript>
<main>
{sheets}
</main>
<script type="module">{script}</script>
</body></html>
"""


def chooser(made: list[Exercise]) -> str:
    if len(made) == 1:
        return f"<span>Sheet 1 · seed {escape(made[0].seed)}</span>"
    options = "".join(f'<option value="{n}">Sheet {n} · seed {escape(e.seed)}</option>' for n, e in enumerate(made, 1))
    return f'<select id="which" aria-label="sheet" autocomplete="off">{options}</select>'


def section(e: Exercise, number: int, model: str) -> str:
    parts = [f"{draw(e, FIELDS)}\n<p class='say' role='status'></p>" for draw in PARTS.values()]
    lead = f'<p class="lead">{RULE}</p>'
    return f'<section data-sheet="{number}" data-salt="{salt(e)}">\n' + "\n".join(
        [introduction(e, model), lead, *parts, "</section>"]
    )


def field(e: Exercise, blank: Blank) -> str:
    answer, called = e.answer(blank), name(e, blank)
    data = {
        "blank": "{}.{}".format(*blank),
        "decimals": decimals(answer),
        "hash": fingerprint(answer, blank, salt(e)),
        "hint": escape(hint(e, blank)),
        "name": called,
    }
    attributes = " ".join(f'data-{key}="{value}"' for key, value in data.items())
    label = f"{called}, {WORDS[decimals(answer)]}"
    return (
        f'<td class="field"><input {attributes} aria-label="{label}" autocomplete="off" spellcheck="false" size="6">'
        f'<button type="button" aria-label="hint: {called}">?</button></td>'
    )


def copied(e: Exercise, blank: Blank) -> str:
    """Where a later table needs a number: it appears there when it has been found."""
    where = reference(e, blank)
    return where.replace("<td", '<td data-copy="{}.{}"'.format(*blank), 1) if blank in e.blanks else where


FIELDS = Drawing(field, copied)


# ── hashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def fingerprint(answer: Decimal, blank: Blank, salt: str) -> str:
    """Of the answer in units of its last digit; 0.43 is 43. The page's script computes the same."""
    return fnv1a("{} {}.{} {}".format(int(answer.scaleb(decimals(answer))), *blank, salt))


def fnv1a(text: str) -> str:
    """The 32-bit Fowler-Noll-Vo hash. Not a cryptographic one, which pages that are opened from disk may not have."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def salt(e: Exercise) -> str:
    """Another one for every sheet, and the same one when the sheet is made again."""
    said = f"{e.seed} {e.level} {e.site.site} {e.head} {e.position} {e.features} {e.q}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def allowed(inline: str) -> str:
    """An inline style or script, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
