"""Numbers from 0 to 999,999 in words, English and French.

English is British ("one hundred and five"). French is the traditional spelling: hyphens below a hundred except around
`et`, and an s on `vingt` and `cent` when they are multiplied and nothing, `mille` included, follows.
"""

from regard.errors import DataError

LAST = 999_999

UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
TENS = "? ? twenty thirty forty fifty sixty seventy eighty ninety".split()
FRENCH_UNITS = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf"
).split()
FRENCH_TENS = "? ? vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split()


def english(n: int) -> str:
    _check(n)
    if n < 20:
        return UNITS[n]
    if n < 100:
        return TENS[n // 10] + (f"-{UNITS[n % 10]}" if n % 10 else "")
    size, name = (1000, "thousand") if n >= 1000 else (100, "hundred")
    head, rest = f"{english(n // size)} {name}", n % size
    if not rest:
        return head
    return f"{head} {'and ' if rest < 100 else ''}{english(rest)}"


def french(n: int, feminine: bool = False) -> str:
    """`feminine`: as it stands before a feminine noun, `vingt et une`."""
    _check(n)
    if n >= 1000:
        thousands, rest = divmod(n, 1000)
        head = "mille" if thousands == 1 else f"{_below_thousand(thousands, final=False)} mille"
        return f"{head} {_below_thousand(rest, feminine=feminine)}" if rest else head
    return _below_thousand(n, feminine=feminine)


def _below_thousand(n: int, final: bool = True, feminine: bool = False) -> str:
    """`final`: nothing follows in the number, so that `vingt` and `cent` may take their s."""
    hundreds, rest = divmod(n, 100)
    if not hundreds:
        return _below_hundred(rest, final, feminine)
    head = "cent" if hundreds == 1 else f"{FRENCH_UNITS[hundreds]} cent"
    if rest:
        return f"{head} {_below_hundred(rest, final, feminine)}"
    return head + ("s" if final and hundreds > 1 else "")


def _below_hundred(n: int, final: bool, feminine: bool) -> str:
    if n < 20:
        return "une" if n == 1 and feminine else FRENCH_UNITS[n]
    ten = n // 10
    unit = n - 10 * ten + (10 if ten in (7, 9) else 0)  # seventy and ninety count on from sixty and eighty
    if not unit:
        return FRENCH_TENS[ten] + ("s" if ten == 8 and final else "")
    word = "une" if unit == 1 and feminine else FRENCH_UNITS[unit]
    joined = " et " if unit in (1, 11) and ten < 8 else "-"
    return f"{FRENCH_TENS[ten]}{joined}{word}"


def _check(n: int) -> None:
    if not 0 <= n <= LAST:
        raise DataError(f"{n} cannot be written in words here; use a number from 0 to {LAST}.")
