"""Worksheets: what a student computes from the printed numbers is the answer, and the answer is the model's own."""

import math
import re
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser

import numpy as np
import pytest

import regard
from regard.errors import TaskError
from regard.teach.handout import handout
from regard.teach.worksheet import LEVELS, exercise, half_up, same_places

TEXTS = {
    "toy-gpt": "The old king gives the brown horse to the queen.",
    "toy-bert": "The movie was good.",
    "toy-translate": "the European Economic Area",
}


@pytest.fixture(scope="module")
def traces():
    return {name: regard.load(name).trace(text) for name, text in TEXTS.items()}


def to(x: Decimal, places: str) -> Decimal:
    """As a pupil rounds."""
    return x.quantize(Decimal(places), ROUND_HALF_UP)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", range(12))
def test_answers_follow_from_the_printed_numbers_alone(traces, name, seed):
    e = exercise(traces[name], seed)
    total = e.other_powers
    for key in e.keys:
        dot = to(sum(a * b for a, b in zip(e.q, key.k, strict=True)) + key.rest, "0.01")
        score = to(dot / e.divisor, "0.01")
        power = to(Decimal(math.exp(score - e.shift)), "0.001") if key.seen else Decimal(0)
        assert (dot, score, power) == (key.dot, key.score, key.power)
        total += power
    assert total == e.total
    for key in e.keys:
        assert key.weight == to(key.power / total, "0.001")
    for c, z in enumerate(e.z):
        assert z == to(sum(key.weight * key.v[c] for key in e.keys) + e.z_rest[c], "0.01")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", range(12))
def test_answers_are_the_runs_numbers_but_for_rounding(traces, name, seed):
    trace, e = traces[name], exercise(traces[name], seed)
    at, i = e.site.site, e.position
    for key in e.keys:
        j = key.position
        assert key.run["score"] == pytest.approx(float(trace.tensor(f"{at}.scores")[e.head, i, j]), abs=1e-6)
        assert float(key.dot) == pytest.approx(float(trace.tensor(f"{at}.dots")[e.head, i, j]), abs=0.0101)
        assert float(key.score) == pytest.approx(key.run["score"], abs=0.02)
        assert float(key.weight) == pytest.approx(float(trace.tensor(f"{at}.weights")[e.head, i, j]), abs=0.02)
        assert key.token == trace.tokens_of(e.site.keys)[j]
    for z, c in zip(e.z, e.channels, strict=True):
        assert float(z) == pytest.approx(float(trace.tensor(f"{at}.Z")[e.head, i, c]), abs=0.0101)


def test_a_key_that_the_mask_hides_has_no_share(traces):
    hidden = [key for seed in range(30) for key in exercise(traces["toy-gpt"], seed).keys if not key.seen]
    assert len(hidden) > 5
    assert all(key.power == key.weight == 0 and key.run["weight"] == 0 for key in hidden)


def test_the_same_seed_gives_the_same_sheet_and_another_gives_another(traces):
    trace = traces["toy-gpt"]
    assert exercise(trace, 7) == exercise(trace, 7)
    picked = {(e.site.site, e.head, e.position, e.features) for e in (exercise(trace, f"0.{n}") for n in range(1, 31))}
    assert len(picked) == 30


def test_the_level_determines_the_blanks(traces):
    trace = traces["toy-bert"]
    columns = {level: {name for name, _ in exercise(trace, 1, level).blanks} for level in LEVELS}
    assert columns == {
        "scores": {"dot", "score"},
        "weights": {"power", "weight", "total"},
        "z": {"z"},
        "all": {"dot", "score", "power", "weight", "total", "z"},
    }
    shown = exercise(trace, 1, "scores")
    assert len({row for _, row in shown.blanks}) == len(shown.keys) - 1, "one row is an example"
    assert {row for name, row in exercise(trace, 1, "all").blanks if name == "dot"} == set(range(len(shown.keys)))


def test_rounding_is_half_up():
    assert str(half_up(0.125, Decimal("0.01"))) == "0.13"
    assert str(half_up(-0.125, Decimal("0.01"))) == "-0.13"
    assert str(half_up(-0.001, Decimal("0.01"))) == "0.00"
    assert [str(x) for row in same_places(np.array([[2.34, 0.01]])) for x in row] == ["2.3", "0.0"]
    assert [str(x) for row in same_places(np.array([[0.25, 0.013]])) for x in row] == ["0.25", "0.01"]


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Reader(HTMLParser):
    """Which tags and attributes a document has, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


def test_sheets_have_blanks_and_no_answers_and_the_key_has_both(traces):
    trace = traces["toy-gpt"]
    e = exercise(trace, 4, "z")
    sheet, key = (handout(trace, seed=4, level="z", part=part) for part in ("sheets", "key"))
    assert sheet.count('class="blank"') == 2
    assert sheet.count('class="answer"') == 0
    assert "run" not in re.findall(r'class="(\w+)"', sheet)
    answers = re.findall(r'<td class="answer">([−\d.]+)</td>', key)
    assert [Decimal(a.replace("−", "-")) for a in answers] == list(e.z)
    exact = re.findall(r'<td class="run">([−\d.]+)</td>', key)
    assert [float(x.replace("−", "-")) for x in exact[-2:]] == pytest.approx(e.run_z, abs=1e-6)
    both = handout(trace, seed=4, level="z")
    assert both.count("<section") == 2
    assert both.index('class="blank"') < both.index("Answer key")


def test_a_sheet_for_every_student(traces):
    page = handout(traces["toy-bert"], students=30, part="sheets")
    assert page.count('<section class="sheet">') == 30
    assert "Sheet 30 · seed 0.30" in page
    assert "break-after: page" in page
    assert "size: A4" in page


def test_hostile_text_stays_text(traces):
    trace = regard.load("toy-gpt").trace("</td><script>alert(1)</script> <img src=x onerror=alert(2)> & \"'")
    page = handout(trace, students=20, model="<b onclick=x>model</b>")
    read = Reader(page)
    assert not {"script", "img", "b"} & set(read.tags)
    assert not [name for name in read.attributes if name.startswith("on")]
    assert "<b onclick=x>model</b>" in read.text
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|url\(", page)


def test_grouped_and_rotated_heads(saved):
    """Llama: keys and values shared between heads, queries and keys turned by their positions."""
    trace = regard.load(saved("llama-gqa-tied")).trace([3, 4, 5, 6, 7, 8])
    assert trace.shape("decoder.0.attention.K")[0] < trace.shape("decoder.0.attention.Q")[0]
    for seed in range(8):
        e = exercise(trace, seed)
        for z, c in zip(e.z, e.channels, strict=True):
            assert float(z) == pytest.approx(float(trace.tensor(f"{e.site.site}.Z")[e.head, e.position, c]), abs=0.0101)
        for key in e.keys:
            assert float(key.weight) == pytest.approx(key.run["weight"], abs=0.02)


def test_a_single_token(traces):
    e = exercise(regard.load("toy-gpt").trace([5]), 0)
    assert len(e.keys) == 1
    assert e.keys[0].weight == 1
    assert e.others == 0


def test_refusals(traces):
    trace = traces["toy-gpt"]
    with pytest.raises(TaskError, match="scores, weights, z, all"):
        exercise(trace, 0, "hard")
    with pytest.raises(TaskError, match="from 1 to 500"):
        handout(trace, students=0)
    with pytest.raises(TaskError, match="edited"):
        exercise(trace.edit({"decoder.0.attention.head.1": "zero"}))
