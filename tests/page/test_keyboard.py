"""Without a mouse, without eyes: a whole session on the keyboard, found again from its address, and what is said aloud."""

import re
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import regard
from browser import STAGES, Screen

FIRST, TEXT = "One day the cat", "The old king and the old woman"
FOCUS = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"


def tab_to(page: Page, name: str, most: int = 120) -> None:
    """With Tab alone, as a person who cannot point."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if re.search(name, page.evaluate(FOCUS)):
            return
    raise AssertionError(f"Tab never comes to {name}")


def test_a_whole_session_on_the_keyboard(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=FIRST)
    trace = regard.load("toy-gpt").trace(TEXT)

    screen.press("/")
    page.keyboard.type(TEXT)
    screen.press("Enter", "Escape")
    expect(page.locator("#stage .tokens .token")).to_have_count(len(trace.tokens))
    screen.drawn("attention")

    screen.press("}")
    expect(page.locator(".stage-title")).to_contain_text("block 1")
    screen.press("}")
    expect(page.locator(".stage-title")).to_contain_text("block 2")
    screen.press("{")
    expect(page.locator(".stage-title")).to_contain_text("block 1")
    screen.press("]")
    expect(page.locator(".stage-title")).to_contain_text("head 1")
    screen.press("[")
    expect(page.locator(".stage-title")).to_contain_text("head 0")
    screen.press("[")
    expect(page.locator(".stage-title")).to_contain_text("head 3")  # around
    screen.drawn("attention")

    tab_to(page, "^weights, head 3")
    screen.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight")
    value = float(trace["decoder.1.attention.weights"][3, 3, 2])
    expect(page.locator("#said")).to_have_text(f"weights, head 3, query ·king, key ·old: {value:.3f}")
    screen.press("Enter")
    screen.wait_captured(value)

    screen.press("w")  # into the derivation, and on to the first operand
    tab_to(page, r"masked\[3, 3|S\[|masked", most=8)
    screen.press("Enter")
    expect(page.locator(".trail a")).to_have_count(1)
    assert screen.explained()[0] == "decoder.1.attention.masked"
    screen.press("Backspace")
    expect(page.locator(".trail")).to_have_count(0)

    tab_to(page, "^Edit…$")
    screen.press("Enter")
    tab_to(page, "^head 3 off$", most=6)
    screen.press("Enter")
    expect(page.locator(".chip")).to_have_count(1)
    out = "decoder.3.out"
    after = trace.edit({"decoder.1.attention.head.3": "zero"})
    assert (after[out] != trace[out]).any()
    screen.press("a")
    expect(page.locator('.choice [aria-pressed="true"]', has_text="A")).to_be_visible()

    for digit, stage in enumerate(STAGES[:6], 1):
        screen.press(str(digit))
        screen.drawn(stage)
    screen.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    screen.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()

    screen.press("Escape")
    expect(page.locator("#drawer .sentence.empty")).to_be_visible()
    assert screen.state["stage"] == "output"
    assert screen.state["edits"] == {"decoder.1.attention.head.3": "zero"}


SEEN = "() => [...document.querySelectorAll('#stage, #drawer, #footer')].map((e) => e.innerText).join('|')"
VIEWS = [
    {"stage": "attention", "site": "decoder.1.cross", "head": 2, "token": 2, "key": 1, "node": "decoder.1.cross.weights",
     "index": [2, 2, 1], "edits": {"decoder.0.cross.head.1": "zero"}, "mode": "b"},
    {"stage": "heads", "view": "neurons.weight", "site": "decoder.0.cross", "head": 1, "token": 1},
    {"stage": "residual", "site": "encoder.0.attention", "token": 3, "view": "norm:encoder.1.norm_1"},
    {"stage": "output", "token": 2, "temperature": 1.3, "seed": 5},
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS, ids=[str(view["stage"]) for view in VIEWS])
def test_an_address_is_a_view(screen: Screen, view: dict) -> None:
    """What is reached step by step and what a link opens is the same screen."""
    page = screen.visit(model="toy-translate", text="the European Economic Area", **view)
    if "node" in view:
        screen.explained()
    once = page.evaluate(SEEN)
    link = page.url
    page.reload()
    screen.drawn(str(view["stage"]))
    page.wait_for_function(f"t => ({SEEN})() === t", arg=once)
    assert page.url == link


def test_back_and_forward(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=FIRST, stage="tokens")
    for stage in ("mlp", "output"):
        page.get_by_role("link", name=stage, exact=False).first.click()
        screen.drawn(stage)
    page.go_back()
    screen.drawn("mlp")
    page.go_back()
    screen.drawn("tokens")
    page.go_forward()
    screen.drawn("mlp")


def test_regions_matrices_and_cells_are_named(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=FIRST)
    role: Any  # one of the many that Playwright lists
    for role, name in (
        ("banner", ""),
        ("main", ""),
        ("navigation", "Map of the model"),
        ("navigation", "Stages"),
        ("complementary", "Why?"),
        ("contentinfo", ""),
        ("region", "attention"),
        ("region", "Edits"),
        ("region", "Timeline"),
        ("textbox", "Text"),
    ):
        found = page.get_by_role(role, name=name) if name else page.get_by_role(role)
        assert found.count() == 1, (role, name)
    matrices = page.locator(".matrix-view")
    assert matrices.count() > 3
    for view in matrices.all():
        assert view.get_attribute("role") == "application"
        assert re.search(r", \d+ by \d+\. Arrow keys move, Enter asks why\.$", view.get_attribute("aria-label") or "")
    page.locator("#said").wait_for(state="attached")
    assert page.locator("#said").get_attribute("aria-live") == "polite"
    trace = regard.load("toy-gpt").trace(FIRST)
    screen.press("m", "ArrowDown")
    said = f"dots, head 0, query ·day, key One: {float(trace['decoder.0.attention.dots'][0, 1, 0]):.3f}"
    expect(page.locator("#said")).to_have_text(said.replace("-", "−"))


@pytest.mark.parametrize("stage", STAGES)
def test_everything_that_can_be_pressed_has_a_name(screen: Screen, stage: str) -> None:
    page = screen.visit(model="toy-gpt", text=FIRST, stage=stage)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('a, button, input, select, canvas[tabindex], [role="img"]')]
            .filter((e) => e.checkVisibility())
            .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.title || e.labels?.length))
            .map((e) => e.outerHTML)"""
    )
    assert unnamed == []


def test_the_theme_is_switched_and_kept(screen: Screen, context: BrowserContext) -> None:
    page = screen.visit(model="toy-gpt", text=FIRST)
    colours = "(() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] })()"
    light = page.evaluate(colours)
    picture = page.locator(".matrix-view").first.screenshot()
    screen.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = page.evaluate(colours)
    assert dark != light
    assert page.locator(".matrix-view").first.screenshot() != picture  # canvases are painted again
    page.reload()
    screen.drawn()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(colours) == dark
    page.get_by_label("Settings").click()
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.evaluate("localStorage.clear()")
    page.emulate_media(color_scheme="dark")
    page.reload()
    screen.drawn()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")  # the system's wish
    assert page.evaluate(colours) == dark
