"""The scene: from the whole model to one number, in a real browser, with the numbers that Python has."""

import math
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import regard
from browser import Screen, figure
from regard.explain import lens

TEXT = "The old king and the old"
KINDS = {
    "toy-gpt": TEXT,
    "toy-bert": "The movie had amazing [MASK], but the story was quite boring.",
    "toy-bert-sentiment": "The actors were wonderful.",
    "toy-bert-tags": "The actors were not very good.",
    "toy-translate": "the European Economic Area",
    "minilm": "a kitten on a rug",
}


def scene(screen: Screen, **state: Any) -> Page:
    """The scene at that state, drawn and at rest."""
    page = screen.scene(**state)
    rest(page)
    return page


def rest(page: Page) -> None:
    page.wait_for_selector(".scene:not([data-moving]):not([aria-busy])")


def texts(page: Page, kind: str) -> list[str]:
    return page.locator(f".thing.{kind}").all_inner_texts()


def in_order(page: Page, kind: str) -> list[str]:
    """Line by line, from left to right."""
    return page.evaluate(
        """kind => [...document.querySelectorAll(`.thing.${kind}`)]
            .map(e => [Math.round(e.getBoundingClientRect().y / 20), e.getBoundingClientRect().x, e.innerText])
            .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , text]) => text)""",
        kind,
    )


def test_the_line_of_guesses_is_the_logit_lens(screen: Screen) -> None:
    page = scene(screen, model="toy-gpt", text=TEXT)
    trace = regard.load("toy-gpt").trace(TEXT)
    rows = [row.top[0] for row in lens.logit_lens(trace, -1) if row.node != "embed.out"]
    assert in_order(page, "guess") == [f"“{top.piece.strip()}” {100 * top.probability:.0f} %" for top in rows]
    assert len({top.piece for top in rows}) > 1  # it changes its mind


def test_the_bars_are_the_probabilities(screen: Screen) -> None:
    page = scene(screen, model="toy-gpt", text=TEXT)
    probabilities = regard.load("toy-gpt").trace(TEXT)["probabilities"][-1]
    shown = sorted((float(text.removesuffix(" %")) for text in texts(page, "percent")), reverse=True)
    assert shown == pytest.approx(sorted(100 * probabilities, reverse=True)[: len(shown)], abs=0.051)
    assert len(shown) == 6


@pytest.mark.parametrize("model", KINDS)
def test_every_kind_of_model_down_to_a_cell(screen: Screen, model: str) -> None:
    page = scene(screen, model=model, text=KINDS[model])
    words = texts(page, "word")
    trace = regard.load(model).trace(KINDS[model])
    assert len(words) == len(trace.tokens) + len(trace.target_tokens or [])
    assert page.locator(".narration .bold").inner_text()
    page.locator(".thing.door").last.click()
    expect(page.locator(".path [aria-current]")).to_contain_text("block")
    page.locator(".thing.head-name").first.click()
    expect(page.locator(".path [aria-current]")).to_contain_text("head")
    page.wait_for_function("() => location.hash.includes('depth=2')")
    site = next(each for each in trace.graph.sites if each.site == screen.state["site"])
    expect(page.locator(".thing.step")).to_have_count(len(site.steps))
    page.locator(".thing.sum").click()
    expect(page.locator(".path [aria-current]")).to_contain_text("→")
    values = page.locator(".thing.value")
    expect(values).to_have_count(len(site.steps))
    state = screen.state
    focus = page.locator(".thing.word.chosen")
    assert focus.count() == 1
    shown = figure(values.last.inner_text().rpartition("=")[2])
    head, key = int(state.get("head", 0)), int(state.get("key", 0))
    assert any(abs(float(x) - shown) < 6e-4 for x in trace[site.weights][head, :, key])


def test_a_number_of_the_scene_can_be_asked_why_down_to_a_weight(screen: Screen) -> None:
    at = {"site": "decoder.2.attention", "head": 1, "token": 6, "key": 3}
    page = scene(screen, model="toy-gpt", text=TEXT, depth=3, **at)
    page.locator(".thing.value").last.click()
    trace = regard.load("toy-gpt").trace(TEXT)
    node, index = screen.explained()
    assert (node, index) == ("decoder.2.attention.weights", (1, 6, 3))
    assert screen.captured() == pytest.approx(float(trace[node][index]), rel=1e-6)
    for _ in range(12):
        links = page.locator("#drawer .terms a.number, #drawer .term a.number")
        if not links.count():
            break
        before = screen.explained()
        links.last.click()
        page.wait_for_function(
            "n => document.querySelector('#drawer').dataset.shown !== n", arg=f"{before[0]}[{before[1]}]"
        )
    assert page.locator("#drawer").inner_text().count("learned weight") == 1


def test_a_head_that_is_off_is_hollow_and_its_effect_is_told(screen: Screen) -> None:
    at = {"site": "decoder.2.attention", "head": 1, "token": 6, "key": 3}
    page = scene(screen, model="toy-gpt", text=TEXT, depth=2, **at)
    page.get_by_role("button", name="head 1 off").click()
    trace = regard.load("toy-gpt").trace(TEXT)
    edited = trace.edit({"decoder.2.attention.head.1": "zero"})
    id = int(trace["probabilities"][-1].argmax())
    before, after = (100 * float(run["probabilities"][-1][id]) for run in (trace, edited))
    expect(page.locator(".effect-line")).to_have_text(f"woman {before:.1f} → {after:.1f} %")
    expect(page.locator(".narration .bold")).to_contain_text("switched off")
    page.get_by_role("button", name="head 1 off").click()
    expect(page.locator(".effect-line")).to_have_count(0)


def test_what_a_head_does_is_the_ablation_lens_and_sorts_them(screen: Screen) -> None:
    page = scene(screen, model="toy-gpt", text=TEXT, depth=1, site="decoder.2.attention")
    expect(page.locator(".thing.effect")).to_have_count(4)
    trace = regard.load("toy-gpt").trace(TEXT)
    effects = lens.ablation(trace, -1, None, ("decoder.2.attention",))["decoder.2.attention"]
    p = float(trace["probabilities"][-1].max())
    order = sorted(range(4), key=lambda h: -abs(effects[h]))
    wanted = [f"off: {100 * p:.0f} → {100 * p * math.exp(effects[h]):.0f} %" for h in order]
    page.wait_for_function(
        "t => [...document.querySelectorAll('.thing.effect')].some(e => e.innerText === t)", arg=wanted[0]
    )
    rest(page)
    assert in_order(page, "effect") == wanted


def test_by_keyboard_alone_from_the_model_to_a_number(screen: Screen) -> None:
    page = scene(screen, model="toy-gpt", text=TEXT)
    for depth, key in enumerate(("Enter", "Enter", "Enter", "Enter"), 1):
        page.keyboard.press(key)
        page.wait_for_function("d => location.hash.includes(`depth=${d}`)", arg=depth)
    assert screen.explained()[0].endswith(".weights")
    for depth in (3, 2, 1, 0):
        page.keyboard.press("Escape")
        page.wait_for_function("d => (/depth=(\\d)/.exec(location.hash)?.[1] ?? '0') === String(d)", arg=depth)
    page.keyboard.press("ArrowUp")
    expect(page.locator(".thing.word.chosen")).to_have_text("the")


def test_the_next_word_flows_and_is_the_librarys(screen: Screen) -> None:
    page = scene(screen, model="toy-gpt", text=TEXT, temperature=0)
    page.get_by_role("button", name=re.compile("next word")).click()
    page.wait_for_timeout(200)
    page.get_by_role("button", name=re.compile("next word")).click()  # a second press skips the flow
    wanted = regard.load("toy-gpt").trace(TEXT, max_new_tokens=1, temperature=0)
    expect(page.locator(".thing.word").last).to_have_text(wanted.steps[0].piece.strip())
    assert int(screen.state["fresh"]) == 1


def test_three_voices_say_other_things_of_the_same_run(screen: Screen) -> None:
    page = scene(screen, model="toy-gpt", text=TEXT)
    said = set()
    for voice in ("story", "numbers", "mathematics"):
        page.get_by_role("button", name=voice).click()
        expect(page.get_by_role("button", name=voice)).to_have_attribute("aria-pressed", "true")
        said.add(page.locator(".narration .plain").inner_text())
    assert len(said) == 3
    page.get_by_role("button", name="residual stream").click()
    expect(page.get_by_role("dialog")).to_contain_text("Blocks read it and add to it")
