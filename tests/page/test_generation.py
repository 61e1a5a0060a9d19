"""The timeline: tokens as they are drawn, the same again from the same address, and each a way into its own draw."""

from playwright.sync_api import expect

import regard
from browser import Screen

TEXT = "One day the cat"


def test_tokens_come_one_by_one_and_are_those_of_the_library(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=TEXT, seed=7, temperature=0.9, top_k=30)
    page.evaluate(
        """() => { window.counts = []; const strip = document.querySelector('.written');
          new MutationObserver(() => window.counts.push(strip.children.length)).observe(strip, {childList: true}) }"""
    )
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => /fresh=/.test(location.hash)")
    assert len(set(page.evaluate("window.counts"))) > 3  # it grew before it was whole
    written = page.locator(".written .piece")
    wanted = regard.load("toy-gpt").trace(TEXT, max_new_tokens=24, seed=7, temperature=0.9, top_k=30)
    pieces = [step.piece.replace(" ", "·").replace("\n", "⏎") for step in wanted.steps]
    expect(written).to_have_text(pieces)
    page.reload()
    screen.drawn()
    expect(written).to_have_text(pieces)
    assert page.locator(".written .p").first.inner_text() == f"{wanted.steps[0].probability:.2f}"
    page.locator(".written a").nth(2).click()
    screen.drawn("output")
    assert int(screen.state["token"]) == wanted.steps[2].position - 1
    expect(page.locator("#panel-output")).to_contain_text(pieces[2])


def test_one_step_at_a_time_also_in_a_translation(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=TEXT, temperature=0)
    for count in (1, 2):
        page.get_by_role("button", name="Step").click()
        expect(page.locator(".written li")).to_have_count(count)
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".written li")).to_have_count(0)
    page = screen.visit(model="toy-translate", text="the European Economic Area", temperature=0)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => /fresh=/.test(location.hash)")
    screen.drawn()
    target = page.locator("#stage .tokens").last.inner_text().replace("\n", "").replace("·", " ")
    assert "la zone économique européenne" in target
