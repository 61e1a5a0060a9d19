"""The recurrent network of 2015 on the page and in a file: alignment, steps and gates, output, and why."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import regard
from browser import Screen, figure, figures
from regard.api.trace import Trace
from regard.explain import lens

TEXT, TARGET = "a green flower", "une fleur verte"
STAGES = ["tokens", "attention", "steps", "output"]


@pytest.fixture(scope="module")
def trace(models: list[Path]) -> Trace:
    return regard.load(models[-1]).trace(TEXT, TARGET)


@pytest.fixture
def saved(browser: Browser, trace: Trace, tmp_path: Path) -> Iterator[Screen]:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    screen = Screen(context.new_page(), trace.html(tmp_path / "run.html").as_uri())
    yield screen
    context.close()
    assert screen.wrong == []


def test_its_stages(screen: Screen, trace: Trace) -> None:
    page = screen.visit(model="recurrent", text=TEXT, target=TARGET, stage="heads")  # which it has not
    screen.drawn("attention")
    expect(page.locator(".tab")).to_have_text(
        ["← Scene", "Tokens", "Attention", "Steps", "Output", "Training", "Lessons"]
    )
    for number, stage in enumerate(STAGES, 1):
        page.keyboard.press(str(number))
        screen.drawn(stage)
        assert screen.errors() == [], stage
    assert len(screen.tokens()) == len(trace.tokens) + len(trace.target_tokens or [])
    expect(page.locator("#map .part")).to_have_text(
        ["embedding", "GRU → and ←", "states", "embedding", "additive attention", "GRU", "next token"]
    )


def test_the_alignment_and_why(screen: Screen, trace: Trace) -> None:
    page = screen.visit(model="recurrent", text=TEXT, target=TARGET, stage="attention", token=2, key=3)
    weight = float(trace["decoder.cross.weights"][0, 2, 3])
    assert figure(page.locator(".fraction ~ .number").inner_text()) == pytest.approx(weight, abs=6e-4)
    page.focus(".matrix-view >> nth=0")
    screen.press("Enter")
    assert screen.explained() == ("decoder.cross.scores", (0, 2, 3))
    screen.wait_captured(float(trace["decoder.cross.scores"][0, 2, 3]))
    expect(page.locator(".agrees")).to_have_count(1)


@pytest.mark.parametrize(("stack", "node"), [("encoder", "encoder.reader.H"), ("decoder", "decoder.states")])
def test_a_step_is_worked_out(screen: Screen, trace: Trace, stack: str, node: str) -> None:
    focus = {"key": 1} if stack == "encoder" else {"token": 1}
    page = screen.visit(model="recurrent", text=TEXT, target=TARGET, stage="steps", view=stack, **focus)
    found = lens.gates(trace, node)
    values = [figure(text) for text in page.locator(".matrix-readout b").all_inner_texts()]
    expected = [float(x[1, 0]) for x in (found.r, found.z, found.n, found.after)]
    assert values == pytest.approx(expected, abs=6e-4)
    page.locator(".worked a.number").last.click()
    assert screen.explained() == (node, (1, 0))
    screen.wait_captured(float(trace[node][1, 0]))


def test_an_edit_of_what_is_read(screen: Screen, trace: Trace) -> None:
    page = screen.visit(model="recurrent", text=TEXT, target=TARGET, stage="steps", key=2)
    page.get_by_role("button", name="Edit…").click()
    page.locator(".offers button").first.click()
    expect(page.locator(".chip")).to_contain_text("encoder token 2")
    page.keyboard.press("d")
    expect(page.locator(".matrix-title").last).to_have_text("Δ state h")
    after = trace.edit({"encoder.token.2": "zero"})
    change = float((after["decoder.states"] - trace["decoder.states"])[0, 0])
    assert figure(page.locator(".matrix-readout b").last.inner_text()) == pytest.approx(change, abs=6e-4, rel=1e-2)


def test_it_is_handed_on_with_its_reasons(saved: Screen, trace: Trace) -> None:
    for stage in STAGES:
        saved.visit(stage=stage)
        assert saved.errors() == [], stage
    for node, index in (
        ("decoder.states", (0, 1)), ("decoder.states", (2, 5)), ("encoder.reader.H", (1, 3)),
        ("encoder.reader.H", (1, 12)), ("decoder.cross.scores", (0, 1, 2)), ("decoder.dense", (1, 4)),
    ):  # fmt: skip
        page = saved.visit(stage="steps", node=node, index=list(index))
        assert saved.explained() == (node, index)
        assert saved.captured() == pytest.approx(float(trace[node][index]), rel=1e-6)
        assert figures(page.locator(".check dd"))[1] == pytest.approx(trace.why(node, index).recomputed, rel=1e-6)
        expect(page.locator(".agrees")).to_have_count(1)
