"""Tours on the scene in a real browser: what they say is what Python computes, and what is guessed is hidden until then."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect

import regard
from browser import Screen, figure, serving
from regard.explain import lens
from regard.explain.trace import Trace
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry
from regard.teach.lesson import LESSONS
from regard.teach.tour_file import check_tour, read_tour

TEXT = "The old king and the old"
HEAD_OFF = {"decoder.2.attention.head.1": "zero"}
MARKUP = "<img src=x onerror=hacked=1>"
OWN = f"""
title: "A title {MARKUP}"
model: toy-gpt
text: {TEXT}
steps:
  - bold: "Which? {MARKUP} [[token]]"
    choices: ["{MARKUP}", woman, "{{n}}"]
    right: "{{answer}}"
    answer: "“{{answer}}”, {{percent}} %; you said “{{mine}}”."
  - bold: Head {{head}} of block {{block}} looks at “{{looks}}”, {{share}} %.
    view: {{depth: 2, site: decoder.2.attention, head: 1, key: 3}}
    question: And without it?
    reveal:
      edits: {{decoder.2.attention.head.1: zero}}
    answer: "{{before}} → {{after}} %"
"""


@pytest.fixture(scope="module")
def run() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


def begin(screen: Screen, hash: str = "") -> Page:
    """The page, freshly opened, in a tour."""
    screen.page.goto("about:blank")
    screen.page.goto(f"{screen.address}{hash}")
    told(screen.page)
    return screen.page


def told(page: Page) -> tuple[str, str]:
    """What is said, once every number has arrived."""
    page.wait_for_selector(".narration .dots")
    page.wait_for_function("() => !/[{…]/.test(document.querySelector('.narration').textContent)")
    return page.inner_text(".narration .bold"), page.inner_text(".narration .plain")


def at(page: Page) -> tuple[int, int]:
    """Which step of how many."""
    step, of = page.inner_text(".tour-at").split(" of ")
    return int(step), int(of)


def to_step(page: Page, step: int) -> tuple[str, str]:
    """On with the right arrow; answers on the way are shown."""
    while at(page)[0] < step:
        was = page.inner_text(".narration")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("was => document.querySelector('.narration').innerText !== was", arg=was)
        told(page)
    return told(page)


def best(P: np.ndarray, rank: int = 0) -> tuple[str, float]:
    """A piece by the rank of its probability, as the page writes it."""
    id = int(np.argsort(-P)[rank])
    return regard.load("toy-gpt").tokenizer.pieces([id])[0].strip(), float(P[id])


# ── the first visit ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_visit_end_to_end(screen: Screen, run: Trace) -> None:
    """Nobody has said what to see: guess, watch, and go on to a weight and a switch. Every number said is Python's."""
    page = begin(screen)
    assert screen.state["tour"] == "story"
    assert told(page)[0] == f"The model has read {len(run.tokens)} pieces of a story. Which word does it write next?"
    P = run["probabilities"][-1]
    (first, p), (second, q) = best(P), best(P, 1)
    page.get_by_role("button", name=first, exact=True).click()
    expect(page.locator(".thing.answer.first")).to_have_text(first)
    assert told(page)[1].startswith(f"It says “{first}” with {100 * p:.1f} %, then “{second}” with {100 * q:.1f} %.")
    assert page.locator(".chip-guess.right").inner_text() == f"{first} ✓"

    assert f"{len(run.tokens)} tokens: “T” and “he” begin it, and “old” is the last" in to_step(page, 2)[1]
    assert to_step(page, 3)[0] == f"Every piece becomes a list of {run['embed.out'].shape[1]} numbers."

    said = to_step(page, 4)[1]
    found = re.findall(r"“(\w+)” \((\d+) %\)", said)
    rows = {row.node: row.top[0] for row in lens.logit_lens(run, len(run.tokens) - 1)}
    expected = [rows[f"decoder.{i}.out"] for i in range(4)]
    assert found == [(guess.piece.strip(), f"{100 * guess.probability:.0f}") for guess in expected]

    assert "Inside block 2, 4 heads" in to_step(page, 5)[0]
    effects = page.locator(".thing.effect")
    expect(effects).to_have_count(4)
    for head in range(4):
        gone = run.edit({f"decoder.2.attention.head.{head}": "zero"})["probabilities"][-1]
        after = f"{100 * float(gone[int(P.argmax())]):.0f}"
        name = page.locator(".thing.head-name", has_text=f"head {head}")
        assert name.count() == 1
        expect(page.locator(".thing.effect", has_text=f"→ {after} %").first).to_be_visible()

    assert "whom does the second “old” look at most?" in to_step(page, 6)[0]
    page.keyboard.press("ArrowRight")
    row = run["decoder.2.attention.weights"][1, 6]
    looks = run.tokens[int(row.argmax())].strip()
    expect(page.locator(".narration .plain")).to_contain_text(f"At “{looks}”, with {100 * float(row.max()):.0f} %.")
    assert looks == "king"

    d_k = run["decoder.2.attention.Q"].shape[-1]
    weight = 100 * float(row[3])
    assert to_step(page, 7)[0] == f"Where do the {weight:.0f} % come from? From {d_k} products, added up."

    number = f"{float(run['decoder.2.attention.Q'][1, 6, 0]):.3f}".replace("-", "−")
    assert f"It is {number}:" in to_step(page, 8)[0]
    assert screen.explained() == ("decoder.2.attention.Q", (1, 6, 0))
    expect(page.locator("#drawer")).to_contain_text("W")  # down to a weight

    assert "switched off" in to_step(page, 9)[0]
    assert screen.state.get("edits") is None
    page.get_by_role("button", name="it becomes less likely").click()
    without = float(run.edit(HEAD_OFF)["probabilities"][-1][int(P.argmax())])
    expect(page.locator(".narration .plain")).to_contain_text(
        f"“{first}” has {100 * p:.1f} % with the head and {100 * without:.1f} % without it."
    )
    assert screen.state["edits"] == HEAD_OFF
    assert page.locator(".chip-guess.right").inner_text() == "it becomes less likely ✓"
    assert at(page) == (9, 9)


def test_a_link_opens_what_it_says(screen: Screen) -> None:
    page = begin(screen, "#tour=story&page=5")
    assert at(page) == (6, 9)
    assert screen.state["site"] == "decoder.2.attention"
    once, link = told(page), page.url
    page.reload()
    assert told(page) == once
    assert page.url == link
    page.goto("about:blank")
    page.goto(f"{screen.address}#model=toy-gpt&text=One+day")
    expect(page.locator(".narration .bold")).to_contain_text("Which word does it write next?")
    assert page.locator(".dots").count() == 0


# ── every tour ──────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(text: str) -> float:
    return -math.inf if text == "−∞" else figure(text)


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_is_walked_through(screen: Screen, name: str) -> None:
    """With the right arrow alone. The numbers of every figure are the lesson's."""
    page = begin(screen, f"#tour={name}")
    steps = LESSONS[name].steps()
    assert at(page) == (1, len(steps))
    for i, step in enumerate(steps, 1):
        bold, _ = to_step(page, i)
        assert bold
        assert step.say.startswith(bold)
        if step.choices:
            expect(page.locator(".lesson-hidden")).to_be_visible()
            assert page.locator(".bracketed").count() == 0
            page.keyboard.press("ArrowRight")
            page.wait_for_selector(".chip-guess.right")
            assert page.locator(".chip-guess.right").inner_text() == f"{step.right} ✓"
            assert at(page)[0] == i
        numbers = [shown(text) for text in page.locator(".scene-figure .bracketed td").all_text_contents() if text]
        assert numbers == pytest.approx(step.value.flatten().tolist(), rel=0.06, abs=6e-5)
        if step.by_hand:
            expect(page.locator(".by-hand-note")).to_be_visible()
    page.keyboard.press("ArrowRight")
    assert at(page) == (len(steps), len(steps))
    assert screen.errors() == []


def test_a_lesson_leads_into_a_model_and_back(screen: Screen) -> None:
    page = begin(screen, "#tour=the-cat-sat&page=2")
    page.click(".tour-real")
    expect(page.locator(".path")).to_contain_text("head 0")
    assert screen.state["matrix"] == "decoder.0.attention.scores"
    expect(page.locator(".scene-figure")).to_be_hidden()
    page.click(".tour-return")
    expect(page.locator(".scene-figure .bracketed")).to_be_visible()
    assert at(page) == (3, 6)
    page.fill("#text", "The old king")
    page.keyboard.press("Enter")  # whoever runs something sees it
    expect(page.locator(".scene-figure")).to_be_hidden()
    expect(page.locator(".tour-return")).to_be_visible()


def test_links_of_the_first_pages_still_lead_to_their_lesson(screen: Screen) -> None:
    page = begin(screen, "#model=toy-gpt&text=One&stage=lessons&lesson=three-inputs&page=4")
    assert at(page) == (5, 8)
    assert told(page)[0] == "Every question against every key: the attention scores."


# ── predict, then reveal ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_guessed_is_hidden(screen: Screen) -> None:
    page = begin(screen)
    things = page.locator(".things")
    expect(page.locator(".thing.answer")).to_have_text(["?"] * 6)
    leaks = "e => [...e.querySelectorAll('*')].map(x => x.textContent + (x.title ?? '')).join()"
    assert "woman" not in things.evaluate(leaks)
    assert "%" not in things.evaluate(leaks)
    page.get_by_role("button", name="next word").click()  # ▶ shows the answer; it does not write a word
    expect(page.locator(".thing.answer.first")).to_have_text("woman")
    expect(page.locator(".thing.guess")).to_have_count(4)
    assert "fresh" not in screen.state
    assert page.input_value("#text") == TEXT
    to_step(page, 2)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tour-at")).to_have_text("1 of 9")
    expect(page.locator(".thing.answer.first")).to_have_text("woman")  # who has seen it has seen it
    page.reload()
    told(page)
    expect(page.locator(".thing.answer")).to_have_text(["?"] * 6)


def test_a_wrong_guess_is_kept_beside_the_right_one(screen: Screen) -> None:
    page = begin(screen, "#tour=story&page=5")
    assert page.locator(".thing.sum").count() == 0
    page.get_by_role("button", name="“T”, the beginning").click()
    expect(page.locator(".chip-guess.right")).to_have_text("“king” ✓")
    expect(page.locator(".chip-guess.chosen")).to_have_text("“T”, the beginning")
    expect(page.locator(".thing.sum")).to_be_visible()
    assert page.locator(".chip-guess:disabled").count() == 4


def test_something_else_and_back_to_the_tour(screen: Screen) -> None:
    page = begin(screen, "#tour=story&page=4")
    page.click(".thing.head-name >> text=head 3")
    expect(page.locator(".narration .bold")).to_contain_text("Head 3")
    assert (screen.state["depth"], screen.state["tour"]) == ("2", "story")
    expect(page.locator(".dots")).to_have_count(0)
    page.click(".tour-return")
    assert at(page) == (5, 9)
    assert screen.state["depth"] == "1"
    page.click(".thing.head-name >> text=head 3")
    expect(page.locator(".tour-return")).to_be_visible()
    page.get_by_role("link", name="Leave the tour").click()
    expect(page.locator(".tour-return")).to_have_count(0)
    assert "tour" not in screen.state
    assert screen.state["depth"] == "2"  # what is seen stays


def test_the_way_back_from_a_table(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=TEXT, tour="story", page=3)
    page.click(".lesson-bar a >> nth=0")
    assert at(page) == (4, 9)


# ── a teacher's file ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("tours") / "lecture.yaml"
    path.write_text(OWN)
    registry = ModelRegistry()
    tour = check_tour(read_tour(path), registry.entries, lambda name, text, to: registry.model(name).trace(text, to))
    with serving(make_app(registry, tours=[tour])) as address:
        yield address


def test_a_teachers_tour(context: BrowserContext, own: str, run: Trace) -> None:
    screen = Screen(context.new_page(), own)
    page = begin(screen)
    page.get_by_role("button", name="Tour", exact=True).click()
    menu = page.get_by_role("dialog", name="Tours and lessons")
    expect(menu.locator(".lesson-link")).to_have_count(len(LESSONS) + 2)
    menu.locator(".lesson-link", has_text=f"A title {MARKUP}").click()
    expect(page.locator(".tour-title")).to_have_text(f"A title {MARKUP}")
    assert told(page)[0] == f"Which? {MARKUP} token"
    expect(page.locator(".chip-guess")).to_have_text([MARKUP, "woman", str(len(run.tokens))])
    expect(page.locator(".thing.answer")).to_have_text(["?"] * 6)
    page.locator(".chip-guess >> nth=0").click()
    p = 100 * float(run["probabilities"][-1].max())
    expect(page.locator(".narration .plain")).to_have_text(f"“woman”, {p:.1f} %; you said “{MARKUP}”.")
    bold, _ = to_step(page, 2)
    share = 100 * float(run["decoder.2.attention.weights"][1, 6, 3])
    assert bold == f"Head 1 of block 2 looks at “king”, {share:.0f} %."
    page.get_by_role("button", name="show the answer").click()
    after = 100 * float(run.edit(HEAD_OFF)["probabilities"][-1][int(run["probabilities"][-1].argmax())])
    expect(page.locator(".narration .plain")).to_have_text(f"{p:.1f} → {after:.1f} %")
    assert page.evaluate("() => typeof hacked") == "undefined"
    assert page.locator("img").count() == 0
    page.close()
    assert screen.wrong == []


# ── for an audience, and without a mouse ────────────────────────────────────────────────────────────────────────────


def test_a_clicker(screen: Screen) -> None:
    page = begin(screen)
    before = page.locator(".narration .bold").bounding_box()
    screen.press("p")
    body, header = page.locator("body"), page.locator("#header")
    expect(body).to_have_attribute("data-present", "yes")
    expect(header).to_be_hidden()
    after = page.locator(".narration .bold").bounding_box()
    assert before
    assert after
    assert after["height"] > 1.15 * before["height"]  # larger type
    assert screen.state["present"] == "1"
    screen.press("PageDown")  # the answer first
    expect(page.locator(".thing.answer.first")).to_have_text("woman")
    assert at(page) == (1, 9)
    for key, step in (("PageDown", 2), (" ", 3), ("ArrowRight", 4), ("PageUp", 3), ("ArrowLeft", 2)):
        screen.press(key)
        expect(page.locator(".tour-at")).to_have_text(f"{step} of 9")
    for key in (".", "b"):
        screen.press(key)
        expect(page.locator(".blank")).to_be_visible()
        screen.press("PageDown")  # brings the picture back, and nothing else
        expect(page.locator(".blank")).to_be_hidden()
        assert at(page) == (2, 9)
    screen.press("Escape")
    expect(body).to_have_attribute("data-present", "no")
    expect(header).to_be_visible()
    assert "present" not in screen.state
    screen.press("PageDown")
    screen.press(".")
    expect(page.locator(".blank")).to_be_hidden()
    assert at(page) == (2, 9)


def test_cells_are_chosen_where_they_are_seen_in_larger_type(screen: Screen) -> None:
    page = begin(screen, "#tour=story&page=6&present=1")
    chosen = page.locator(".thing.column.chosen").bounding_box()
    row = page.locator(".thing.word.chosen").bounding_box()
    assert chosen
    assert row
    page.mouse.click(chosen["x"] + chosen["width"] / 2, row["y"] + row["height"] / 2)  # the cell that is chosen already
    expect(page.locator(".dots")).to_be_visible()
    assert at(page) == (7, 9)


def test_a_tour_on_the_keyboard(screen: Screen) -> None:
    page = begin(screen)
    for _ in range(60):
        screen.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "woman":
            break
    screen.press("Enter")
    expect(page.locator(".chip-guess.chosen")).to_contain_text("woman")
    for _ in range(60):
        screen.press("Tab")
        if page.evaluate("document.activeElement.ariaLabel") == "Step 3 of 9":
            break
    screen.press("Enter")
    expect(page.locator(".tour-at")).to_have_text("3 of 9")
    assert page.evaluate("document.activeElement.ariaLabel") == "Step 3 of 9"  # the keyboard is where it was
    expect(page.locator("#said")).to_contain_text("Every piece becomes a list of")
    screen.press("/")
    page.keyboard.type("x")
    screen.press("ArrowLeft", "ArrowRight")  # of a text: the tour stays
    assert at(page) == (3, 9)


def test_the_question_mark_names_the_keys(screen: Screen) -> None:
    page = begin(screen)
    screen.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("present: for an audience")


def test_on_paper(screen: Screen) -> None:
    page = begin(screen, "#tour=story&page=4")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    seen: dict[str, Any] = {
        name: page.locator(name).is_visible() for name in ("#header", ".path", ".scene-box", ".narration .bold")
    }
    assert seen == {"#header": False, ".path": False, ".scene-box": True, ".narration .bold": True}
    paper = page.locator(".on-paper")
    expect(paper).to_contain_text(f"toy-gpt · “{TEXT}” · ")
    assert re.search(r"\b20\d\d$", paper.inner_text())
    width = page.evaluate("document.querySelector('#scene .scene').getBoundingClientRect().width")
    assert width <= 961  # of a landscape page
    page.emulate_media(media="screen")
