"""A worksheet that checks itself, opened from disk with the network off and filled in, rightly and wrongly."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

import hostile_tokens
import regard
from browser import Screen
from regard.explain.trace import Trace
from regard.teach.self_check import self_check
from regard.teach.worksheet import Blank, Exercise, exercises, tolerance


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load("toy-gpt").trace("The old king sees the horse.")


class Filled:
    """The sheet on the screen, and the exercise on it."""

    def __init__(self, screen: Screen, e: Exercise) -> None:
        self.page, self.e = screen.page, e
        self.sheet = screen.page.locator("section:not([hidden])")

    def field(self, blank: Blank) -> Locator:
        return self.sheet.locator(f'input[data-blank="{blank[0]}.{blank[1]}"]')

    def fill(self, blank: Blank, text: object) -> None:
        self.field(blank).fill(str(text))
        self.field(blank).press("Enter")

    def said(self, blank: Blank) -> Locator:
        """The sentence below the field's table."""
        return self.sheet.locator(".say").nth({"dot": 0, "score": 0, "z": 2}.get(blank[0], 1))

    def verdict(self, blank: Blank) -> str:
        cell = self.field(blank).locator("xpath=..")
        marks = set((cell.get_attribute("class") or "").split()) - {"field"}
        assert (self.field(blank).get_attribute("aria-invalid") == "true") == ("wrong" in marks)
        return " ".join(marks)

    def count(self, text: str) -> None:
        expect(self.page.locator("#count")).to_have_text(text)


@pytest.fixture
def opened(browser: Browser, trace: Trace, tmp_path: Path) -> Iterator[Screen]:
    path = tmp_path / "sheet.html"
    path.write_text(self_check(trace, seed=0, students=2, model="toy-gpt"), encoding="utf-8")
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    screen = Screen(context.new_page(), path.as_uri())
    screen.page.goto(path.as_uri())
    yield screen
    context.close()
    assert screen.wrong == []
    assert screen.hosts <= {""}  # file://


def test_a_sheet_filled_in_rightly(opened: Screen, trace: Trace) -> None:
    sheet = Filled(opened, exercises(trace, 0, "all", 2)[0])
    blanks = sheet.e.asked()
    sheet.count(f"0 of {len(blanks)} right")
    for n, blank in enumerate(blanks, 1):
        answer = sheet.e.answer(blank)
        sheet.fill(blank, answer)
        assert sheet.verdict(blank) == "right"
        expect(sheet.said(blank)).to_contain_text("right.")
        sheet.count(f"{n} of {len(blanks)} right" if n < len(blanks) else f"All {n} right")
        if n < len(blanks):
            expect(sheet.field(blanks[n])).to_be_focused()
    assert opened.page.locator("#progress").evaluate("bar => bar.value / bar.max") == 1
    assert sheet.sheet.locator("[data-copy]").all_inner_texts() == [
        f"{sheet.e.answer((column, r))}".replace("-", "−")
        for column in ("score", "weight")
        for r in range(len(sheet.e.keys))
    ]


def test_wrong_answers_and_what_is_said_of_them(opened: Screen, trace: Trace) -> None:
    sheet = Filled(opened, exercises(trace, 0, "all", 2)[0])
    for blank in sheet.e.asked():
        answer, unit = sheet.e.answer(blank), tolerance(sheet.e.answer(blank))
        for off in (-2, 2):
            sheet.fill(blank, answer + off * unit)
            assert sheet.verdict(blank) == "wrong", (blank, off)
        sheet.count(f"0 of {len(sheet.e.blanks)} right")
    blank = next(b for b in sheet.e.asked() if b[0] == "dot" and abs(sheet.e.answer(b)) > 1 and sheet.e.answer(b) % 1)
    answer = sheet.e.answer(blank)
    sheet.fill(blank, "eleven")
    expect(sheet.said(blank)).to_contain_text("“eleven” is not a number.")
    sheet.fill(blank, -answer)
    expect(sheet.said(blank)).to_contain_text("the sign is not")
    sheet.fill(blank, answer.quantize(Decimal(1)))
    expect(sheet.said(blank)).to_contain_text("give two decimals")
    sheet.fill(blank, "9" * 400)
    assert sheet.verdict(blank) == "wrong"
    sheet.fill(blank, "")
    assert sheet.verdict(blank) == ""


def test_one_unit_off_counts_and_the_field_shows_what_to_go_on_with(opened: Screen, trace: Trace) -> None:
    sheet = Filled(opened, exercises(trace, 0, "all", 2)[0])
    for blank in sheet.e.asked():
        answer, unit = sheet.e.answer(blank), tolerance(sheet.e.answer(blank))
        shown = f"{answer}".replace("-", "−")
        for typed in (
            answer - unit,
            answer + unit,
            answer + unit * Decimal("0.4"),
            shown,
            f" {answer} ".replace(".", ","),
        ):
            sheet.fill(blank, "")
            sheet.fill(blank, typed)
            assert sheet.verdict(blank) == "right", (blank, typed)
            assert sheet.field(blank).input_value() == shown


def test_right_is_said_while_one_types_and_wrong_when_one_has_typed(opened: Screen, trace: Trace) -> None:
    sheet = Filled(opened, exercises(trace, 0, "all", 2)[0])
    blank = next(b for b in sheet.e.asked() if b[0] == "dot" and abs(sheet.e.answer(b)) > 1)
    text = str(sheet.e.answer(blank))
    sheet.field(blank).press_sequentially(text[:-2])
    assert sheet.verdict(blank) == ""
    sheet.field(blank).press_sequentially(text[-2:])
    assert sheet.verdict(blank) == "right"
    sheet.field(blank).press_sequentially("77")
    assert sheet.verdict(blank) in ("", "right")  # more digits of the same number may still be right
    sheet.field(blank).fill("1234")
    assert sheet.verdict(blank) == ""
    sheet.field(blank).blur()
    assert sheet.verdict(blank) == "wrong"


def test_hints_have_the_numbers_that_were_found(opened: Screen, trace: Trace) -> None:
    sheet = Filled(opened, exercises(trace, 0, "all", 2)[0])
    score, dot = ("score", 0), ("dot", 0)
    ask = sheet.field(score).locator("xpath=../button")
    ask.click()
    expect(sheet.said(score)).to_contain_text(f"= [q·k for “{sheet.e.keys[0].token}” (token 0)] ÷ {sheet.e.divisor}")
    expect(sheet.field(score)).to_be_focused()
    sheet.fill(dot, sheet.e.answer(dot))
    ask.click()
    found = f"{sheet.e.answer(dot)}".replace("-", "−")
    expect(sheet.said(score)).to_contain_text(f"= {f'({found})' if '−' in found else found} ÷ {sheet.e.divisor}")
    sheet.field(score).press_sequentially("1")
    expect(sheet.said(score)).to_contain_text("÷")


def test_every_student_chooses_a_sheet(opened: Screen, trace: Trace) -> None:
    first, second = exercises(trace, 0, "all", 2)
    sheet = Filled(opened, first)
    sheet.fill(first.asked()[0], first.answer(first.asked()[0]))
    opened.page.get_by_role("combobox", name="sheet").select_option("2")
    sheet = Filled(opened, second)
    sheet.count(f"0 of {len(second.blanks)} right")
    sheet.fill(second.asked()[0], second.answer(second.asked()[0]))
    sheet.count(f"1 of {len(second.blanks)} right")
    opened.page.go_back()
    sheet.count(f"1 of {len(first.blanks)} right")
    for fragment, number in (("2", "2"), ("1.5", "1"), ("99", "2"), ("-3", "1"), ("x", "1")):
        opened.page.goto(f"{opened.address}#{fragment}")
        expect(opened.page.locator("section:not([hidden])")).to_have_attribute("data-sheet", number)


def test_hostile_tokens(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = hostile_tokens.TOKENS
    run = regard.load("toy-gpt").trace(list(range(3, 3 + len(tokens))))
    monkeypatch.setattr(Trace, "tokens_of", lambda self, side: tokens)
    path = tmp_path / "sheet.html"
    path.write_text(self_check(run, students=12, model=hostile_tokens.MODEL), encoding="utf-8")
    context = browser.new_context(offline=True)
    screen = Screen(context.new_page(), path.as_uri())
    for n in range(1, 13):
        screen.page.goto(f"{path.as_uri()}#{n}")
        for ask in screen.page.locator("section:not([hidden]) td.field button").all()[::4]:
            ask.click()
    assert screen.page.evaluate("typeof hacked") == "undefined"
    assert screen.page.locator("img").count() == 0
    assert screen.wrong == []
    assert screen.hosts <= {""}
    context.close()
