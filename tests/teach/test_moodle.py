"""Worksheets as Moodle XML: read back by parsers of other people, and answered from the text of the questions alone."""

import re
import xml.etree.ElementTree as ET
from decimal import Decimal

import pytest

import hostile_tokens
import regard
from regard.explain.trace import Trace
from regard.teach.handout import visible
from regard.teach.moodle import moodle_xml
from regard.teach.worksheet import exercises
from sheet_reader import Reader, Sheet

TEXTS = {
    "toy-gpt": "The old king gives the brown horse to the queen.",
    "toy-bert": "The movie was good.",
    "toy-translate": "the European Economic Area",
}
KINDS = "NUMERICAL|NM|MULTICHOICE|MC|MULTICHOICE_V|MCV|MULTICHOICE_H|MCH|SHORTANSWER|SA|MW|SHORTANSWER_C|SAC|MR"
FIELD = re.compile(rf"\{{(\d*):({KINDS}):(.*?)\}}", re.S)  # as Moodle finds them, wherever they are in a text


@pytest.fixture(scope="module")
def traces():
    return {name: regard.load(name).trace(text) for name, text in TEXTS.items()}


def questions(xml: str, kind: str) -> list[ET.Element]:
    return [each for each in ET.fromstring(xml.encode()) if each.get("type") == kind]


def words(question: ET.Element, path: str) -> str:
    found = question.findtext(path)
    assert found is not None
    return found


def fields(text: str) -> list[tuple[Decimal, Decimal]]:
    """Answers and tolerances of a cloze question."""
    found = FIELD.findall(text)
    assert {(mark, kind) for mark, kind, _ in found} == {("1", "NUMERICAL")}
    return [(Decimal(answer[1:]), Decimal(within)) for _, _, each in found for answer, within in [each.split(":")]]


def category(path: str) -> list[str]:
    """As Moodle takes a path apart: question/format.php, split_category_path."""
    return [part.replace("//", "/").strip() for part in re.split(r"(?<!/)/(?!/)", path)]


@pytest.mark.parametrize("name", TEXTS)
def test_answers_follow_from_the_question_and_are_the_runs(traces, name):
    found = questions(moodle_xml(traces[name], seed=5, students=8, model=name), "cloze")
    assert len(found) == 8
    for question in found:
        text = words(question, "questiontext/text")
        sheet = Sheet(text)
        assert [answer for answer, _ in fields(text)] == sheet.answers
        assert sheet.off_from(traces[name]) <= 1


@pytest.mark.parametrize("name", TEXTS)
def test_the_choice_that_is_right_has_the_largest_weight_of_the_run(traces, name):
    trace = traces[name]
    made = exercises(trace, 5, "all", 20)
    found = questions(moodle_xml(trace, seed=5, students=20, model=name), "multichoice")
    assert len(found) == 20
    for question, e in zip(found, made, strict=True):
        options = {words(each, "text"): each.get("fraction") for each in question.findall("answer")}
        assert len(options) == len(e.keys)
        at = {option: int(re.findall(r"\(token (\d+)\)$", option)[0]) for option in options}
        row = trace[e.site.weights][e.head, e.position]
        right = [at[option] for option, fraction in options.items() if fraction == "100"]
        assert right
        assert set(options.values()) <= {"0", "100"}
        best = max(float(row[j]) for j in at.values())
        assert all(
            float(row[j]) >= best * 0.97 for j in right
        )  # scores that differ by 0.02 at most may be rounded alike
        assert words(question, "single") == "true"


def test_a_tolerance_is_one_unit_of_the_last_digit(traces):
    (question,) = questions(moodle_xml(traces["toy-gpt"], seed=1), "cloze")
    text = words(question, "questiontext/text")
    assert {within for _, within in fields(text)} == {Decimal("0.01"), Decimal("0.001")}
    for answer, within in fields(text):
        assert answer.as_tuple().exponent == within.as_tuple().exponent


def test_levels_ask_for_their_part_and_print_the_rest(traces):
    counts = {}
    for level in ("scores", "weights", "z"):
        (question,) = questions(moodle_xml(traces["toy-bert"], seed=1, level=level), "cloze")
        text = words(question, "questiontext/text")
        counts[level] = [bool(FIELD.search(part)) for part in text.split("<h5>")[1:]]
        assert len(Reader(text).tables) == 3
    assert counts == {"scores": [True, False, False], "weights": [False, True, False], "z": [False, False, True]}


def test_names_and_categories(traces):
    xml = moodle_xml(traces["toy-gpt"], seed=9, students=3, model="org/toy")
    paths = [words(each, "category/text") for each in questions(xml, "category")]
    assert [category(path) for path in paths] == [
        ["$course$", "top", "Attention by hand", "org/toy", "sheets (all)"],
        ["$course$", "top", "Attention by hand", "org/toy", "looked at most"],
    ]
    kinds = [each.get("type") for each in ET.fromstring(xml.encode())]
    assert kinds == ["category", *["cloze"] * 3, "category", *["multichoice"] * 3]
    names = [words(each, "name/text") for each in questions(xml, "cloze") + questions(xml, "multichoice")]
    assert names[:3] == [f"Attention by hand, seed 9.{n}" for n in (1, 2, 3)]
    assert len(set(names)) == 6


def test_feedback_is_the_key(traces):
    trace = traces["toy-gpt"]
    (question,) = questions(moodle_xml(trace, seed=4), "cloze")
    key = Reader(words(question, "generalfeedback/text"))
    answers = [f"{x}".replace("-", "−") for x, _ in fields(words(question, "questiontext/text"))]
    cells = [cell for table in key.tables for row in table for cell in row]
    assert all(answer in cells for answer in answers)
    assert "run share" in cells


@pytest.mark.parametrize("model", ["plain", hostile_tokens.MODEL])
def test_hostile_tokens(monkeypatch, model):
    """The same fields, tags and answers as with harmless tokens, and every token to be read as it is."""
    tokens = hostile_tokens.TOKENS
    trace = regard.load("toy-gpt").trace(list(range(3, 3 + len(tokens))))
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: ["word"] * len(tokens))
    harmless = questions(moodle_xml(trace, students=30, model="m"), "cloze")
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: tokens)
    xml = moodle_xml(trace, students=30, model=model)
    hostile, choices = questions(xml, "cloze"), questions(xml, "multichoice")
    for question, before in zip(hostile, harmless, strict=True):
        text = words(question, "questiontext/text")
        assert fields(text) == fields(words(before, "questiontext/text"))
        assert text.count("{") == len(fields(text))
        assert Reader(text).tags == Reader(words(before, "questiontext/text")).tags
        assert not re.search(r"\$\$|\\[(\[]|@@|&amp;", text), "nothing for Moodle's filters"
    shown = [read for token in tokens if (read := Reader(visible(token)).text)]
    assert all(token in Reader(words(hostile[0], "questiontext/text")).text for token in shown)
    assert "{1:NUMERICAL:=7:1}" in shown
    for question in choices:
        for option in question.findall("answer"):
            assert Reader(words(option, "text")).tags == []
    parts = category(words(questions(xml, "category")[0], "category/text"))
    assert parts[:3] == ["$course$", "top", "Attention by hand"]
    assert parts[3] == model.replace("\n", "\ufffd").replace("\0", "\ufffd").strip()
    assert parts[4:] == ["sheets (all)"]


def test_one_token_leaves_nothing_to_choose():
    xml = moodle_xml(regard.load("toy-gpt").trace([5]))
    assert [each.get("type") for each in ET.fromstring(xml.encode())] == ["category", "cloze"]
