"""What a number on a worksheet is called, and how it is computed, with the sheet's own numbers.

In: an exercise and one of its blanks. Out: a name; a hint, in which a number that is itself asked for is a reference such
as {score.2}, to be filled in when it is known; a solution, in which all of them are.
"""

import re
from decimal import Decimal

from regard.teach.handout import exponent, quoted, signed
from regard.teach.worksheet import Blank, Exercise

NAMES = {"dot": "q·k", "score": "the score", "power": "the power of e", "weight": "the share"}
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
REFERENCE = re.compile(r"\{(\w+)\.(\d+)\}")


def name(e: Exercise, blank: Blank, *, token: bool = True) -> str:
    """As HTML: the share for “␣old” (token 2). Without the token as plain text: the share for token 2."""
    column, at = blank
    if column == "total":
        return "the sum of the powers of e"
    if column == "z":
        return f"z{e.channels[at]}".translate(SUBSCRIPTS)
    where = e.keys[at].position
    return f"{NAMES[column]} for " + (f"{quoted(e.keys[at].token)} (token {where})" if token else f"token {where}")


def hint(e: Exercise, blank: Blank) -> str:
    column, at = blank
    rows = range(len(e.keys))
    if column == "total":
        others = [signed(e.other_powers)] if e.others else []
        return "the sum = " + " + ".join([number(e, "power", r) for r in rows] + others)
    if column == "z":
        products = [f"{number(e, 'weight', r)} · {bracketed(e.keys[r].v[at])}" for r in rows]
        return f"z = Σ share · v + the rest = {' + '.join(products)} + {bracketed(e.z_rest[at])}"
    key = e.keys[at]
    if column == "dot":
        products = [f"{bracketed(q)} · {bracketed(k)}" for q, k in zip(e.q, key.k, strict=True)]
        return f"q·k = Σ q · k + the rest = {' + '.join(products)} + {bracketed(key.rest)}"
    if column == "score":
        return f"score = q·k ÷ {e.divisor} = {number(e, 'dot', at)} ÷ {e.divisor}"
    if not key.seen:
        return "The mask hides this key: its score counts as −∞, e to the power of −∞ is 0, and so is its share."
    if column == "power":
        return (
            f"e to the power of {exponent(e, 'the score')} = e to the power of ({exponent(e, number(e, 'score', at))})"
        )
    return f"share = power of e ÷ sum = {number(e, 'power', at)} ÷ {number(e, 'total', 0)}"


def solution(e: Exercise, blank: Blank) -> str:
    """The hint with every number in it, and the answer."""
    filled = REFERENCE.sub(lambda found: signed(e.answer((found[1], int(found[2])))), hint(e, blank))
    return f"{filled} {'Hence' if filled.endswith('.') else '≈'} {signed(e.answer(blank))}"


def number(e: Exercise, column: str, at: int) -> str:
    """A number that the sheet prints; a reference if it is asked for."""
    return f"{{{column}.{at}}}" if (column, at) in e.blanks else bracketed(e.answer((column, at)))


def bracketed(x: Decimal) -> str:
    return f"({signed(x)})" if x < 0 else signed(x)
