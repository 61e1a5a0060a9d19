"""The page in a real browser: typed text, keys, derivations, edits, addresses. Digits are checked against the library."""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

import regard
from regard.explain.graph import weight
from regard.serve.app import make_app
from regard.serve.shelf import Shelf

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

TEXT = "One day the cat"
TOY = {"toy-gpt": TEXT, "toy-bert": "The movie was [MASK].", "toy-translate": "the cat sleeps"}
STAGES = ["tokens", "attention", "heads", "mlp", "residual", "output", "training", "lessons"]
SLOW = 60_000  # milliseconds: the machine may be busy


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(make_app(Shelf()), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page on which nothing may go wrong: no script error, no refusal, no request to anywhere else."""
    page, wrong = browser.new_page(viewport={"width": 1280, "height": 800}), []
    page.set_default_timeout(SLOW)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(address) else None)
    yield page
    page.close()
    assert wrong == []


@pytest.fixture
def visit(page: Page, address: str) -> Callable[..., Page]:
    """`visit(model=…, text=…, …)`: the page at that state, drawn."""

    def go(**state: object) -> Page:
        words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in state.items()}
        page.goto("about:blank")
        page.goto(address + "#" + "&".join(f"{key}={quote(value)}" for key, value in words.items()))
        drawn(page)
        return page

    page.context.clear_cookies()
    return go


def drawn(page: Page) -> None:
    page.wait_for_selector(".panel:not([data-coming])", timeout=SLOW)
    page.wait_for_selector("#stage:not([aria-busy])", timeout=SLOW)


def shown(page: Page, digits: str = ".why-value") -> float:
    return float(page.inner_text(digits).replace("−", "-"))


def captured(page: Page) -> float:
    return float(page.inner_text(".check dd >> nth=0").replace("−", "-"))


def place(page: Page) -> tuple[str, tuple[int, ...]]:
    """Which number the drawer explains, from the address."""
    node, index = page.evaluate(
        "(() => { const p = new URLSearchParams(location.hash.slice(1)); return [p.get('node'), p.get('index')] })()"
    )
    return node, tuple(json.loads(index))


@pytest.mark.parametrize("model", TOY)
def test_every_stage_opens(visit: Callable[..., Page], model: str) -> None:
    page = visit(model=model, text=TOY[model], stage="tokens")
    for number, stage in enumerate(STAGES, 1):
        page.keyboard.press(str(number))
        page.wait_for_selector(f"#panel-{stage}:not([data-coming])", timeout=SLOW)
        assert page.locator(".panel .sentence.error").count() == 0, stage


def test_the_keyboard_is_enough_to_find_a_number_and_its_reason(visit: Callable[..., Page]) -> None:
    page = visit(model="toy-gpt", text=TEXT)
    trace = regard.load("toy-gpt").trace(TEXT)
    page.keyboard.press("m")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    value = float(trace["decoder.0.attention.dots"][0, 2, 1])
    said = f"dots, head 0, query ·the, key ·day: {value:.3f}".replace("-", "−")
    expect(page.locator("#said")).to_have_text(said)
    page.keyboard.press("Enter")
    page.wait_for_selector(".why-value")
    assert captured(page) == pytest.approx(value, rel=1e-6)
    page.keyboard.press("]")
    expect(page.locator(".stage-title")).to_contain_text("head 1")
    page.keyboard.press("}")
    expect(page.locator(".stage-title")).to_contain_text("block 1")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer .sentence.empty")).to_be_visible()


def test_a_derivation_goes_down_to_a_weight_and_back(visit: Callable[..., Page]) -> None:
    page = visit(model="toy-gpt", text=TEXT, node="decoder.1.attention.weights", index=[2, 3, 1])
    trace, levels = regard.load("toy-gpt").trace(TEXT), 0
    while page.locator("#drawer .term-factors a").count():
        node, index = place(page)
        assert captured(page) == pytest.approx(float(trace[node][index]), rel=1e-6, abs=1e-9)
        assert page.locator(".agrees").count() == 1
        before = page.inner_text(".why-name")
        page.locator("#drawer .term-factors a").first.click()
        expect(page.locator(".why-name")).not_to_have_text(before)
        levels += 1
        page.wait_for_timeout(50)
        page.wait_for_selector("#drawer:not([data-waiting])")
    node, index = place(page)
    assert levels >= 4
    learned = weight(trace.net, node)
    assert learned is not None, node
    assert captured(page) == pytest.approx(float(learned[index]), rel=1e-6)
    page.keyboard.press("Backspace")
    expect(page.locator(".trail a")).to_have_count(levels - 1)


def test_an_edit_is_made_shown_compared_and_taken_back(visit: Callable[..., Page]) -> None:
    node, index = "decoder.1.attention.weights", [1, 3, 2]
    page = visit(model="toy-gpt", text=TEXT, node=node, index=index)
    model = regard.load("toy-gpt")
    before = model.trace(TEXT)
    after = before.edit({"decoder.0.attention.head.0": "zero"})
    page.get_by_role("button", name="Edit…").click()
    page.get_by_role("button", name="head 0 off").click()
    expect(page.locator(".chip")).to_contain_text("decoder 0 head 0: zero")
    page.wait_for_function("v => Math.abs(Number(document.querySelector('.check dd').textContent) - v) < 1e-6",
                           arg=float(after[node][tuple(index)]))  # fmt: skip
    page.keyboard.press("a")
    page.wait_for_function("v => Math.abs(Number(document.querySelector('.check dd').textContent) - v) < 1e-6",
                           arg=float(before[node][tuple(index)]))  # fmt: skip
    page.keyboard.press("d")
    expect(page.locator('.choice [aria-pressed="true"]', has_text="Δ")).to_be_visible()
    page.get_by_role("button", name=re.compile("Remove the edit")).click()
    expect(page.locator(".chip")).to_have_count(0)


def test_a_number_is_set_from_the_drawer(visit: Callable[..., Page]) -> None:
    page = visit(model="toy-gpt", text=TEXT, node="decoder.0.attention.weights", index=[0, 2, 1])
    page.fill(".set input", "0.9")
    page.keyboard.press("Enter")
    expect(page.locator(".why-value")).to_have_text("0.9000")
    expect(page.locator(".chip")).to_contain_text("set 0.9")


def test_the_address_reproduces_the_view(visit: Callable[..., Page], address: str) -> None:
    state = {"site": "decoder.1.cross", "head": 2, "token": 2, "key": 1}
    page = visit(model="toy-translate", text=TOY["toy-translate"], **state)
    page.locator(".matrix-view").last.focus()
    page.keyboard.press("m")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(".why-value")
    link, value, title = page.url, page.inner_text(".why-value"), page.inner_text(".stage-title")
    page.goto("about:blank")
    page.goto(link)
    drawn(page)
    assert page.inner_text(".stage-title") == title == "decoder · block 1 · cross attention · head 2"
    expect(page.locator(".why-value")).to_have_text(value)
    page.go_back()


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "\"'><svg onload=alert(1)>"]
)
def test_text_is_never_markup(visit: Callable[..., Page], text: str) -> None:
    page = visit(model="toy-gpt", text=TEXT)
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.wait_for_function("t => document.querySelectorAll('.token')[0].textContent === t[0]", arg=text)
    assert page.locator("#stage img, #stage script, #stage svg[onload]").count() == 0
    assert "".join(page.locator(".token").all_inner_texts()).replace("·", " ").strip() == text


def test_generation_is_live_and_repeatable(visit: Callable[..., Page]) -> None:
    page = visit(model="toy-gpt", text=TEXT, seed=7)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => /fresh=/.test(location.hash)", timeout=SLOW)
    drawn(page)
    once = page.locator(".written .piece").all_inner_texts()
    page.reload()
    drawn(page)
    assert page.locator(".written .piece").all_inner_texts() == once
    assert len(once) > 3


def test_light_and_dark(visit: Callable[..., Page]) -> None:
    page = visit(model="toy-gpt", text=TEXT)
    colour = "getComputedStyle(document.body).color"
    light = page.evaluate(colour)
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(colour) != light
    page.keyboard.press("t")


@pytest.mark.parametrize("model", TOY)
def test_a_phone_shows_it_without_scrolling_sideways(visit: Callable[..., Page], page: Page, model: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    visit(model=model, text=TOY[model])
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_long_texts_do_not_make_long_documents(visit: Callable[..., Page]) -> None:
    page = visit(model="toy-gpt", text="the cat " * 36)
    assert page.locator(".token").count() > 100
    assert page.evaluate("document.querySelectorAll('.panel *').length") < 400


def test_what_is_wrong_is_said(page: Page, address: str) -> None:
    page.goto(address + "#model=nothing")
    expect(page.locator(".sentence.error")).to_have_text(
        "There is no model called “nothing” here; choose one from the list above."
    )
