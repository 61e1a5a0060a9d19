"""A run in one file, opened from disk with the network off: every stage, every reason, and the edits it can honour."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import regard
from browser import STAGES, Screen
from regard.explain.trace import Trace

TEXT = "The old king"
NODE, INDEX = "decoder.2.attention.weights", (1, 3, 0)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


@pytest.fixture
def opened(browser: Browser, trace, tmp_path: Path) -> Iterator[Screen]:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    screen = Screen(context.new_page(), trace.html(tmp_path / "run.html").as_uri())
    yield screen
    context.close()
    assert screen.wrong == []
    assert screen.hosts <= {""}  # file://


def test_every_stage_of_a_saved_run(opened: Screen) -> None:
    opened.visit(stage="tokens")
    for digit, stage in enumerate(STAGES[:6], 1):
        opened.press(str(digit))
        opened.drawn(stage)
        assert opened.errors() == [], stage
    assert opened.tokens() == ["T", "he", "·old", "·king"]


def test_its_reasons_are_those_of_the_library(opened: Screen, trace) -> None:
    page = opened.visit(site="decoder.2.attention", head=1, node=NODE, index=list(INDEX))
    for operand in ("masked", "scores", "dots"):
        node, index = opened.explained()
        assert opened.captured() == pytest.approx(float(trace[node][index]), rel=1e-6)
        page.locator(f'#drawer .term-factors a[title*="{operand}["]').first.click()
        page.wait_for_function("n => document.querySelector('.why-name').textContent.includes(n)", arg=operand)


def test_switches_are_computed_in_the_file_and_other_texts_are_visibly_off(opened: Screen, trace) -> None:
    node, index = "decoder.3.out", (3, 7)
    page = opened.visit(site="decoder.1.attention", head=2, node=node, index=list(index))
    edits = {}
    for offer, place, what in (
        ("head 2 off", "decoder.1.attention.head.2", "zero"),
        ("scaling by √d_k off", "decoder.1.attention.scaling", "off"),
    ):
        page.get_by_role("button", name="Edit…").click()
        page.get_by_role("button", name=offer).click()
        edits[place] = what
        expect(page.locator(".chip")).to_have_count(len(edits))
        value = float(trace.edit(edits)[node][index])
        page.wait_for_function(
            "v => Math.abs(Number(document.querySelector('.check dd').textContent.replace('−', '-')) - v) < 1e-4",
            arg=value,
        )
    expect(page.locator("#text")).to_have_attribute("readonly", "")
    expect(page.locator("select[data-keep=model]")).to_be_disabled()
