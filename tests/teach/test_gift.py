"""Worksheets as GIFT, read back by a strict parser of the format as docs.moodle.org/en/GIFT_format describes it."""

import html
import re
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hostile_tokens
import regard
from regard.explain.trace import Trace
from regard.teach.gift import escaped, gift
from regard.teach.handout import plain
from regard.teach.quiz import printable
from regard.teach.worksheet import exercises
from sheet_reader import Reader, Sheet

SPECIAL = set("~=#{}:\\")
NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass
class Question:
    category: str
    name: str
    format: str
    text: str
    number: tuple[Decimal, Decimal] | None = None
    options: list[tuple[str, bool]] = field(default_factory=list)
    feedback: str = ""


Chars = list[tuple[str, bool]]  # each with whether it was escaped


def characters(line: str) -> Chars:
    """A backslash stands before a special character, and nowhere else."""
    found: Chars = []
    at = 0
    while at < len(line):
        if line[at] == "\\":
            assert line[at + 1 : at + 2] in SPECIAL, f"a lone backslash at {at}"
            at += 1
            found.append((line[at], True))
        else:
            found.append((line[at], False))
        at += 1
    return found


def literal(chars: Chars) -> str:
    assert not [c for c, escaped in chars if c in SPECIAL and not escaped]
    return "".join(c for c, _ in chars)


def split(chars: Chars, mark: str) -> tuple[Chars, Chars]:
    """Before and after the first unescaped mark."""
    signs = "".join("\0" if escaped else c for c, escaped in chars)
    at = signs.index(mark)
    return chars[:at], chars[at + len(mark) :]


def parse(text: str) -> list[Question]:
    found, category = [], ""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        assert "\n" not in block, "a question is one line here"
        assert not block.lstrip().startswith("//"), "a comment"
        if block.startswith("$CATEGORY:"):
            category = block.removeprefix("$CATEGORY:").strip().replace("\\\\", "\\")
        else:
            found.append(question(block, category))
    return found


def question(line: str, category: str) -> Question:
    chars = characters(line)
    nothing, rest = split(chars, "::")
    assert not nothing
    name, rest = split(rest, "::")
    text, rest = split(rest, "{")
    answers, after = split(rest, "}")
    assert not after
    answers, feedback = split(answers, "####")
    kind = re.match(r"\[(\w+)\]", "".join(c for c, _ in text))
    assert kind
    found = Question(category, literal(name), kind[1], literal(text[kind.end() :]), feedback=literal(feedback))
    if answers[0] == ("#", False):
        value, within = split(answers[1:], ":")
        assert NUMBER.fullmatch(literal(value))
        assert NUMBER.fullmatch(literal(within))
        found.number = Decimal(literal(value)), Decimal(literal(within))
    else:
        assert answers[0] in (("=", False), ("~", False))
        starts = [at for at, each in enumerate(answers) if each in (("=", False), ("~", False))]
        for start, end in zip(starts, [*starts[1:], len(answers)], strict=True):
            option = literal(answers[start + 1 : end]).strip()
            assert option
            assert not re.match(r"\[\w+\]|%-?\d", option), "would be a format or a weight"
            found.options.append((option, answers[start][0] == "="))
    return found


@pytest.fixture(scope="module")
def trace():
    return regard.load("toy-gpt").trace("The old king gives the brown horse to the queen.")


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_survives(text):
    """What cannot be printed is replaced; all else comes back, through GIFT and through HTML."""
    assert literal(characters(escaped(text))) == printable(text)
    assert html.unescape(plain(text)) == printable(text)
    assert not re.search(r"[<>\"'{}=~:\\\[\]$@%]", plain(text))


def test_each_number_is_a_question_whose_answer_is_the_runs(trace):
    """The last question of a sheet, for z, has all of its tables: from them follow the answers of all the others."""
    found = parse(gift(trace, seed=2, students=3, model="toy-gpt"))
    for n, e in enumerate(exercises(trace, 2, "all", 3), 1):
        mine = [q for q in found if q.name.startswith(f"Attention by hand, seed 2.{n}:") and q.number]
        sheet = Sheet(next(q.text for q in mine if "z" in q.name.rpartition(": ")[2][:1]))
        assert sheet.off_from(trace) <= 1
        by_name = {q.name.rpartition(": ")[2]: q.number[0] for q in mine if q.number}
        assert len(by_name) == len(mine) == len(e.blanks)
        for r, j in enumerate(sheet.positions):
            assert by_name[f"q·k for token {j}"] == sheet.dots[r]
            assert by_name[f"the score for token {j}"] == sheet.scores[r]
            assert by_name[f"the power of e for token {j}"] == sheet.powers[r]
            assert by_name[f"the share for token {j}"] == sheet.weights[r]
        assert by_name["the sum of the powers of e"] == sheet.total
        assert [value for name, value in by_name.items() if name.startswith("z")] == sheet.z
    for q in found:
        if q.number:
            answer, within = q.number
            assert within == Decimal(1).scaleb(int(answer.as_tuple().exponent))
            assert q.format == "html"
            assert f"{answer}".replace("-", "−") in q.feedback


def test_a_question_shows_one_mark_and_gives_no_other_answer_away(trace):
    found = [q for q in parse(gift(trace, seed=2)) if q.number]
    for q in found:
        cells = [cell for table in Reader(q.text).tables for row in table for cell in row]
        assert cells.count("?") == 1
    first = Reader(found[0].text).tables
    last = Reader(found[-1].text).tables
    assert (len(first), len(last)) == (1, 3)
    blank = [[cell if cell != "?" else "" for cell in row] for row in first[0]]
    assert blank == last[0]
    assert all(row[-2:] == ["", ""] for row in last[0][1:])


def test_choices(trace):
    found = [q for q in parse(gift(trace, seed=2, students=12, model="toy-gpt")) if q.options]
    assert len(found) == 12
    for q, e in zip(found, exercises(trace, 2, "all", 12), strict=True):
        assert [right for _, right in q.options] == [key in e.looked_at_most() for key in e.keys]
        shown = [html.unescape(option) for option, _ in q.options]
        assert shown == [f"{key.token.replace(' ', '␣')} (token {key.position})" for key in e.keys]


def test_categories(trace):
    found = parse(gift(trace, seed=2, students=2, model="org/toy"))
    top = "$course$/top/Attention by hand/org//toy"
    assert list(dict.fromkeys(q.category for q in found)) == [
        f"{top}/{kind}" for kind in ("scores", "weights", "z", "looked at most")
    ]
    assert len({q.name for q in found}) == len(found)


def test_hostile_tokens(monkeypatch):
    tokens = hostile_tokens.TOKENS
    run = regard.load("toy-gpt").trace(list(range(3, 3 + len(tokens))))
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: ["word"] * len(tokens))
    harmless = parse(gift(run, students=15, model="m"))
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: tokens)
    hostile = parse(gift(run, students=15, model=hostile_tokens.MODEL))
    assert [(q.name, q.number, len(q.options)) for q in hostile] == [
        (q.name, q.number, len(q.options)) for q in harmless
    ]
    for mine, before in zip(hostile, harmless, strict=True):
        assert Reader(mine.text).tags == Reader(before.text).tags
        assert Reader(mine.feedback).tags == Reader(before.feedback).tags
        assert "{1:NUMERICAL:=7:1}" in Reader(mine.text).text
    (top,) = {q.category.rpartition("/")[0] for q in hostile}
    parts = re.split(r"(?<!/)/(?!/)", top)
    assert len(parts) == 4
    assert parts[3].replace("//", "/") == printable(hostile_tokens.MODEL)
