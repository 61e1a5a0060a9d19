"""On a telephone, on a small laptop, and with a text of hundreds of tokens."""

import time

import pytest
from playwright.sync_api import expect

import regard
from browser import STAGES, Screen

SIZES = {"phone": (390, 844), "laptop": (1280, 720)}
TEXTS = {"toy-gpt": "The old king and the old woman", "toy-translate": "the European Economic Area"}


@pytest.mark.parametrize("model", TEXTS)
@pytest.mark.parametrize("size", SIZES)
def test_nothing_scrolls_sideways_but_what_is_meant_to(screen: Screen, size: str, model: str) -> None:
    width, height = SIZES[size]
    screen.page.set_viewport_size({"width": width, "height": height})
    page = screen.visit(model=model, text=TEXTS[model], stage="lessons", edits={"positions": "off"}, fresh=3)
    for digit, stage in enumerate(STAGES, 1):
        screen.press(str(digit))
        screen.drawn(stage)
        wide = page.evaluate(
            "() => Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"
        )
        assert wide <= 0, stage
    first = {"toy-gpt": "decoder.0.attention.weights", "toy-translate": "decoder.1.cross.weights"}[model]
    page = screen.visit(model=model, text=TEXTS[model], node=first, index=[0, 3, 1])
    screen.explained()
    drawer = page.locator("#drawer").bounding_box()
    assert drawer is not None
    assert drawer["x"] >= 0
    assert drawer["x"] + drawer["width"] <= width
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_512_tokens_stay_usable(screen: Screen) -> None:
    """Matrices are pictures and not elements: what is drawn does not grow with the square of the text."""
    model = regard.load("toy-gpt")
    text = "the old king and " * 128
    trace_tokens = len(model.tokenizer.encode(text))
    assert trace_tokens >= 512
    page = screen.visit(model="long", text=text, stage="attention", site="decoder.1.attention")
    elements = "() => document.querySelectorAll('.panel *').length"
    assert page.locator("#stage .tokens .token").count() == trace_tokens
    assert page.evaluate(elements) < 700
    for change in ("}", "]"):
        before, start = page.inner_text(".stage-title"), time.monotonic()
        screen.press(change)
        expect(page.locator(".stage-title")).not_to_have_text(before, timeout=20_000)
        screen.drawn("attention")
        assert time.monotonic() - start < 20  # on a busy machine; bench measures it
    screen.press("m", "PageDown", "End")
    tenth = model.tokenizer.pieces(model.tokenizer.encode(text))[10].replace(" ", "·")
    expect(page.locator("#said")).to_contain_text(f"query {tenth}, key")
    screen.press("Enter")
    assert screen.explained()[1][1:] == (10, trace_tokens - 1)
    for view, most in (("lines", 6000), ("grid", 700), ("neurons", 4000)):
        screen.visit(model="long", text=text, stage="heads", view=view)
        assert page.evaluate(elements) < most, view
    screen.visit(model="long", text=text, stage="mlp", token=400)
    assert page.evaluate(elements) < 4000


def test_only_a_matrix_that_does_not_fit_has_scroll_bars(screen: Screen) -> None:
    """They would take their room from its last row and column, and widths are not whole numbers."""
    bars = "() => { const s = getComputedStyle(document.querySelector('.matrix-view')); return [s.overflowX, s.overflowY] }"
    page = screen.visit(model="toy-gpt", text="the cat and the king", stage="attention")
    page.wait_for_function(f"({bars})().join() === 'hidden,hidden'")
    page = screen.visit(model="toy-gpt", text="the cat and the king " * 12, stage="attention")
    page.wait_for_function(f"({bars})().join() === 'scroll,scroll'")


def test_long_matrices_are_zoomed(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text="the cat and the king " * 12, stage="attention")
    view = page.locator(".matrix-view").first
    size = "e => e.querySelector('.matrix-spacer').offsetWidth"
    before = view.evaluate(size)
    view.focus()
    screen.press("+", "+")
    page.wait_for_function(
        "w => document.querySelector('.matrix-view .matrix-spacer').offsetWidth > 1.5 * w", arg=before
    )
    assert page.locator(".matrix-view").nth(3).evaluate(size) == view.evaluate(size)  # all four together
    screen.press("End")
    page.wait_for_function("() => document.querySelector('.matrix-view').scrollLeft > 0")
    page.wait_for_function(
        """() => new Set([...document.querySelectorAll('.four .matrix-view')].map((v) => v.scrollLeft)).size === 1"""
    )
