"""ReDoS check of regular expressions in tokenizer files: accept only those that match in linear time.

In: the pattern of a Split or Replace stage. Out: why it is refused, or None. The `tokenizers` library matches by
backtracking (Oniguruma) without a time limit, so a pattern like `(a+)+$` or `a+b` makes a few kilobytes of text take
minutes. The patterns of real models are alternatives of short sequences of character classes, ` ?\\p{L}+|\\s+(?!\\S)|\\s+`,
for which three conditions guarantee linear time:

1. Only single characters are repeated without bound, never groups; so there are no nested repetitions.
2. In one alternative at most one such repetition has something after it that can fail, so that from one position the
   number of ways to match is at most the length of one run.
3. If that fails, the run is not scanned again from its next character: the following alternatives, each scanning the
   same run, end in one that consumes all of it (`\\s*[\\r\\n]+|\\s+`), or a lookbehind lets the repetition
   begin only where the run does (`(?<!\\s)\\s+$`).
"""

import math
import re
from dataclasses import dataclass

MAX_CHARACTERS = 10_000  # of a pattern
MAX_REPEATS = 64  # in {n,m}
MAX_WAYS = 1000  # to match the bounded parts of one alternative
MAX_DEPTH = 8  # of groups

# Patterns of known models that take quadratic time on long runs, and the same rule in linear time: a match of `\s+$`
# that does not begin where its run begins would be preceded by one that does.
LINEAR = {r"\s+$": r"(?<!\s)\s+$"}

_GROUP = re.compile(r"\((?:\?(?:[im]*:|<?[=!]))?")
_QUANTIFIER = re.compile(r"[?*+]|\{(\d{1,9})?(,)?(\d{1,9})?\}")
_ESCAPE = re.compile(
    r"\\(?:[pP]\{\^?[\w ]+\}|u[0-9a-fA-F]{4}|x\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|[sSdDwWhHrntfv]|[^\w\s])"
)
_ANCHOR = re.compile(r"[\^$]|\\[AzZbB]")


class UnsafePattern(Exception):
    """A pattern is not accepted; the message says why."""


@dataclass(frozen=True)
class Item:
    """An element of a sequence and its number of repetitions; items with equal `text` match the same."""

    text: str
    least: int = 1
    most: float = 1
    assertion: bool = False  # matches no characters
    ways: int = 1  # number of ways in which one occurrence can match
    again: bool = False  # `x{1,3}+`, which Oniguruma reads as a repetition of repetitions

    @property
    def endless(self) -> bool:
        return self.most == math.inf

    @property
    def can_fail(self) -> bool:
        return self.assertion or self.least > 0


Sequence = list[Item]


def why_slow(pattern: str) -> str | None:
    """Why a pattern may take more than linear time, or is not understood; None if it is safe."""
    try:
        alternatives = _Parser(pattern).whole()
        for i, sequence in enumerate(alternatives):
            _check(sequence, alternatives[i + 1 :])
    except UnsafePattern as reason:
        return str(reason)
    return None


def may_match_nothing(pattern: str) -> bool:
    """Whether an accepted pattern matches the empty text."""
    return any(map(_may_be_empty, _Parser(pattern).whole()))


def _check(sequence: Sequence, following: list[Sequence]) -> None:
    if math.prod(_ways(item) for item in sequence) > MAX_WAYS:
        raise UnsafePattern("it can match in too many ways")
    risky = _risky(sequence)
    if not risky:
        return
    if len(risky) > 1 or sequence[risky[0]].again:
        raise UnsafePattern("it repeats something within a repetition or next to one, and more must follow")
    at, run = risky[0], sequence[risky[0]].text
    if at > 0 and sequence[at - 1] == Item(f"(?<!{run})", assertion=True):
        return
    for each in (sequence, *following):
        if _takes(each, run):
            return
        others = _risky(each)
        if len(others) != 1 or each[others[0]].text != run:
            break
    raise UnsafePattern(
        f"after a repetition of {run} more must follow, and no next alternative takes what was repeated"
    )


def _risky(sequence: Sequence) -> list[int]:
    """The indices of unbounded repetitions after which something can fail, which causes backtracking."""
    ends = [i for i, item in enumerate(sequence) if item.can_fail]
    return [i for i, item in enumerate(sequence) if item.endless and ends and ends[-1] > i]


def _takes(sequence: Sequence, run: str) -> bool:
    """Whether a sequence certainly matches at the start of a run of these characters and consumes it (or all but one)."""
    if [(item.text, item.endless) for item in sequence] == [(r"\s", True), (r"(?!\S)", False)]:
        return run == r"\s"
    at = next((i for i, item in enumerate(sequence) if item.endless), None)
    if at is None or sequence[at].text != run or at in _risky(sequence):
        return False
    return not any(item.can_fail for item in sequence[:at])


def _may_be_empty(sequence: Sequence) -> bool:
    return not any(item.can_fail and not item.assertion for item in sequence)


def _ways(item: Item) -> int:
    if item.endless:
        return 1
    return (int(item.most) - item.least) + item.ways


class _Parser:
    """A parser of Oniguruma's syntax as far as tokenizers use it; everything else is refused."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_CHARACTERS:
            raise UnsafePattern(f"it has more than {MAX_CHARACTERS:,} characters")
        self.text, self.at, self.depth = pattern, 0, 0

    def whole(self) -> list[Sequence]:
        found = self.alternatives()
        if self.at < len(self.text):
            raise UnsafePattern("it has a ) too many")
        return found

    def ends(self) -> bool:
        """Whether an alternative ends here."""
        return self.at == len(self.text) or self.text[self.at] in "|)"

    def alternatives(self) -> list[Sequence]:
        found = self.alternative()
        while self.at < len(self.text) and self.text[self.at] == "|":
            self.at += 1
            found += self.alternative()
        return found

    def alternative(self) -> list[Sequence]:
        """One sequence; several if it consists of one plain group, whose alternatives are then its own."""
        sequence: Sequence = []
        while not self.ends():
            begin = self.at
            item, inside = self.item()
            plain = re.match(r"\((\?:|(?!\?))", item.text) and item.text == self.text[begin : self.at]
            if plain and not sequence and self.ends():
                return inside
            if any(part.endless for each in inside for part in each):
                raise UnsafePattern("it has a repetition inside a group")
            sequence.append(item)
        return [sequence]

    def item(self) -> tuple[Item, list[Sequence]]:
        """The next item, and the alternatives inside it if it is a group."""
        begin = self.at
        if opening := _GROUP.match(self.text, self.at):
            inside = self.group(opening)
            text = self.text[begin : self.at]
            look = opening[0].endswith(("=", "!"))
            ways = sum(math.prod(map(_ways, each)) for each in inside)
            least, most, again = self.quantifier()
            if most > 1 or again or (look and not least):
                raise UnsafePattern("it repeats a group")
            return Item(text, 0 if any(map(_may_be_empty, inside)) else least, 1, look, ways), inside
        assertion = bool(_ANCHOR.match(self.text, self.at))
        self.single()
        text = self.text[begin : self.at]
        least, most, again = self.quantifier()
        if assertion and (least, most) != (1, 1):
            raise UnsafePattern("it repeats an anchor")
        return Item(text, least, most, assertion, 1, again), []

    def group(self, opening: re.Match[str]) -> list[Sequence]:
        self.at = opening.end()
        if self.text[self.at : self.at + 1] == "?":
            raise UnsafePattern("it has a group of a kind that is not known here")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnsafePattern("its groups are nested too deep")
        inside = self.alternatives()
        if self.at == len(self.text):
            raise UnsafePattern("it has a group that does not end")
        self.at, self.depth = self.at + 1, self.depth - 1
        return inside

    def single(self) -> None:
        """Past one character, class or anchor."""
        if self.text[self.at] == "[":
            self.character_class()
        elif found := _ANCHOR.match(self.text, self.at) or _ESCAPE.match(self.text, self.at):
            self.at = found.end()
        elif self.text[self.at] == "\\" or _QUANTIFIER.match(self.text, self.at):
            raise UnsafePattern("it has an escape or a repetition that is not known here")
        else:
            self.at += 1

    def character_class(self) -> None:
        depth = 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "\\":
                escape = _ESCAPE.match(self.text, self.at) or re.compile(r"\\b").match(self.text, self.at)
                if escape is None:
                    raise UnsafePattern("it has an escape that is not known here")
                self.at = escape.end()
                continue
            self.at += 1
            if letter == "[":
                depth += 1
                self.at += self.text.startswith("^", self.at)
                if self.text.startswith("]", self.at):
                    raise UnsafePattern("it has an empty class")
            elif letter == "]":
                depth -= 1
                if not depth:
                    return
        raise UnsafePattern("it has a class that does not end")

    def quantifier(self) -> tuple[int, float, bool]:
        found = _QUANTIFIER.match(self.text, self.at)
        if not found or found[0] in ("{}", "{,}"):
            return 1, 1, False
        self.at = found.end()
        if found[0][0] == "{":
            least = int(found[1] or 0)
            most: float = least if not found[2] else int(found[3]) if found[3] else math.inf
            if (found[3] and not found[2]) or most < least:
                raise UnsafePattern("it has a repetition that is not known here")
        else:
            least, most = {"?": (0, 1), "*": (0, math.inf), "+": (1, math.inf)}[found[0]]
        if least > MAX_REPEATS or MAX_REPEATS < most < math.inf:
            raise UnsafePattern(f"it repeats something more than {MAX_REPEATS} times")
        again = False
        if self.text.startswith("+", self.at):
            self.at += 1
            if found[0][0] == "{":
                most, again = math.inf, True
        if self.at < len(self.text) and (self.text[self.at] in "?*+" or _QUANTIFIER.match(self.text, self.at)):
            raise UnsafePattern("it has a repetition of a repetition, or a lazy one")
        return least, most, again
