"""Worksheets that check themselves, as files: what a browser is told, and what it is not. tests/page fills them in."""

import base64
import hashlib
import re
from decimal import Decimal
from html.parser import HTMLParser
from math import exp

import pytest

import hostile_tokens
import regard
from regard.explain.trace import Trace
from regard.teach.handout import handout
from regard.teach.hint import hint, solution
from regard.teach.self_check import fnv1a, self_check
from regard.teach.worksheet import LEVELS, exercise, exercises, half_up, tolerance
from sheet_reader import Reader, Sheet

TEXTS = {
    "toy-gpt": "The old king gives the brown horse to the queen.",
    "toy-bert": "The movie was good.",
    "toy-translate": "the European Economic Area",
}


@pytest.fixture(scope="module")
def traces():
    return {name: regard.load(name).trace(text) for name, text in TEXTS.items()}


class Fields(HTMLParser):
    """The fields of a page, each with the salt of its sheet."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.salt = ""
        self.found: list[dict[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.salt = given.get("data-salt", self.salt)
        if tag == "input":
            self.found.append(given | {"salt": self.salt})


def numbers_with_the_hash(field: dict[str, str], answer: Decimal, around: int = 1000) -> list[Decimal]:
    """Of the answer and the thousand on either side of it."""
    decimals = int(field["data-decimals"])
    middle = int(answer.scaleb(decimals))
    hashes = {u: fnv1a(f"{u} {field['data-blank']} {field['salt']}") for u in range(middle - around, middle + around)}
    return [Decimal(u).scaleb(-decimals) for u, each in hashes.items() if each == field["data-hash"]]


def test_the_hash_is_fowler_noll_vo():
    """Vectors of the draft standard, draft-eastlake-fnv."""
    assert [fnv1a(text) for text in ("", "a", "foobar")] == ["811c9dc5", "e40c292c", "bf9cf968"]


@pytest.mark.parametrize("name", TEXTS)
def test_every_field_has_its_answer_and_no_other(traces, name):
    page = self_check(traces[name], seed=3)
    fields, sheet = Fields(page).found, Sheet(page)
    assert sheet.off_from(traces[name]) <= 1
    for field, answer in zip(fields, sheet.answers, strict=True):
        assert numbers_with_the_hash(field, answer) == [answer]
    assert {int(field["data-decimals"]) for field in fields} == {2, 3}


@pytest.mark.parametrize("level", LEVELS)
def test_the_page_says_no_more_than_the_printed_sheet(traces, level):
    """Every number in it, in the hints too, is a number of the sheet."""
    trace = traces["toy-gpt"]
    page, printed = self_check(trace, seed=2, level=level), handout(trace, seed=2, level=level, part="sheets")
    fields = Fields(page).found
    assert len(fields) == printed.count('class="blank"')
    shown = numbers_in(Reader(printed.partition("</head>")[2]).text)
    assert numbers_in(" ".join(field["data-hint"] for field in fields)) <= shown
    assert numbers_in(" ".join(cell for table in Reader(page).tables for row in table for cell in row)) <= shown


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w{])−?\d+\.\d+", text))


def test_nothing_but_its_own_script_and_style_may_run(traces):
    page = self_check(traces["toy-gpt"], students=2, model="toy-gpt")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    for name, tag in (("script-src", '<script type="module">'), ("style-src", "<style>")):
        inline = page.partition(tag)[2].partition(f"</{tag[1:].split()[0].rstrip('>')}>")[0]
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert page.count("<script") == page.count("<style") == 1
    names = {name for name, _ in Reader(page).attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href", "style", "action")}
    assert not re.search(r"https?://|url\(|@import", page)


def test_the_same_seed_gives_the_same_page_and_students_have_their_own(traces):
    trace = traces["toy-bert"]
    page = self_check(trace, seed=1, students=3)
    assert page == self_check(trace, seed=1, students=3)
    assert len(set(re.findall(r'data-salt="(\w+)"', page))) == 3
    assert re.findall(r'<option value="(\d)">Sheet \d · seed ([\d.]+)<', page) == [
        ("1", "1.1"),
        ("2", "1.2"),
        ("3", "1.3"),
    ]
    assert "<select" not in self_check(trace, seed=1)


def test_hostile_tokens_stay_text(traces, monkeypatch):
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: (hostile_tokens.TOKENS * 2)[: len(self.tokens)])
    trace = regard.load("toy-gpt").trace(list(range(3, 3 + len(hostile_tokens.TOKENS))))
    page = self_check(trace, students=20, model=hostile_tokens.MODEL)
    plain = Reader(self_check(trace, students=20, model="x"))
    read = Reader(page)
    assert read.tags == plain.tags
    assert [name for name, _ in read.attributes] == [name for name, _ in plain.attributes]
    assert not {"img", "b"} & set(read.tags)
    for token in ("<script>hacked=1</script>", '"><img', "{1:NUMERICAL:=7:1}".replace(" ", "␣"), "↵↵", "日本語"):
        assert token in read.text
    page.encode()  # a lone surrogate would not be written
    assert not [c for c in page if not c.isprintable() and c != "\n"]


# ── hints ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", range(6))
def test_a_hint_with_its_numbers_filled_in_gives_the_answer(traces, name, seed):
    e = exercise(traces[name], seed)
    for blank in e.asked():
        words = solution(e, blank)
        assert "{" not in words
        if not (blank[0] in ("power", "weight") and not e.keys[blank[1]].seen):
            formula, given = words.rpartition("= ")[2].split(" ≈ ")
            formula = re.sub(r"e to the power of (\(.*\))", r"exp\1", formula)
            value = eval(formula.replace("·", "*").replace("÷", "/").replace("−", "-"), {"exp": exp})
            answer = e.answer(blank)
            assert Decimal(given.replace("−", "-")) == answer
            assert abs(half_up(float(value), tolerance(answer)) - answer) <= tolerance(answer)
        else:
            assert "mask hides" in words
            assert words.endswith(" 0.000")


def test_a_hint_names_what_is_still_to_be_found(traces):
    e = exercise(traces["toy-gpt"], 1)
    assert hint(e, ("score", 0)) == f"score = q·k ÷ {e.divisor} = {{dot.0}} ÷ {e.divisor}"
    assert hint(e, ("total", 0)).count("{power.") == len(e.keys)
    given = exercise(traces["toy-gpt"], 1, "z")
    assert "{" not in hint(given, ("z", 0))


# ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_that_leaves_no_room(traces, monkeypatch):
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: ["a"] * 301)
    with pytest.raises(regard.RegardError, match=r"^The text has 301 tokens, and a worksheet has room for 300; give a"):
        exercises(traces["toy-gpt"])


def test_a_model_without_attention(saved):
    trace = regard.load(saved("gru")).trace([3, 4, 5], [4, 5])
    with pytest.raises(regard.RegardError, match=r"^This run has no plain scaled dot-product attention"):
        self_check(trace)
