"""Worksheets as the questions of a quiz, before a format is chosen: `moodle` and `gift` write them down.

In: exercises. Out: questions with their texts as HTML. Of an exercise one can ask every blank by itself, and which of the
printed keys is looked at most. Questions of a kind, of all students, share a category, so that a quiz can draw one by lot.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from html import escape

from regard.teach.handout import KEY, PARTS, Drawing, introduction, quoted, reference, rounding, signed, visible
from regard.teach.hint import name, solution
from regard.teach.worksheet import STAGES, Blank, Exercise, decimals

TITLE = "Attention by hand"
WORDS = {2: "two decimals", 3: "three decimals"}
# Quiz systems bring their own style sheet, and ours cannot come along: classes become style attributes.
STYLES = {
    "token": "text-align: left",
    "small": "font-size: 90%",
    "run": "font-size: 90%",
    "": "display: inline-block; border: 1px solid #999; padding: 0 2px",
    "asked": "display: inline-block; border: 2px solid; padding: 0 2px; font-weight: bold",
    "answer": "font-weight: bold",
    "wanted": "font-weight: bold; text-align: center",
}


@dataclass(frozen=True)
class Number:
    """A question for one number."""

    name: str  # plain text, as the category's parts are
    category: tuple[str, ...]
    text: str  # HTML, like the feedback
    feedback: str
    answer: Decimal


@dataclass(frozen=True)
class Choice:
    """A question with keys to choose from."""

    name: str
    category: tuple[str, ...]
    text: str
    feedback: str
    options: tuple[tuple[str, bool], ...]  # HTML, and whether it is right


def one_number(e: Exercise, blank: Blank, model: str) -> Number:
    """The sheet as far as it is needed, and one of its blanks. The others stay open: no question gives away another."""
    drawing = Drawing(lambda e, each: WANTED if each == blank else OPEN, reference)
    stages = list(PARTS)[: list(PARTS).index(STAGES[blank[0]]) + 1]
    tables = [PARTS[stage](e, drawing) for stage in stages]
    places = WORDS[decimals(e.answer(blank))]
    asked = f"<p><b>What is {name(e, blank)}?</b> Give {places}.</p>"
    text = styled("".join([introduction(e, model), rounding(key=False), *tables, asked]))
    called = f"{title(e)}: {name(e, blank, token=False)}"
    return Number(
        called, category(model, STAGES[blank[0]]), text, f"<p>{escape(solution(e, blank))}</p>", e.answer(blank)
    )


def most_looked_at(e: Exercise, model: str) -> Choice | None:
    """Which key has the largest share; None where there are no two to choose from."""
    if len(e.keys) < 2:
        return None
    right = e.looked_at_most()
    options = tuple((f"{visible(key.token)} (token {key.position})", key in right) for key in e.keys)
    hidden = [f"{quoted(key.token)} (token {key.position})" for key in e.keys if not key.seen]
    mask = f"<p>The mask hides {', '.join(hidden)}.</p>" if hidden else ""
    asked = f"<p><b>Which of these keys does {quoted(e.query)} look at most?</b></p>"
    given = PARTS["scores"](e, Drawing(lambda e, blank: OPEN, reference))
    text = styled("".join([introduction(e, model), given, mask, asked]))
    answer = ", ".join(
        f"{quoted(key.token)} (token {key.position}), with the score {signed(key.score)}" for key in right
    )
    feedback = f"<p>The largest score among the keys that may be seen has the largest share: {answer}.</p>"
    return Choice(f"{title(e)}: looked at most", category(model, "looked at most"), text, feedback, options)


def key_tables(e: Exercise) -> str:
    """The answers with what the run had, to be shown afterwards."""
    return styled("".join([rounding(key=True), *(part(e, KEY) for part in PARTS.values())]))


OPEN, WANTED = "<td></td>", '<td class="wanted">?</td>'


def title(e: Exercise) -> str:
    return f"{TITLE}, seed {e.seed}"


def category(model: str, kind: str) -> tuple[str, ...]:
    return (TITLE, *([model] if model.strip() else []), kind)


def styled(html: str) -> str:
    """Our own HTML (foreign text in it has no quotation marks left), in one line and without classes."""
    html = re.sub(r' class="(\w*)"', lambda found: f' style="{STYLES[found[1]]}"' if found[1] in STYLES else "", html)
    html = html.replace("<table>", '<table border="1" cellpadding="4">')
    html = html.replace("<h1", "<h4").replace("</h1", "</h4").replace("<h2", "<h5").replace("</h2", "</h5")
    return " ".join(html.split())


def category_path(names: tuple[str, ...]) -> str:
    """As Moodle reads it: single slashes between the parts; a slash in a part is doubled and touches no single one."""
    parts = [printable(name).strip().replace("/", "//") for name in names]
    return "/".join(
        f"{' ' * part.startswith('/')}{part}{' ' * part.endswith('/')}" for part in ("$course$", "top", *parts)
    )


def printable(text: str) -> str:
    """A line of plain text. XML has no place for most control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
