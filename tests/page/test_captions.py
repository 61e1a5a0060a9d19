"""Every sentence on the page is true of the run beside it: with edits, in differences, where there is no tag."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import regard
from browser import Screen, figures
from regard.api.trace import Trace
from regard.explain.caption import captions
from regard.store.hub import bundled

TEXT, SITE, HEAD = "One day the cat", "decoder.1.attention", 2
AT = {"model": "toy-gpt", "text": TEXT, "site": SITE, "head": HEAD}
EDITS: list[dict[str, Any]] = [
    {},
    {f"{SITE}.scaling": "off"},
    {f"{SITE}.mask": "off"},
    {f"{SITE}.head.2": "zero"},
]
MORE: list[dict[str, Any]] = [
    {f"{SITE}.scores[2, 3, 1]": "set 9", f"{SITE}.mask[4, 1]": "hide"},
    {f"{SITE}.mask[1, 4]": "show", f"{SITE}.weights[2, 3, 1]": "set 0.9"},
    {f"{SITE}.Z[2, 3, 0]": "set 9"},
]


@pytest.fixture(scope="module")
def plain() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


@pytest.fixture(scope="module")
def unscaled(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """toy-gpt, whose scores are divided by the layer's number and not by √d_k."""
    path = shutil.copytree(bundled()["toy-gpt"], tmp_path_factory.mktemp("unscaled") / "gpt")
    config = json.loads((path / "config.json").read_text())
    change = {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}
    (path / "config.json").write_text(json.dumps(config | change))
    return regard.load(path).trace(TEXT)


@pytest.fixture
def file(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    """Opens a run that was handed on, without a network."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    screen = Screen(context.new_page(), "")

    def opened(trace: Trace) -> Screen:
        screen.address = trace.html(tmp_path / "run.html").as_uri()
        return screen

    yield opened
    context.close()
    assert screen.wrong == []


def subtitles(page: Page) -> dict[str, str]:
    names = {"Q K": "dots", "÷ √": "scores", "sco": "scores", "mas": "masked", "sof": "weights"}
    found = {}
    for figure in page.locator(".four .matrix").all():
        title = figure.locator(".matrix-title").inner_text()
        found[names[title[:3]]] = figure.locator(".matrix-subtitle").inner_text()
    return found


def check(page: Page, trace: Trace, head: int = HEAD) -> None:
    """The page says what the library says."""
    found = captions(trace, next(each for each in trace.graph.sites if each.site == SITE), head)
    said = {name.removeprefix(f"{SITE}."): words for name, words in found.items()}
    shown = subtitles(page)
    assert shown["scores"] == f"scores: {said['scores']}"
    assert shown["weights"] == f"weights: {said['weights']}"
    hidden = "before and after it" if said["masked"] == "nothing is hidden" else said["masked"]
    assert hidden in page.locator(".stage-head + .lead").inner_text()
    assert ("nothing is hidden" in shown["masked"]) == (said["masked"] == "nothing is hidden")
    off, section = said["Z"].startswith("0"), page.locator(".work").last
    assert ("z = 0" in section.inner_text()) == off
    assert (section.locator(".vector").count() == 0) == (off or f"{SITE}.Z" in trace.edited)
    masked = f"{SITE}.masked" in trace.edited
    assert (" causal " in page.inner_text(".stage-title")) != masked


@pytest.mark.parametrize("edits", EDITS + MORE)
def test_the_steps_of_a_head(screen: Screen, plain, edits) -> None:
    page = screen.visit(**AT, token=3, key=1, edits=edits)
    check(page, plain.edit(edits))
    if f"{SITE}.weights[2, 3, 1]" in edits:
        expect(page.locator(".work").nth(1)).to_contain_text("an edit made it 0.900")
    if f"{SITE}.Z[2, 3, 0]" in edits:
        expect(page.locator(".work").last).to_contain_text("z is not the weighted sum")


def test_in_a_file_that_was_handed_on(file, plain) -> None:
    screen = file(plain)
    for edits in EDITS:
        check(screen.visit(site=SITE, head=HEAD, token=3, key=1, edits=edits), plain.edit(edits))
    screen = file(plain.edit(MORE[0]))
    check(screen.visit(site=SITE, head=HEAD, token=3, key=1), plain.edit(MORE[0]))


def test_a_model_that_divides_by_something_else(file, unscaled) -> None:
    screen = file(unscaled)
    page = screen.visit(site=SITE, head=HEAD)
    assert subtitles(page)["scores"] == "scores: divided by the layer's number, 2, and not by √32"
    check(page, unscaled)
    page.get_by_role("button", name="Edit…").click()
    expect(page.get_by_role("button", name="scaling of the scores off")).to_be_enabled()
    screen.visit(site="decoder.0.attention", head=HEAD)  # divided by 1
    assert "not divided" in subtitles(page)["scores"]
    page.get_by_role("button", name="Edit…").click()
    expect(page.get_by_role("button", name="scaling")).to_have_count(0)


def test_hidden_entries_of_an_encoder_and_of_cross_attention(screen: Screen) -> None:
    page = screen.visit(
        model="toy-bert", text="The movie was [MASK].", edits={"encoder.0.attention.mask[3, 1]": "hide"}
    )
    expect(page.locator(".stage-head + .lead")).to_contain_text("1 of 49 pairs of query and key is hidden")
    expect(page.locator(".matrix.absent")).to_contain_text("an edit hides")
    text = "the European Economic Area"
    page = screen.visit(
        model="toy-translate", text=text, site="decoder.1.cross", edits={"decoder.1.cross.mask[2, 1]": "hide"}
    )
    expect(page.locator(".stage-head + .lead")).to_contain_text("is hidden")


def test_one_query_number_by_number(screen: Screen) -> None:
    page = screen.visit(**AT, stage="heads", view="neurons", token=1, key=3)
    expect(page.locator(".steps")).to_contain_text("hidden by the mask: −∞")
    page = screen.visit(**AT, stage="heads", view="neurons", token=1, key=0, edits={f"{SITE}.scaling": "off"})
    expect(page.locator(".neurons thead")).to_contain_text("not scaled")


def test_the_other_stages_with_edits(screen: Screen) -> None:
    edits = {"decoder.1.residual_2": "off", "decoder.1.mlp.out": "scale 2", "positions": "off"}
    page = screen.visit(**AT, stage="residual", token=3, edits=edits)
    expect(page.locator(".panel .lead").first).to_contain_text("An edit changes decoder.1.out")
    screen.press("4")
    screen.drawn("mlp")
    expect(page.locator(".panel")).to_contain_text("it is not the sum of what they add")
    screen.press("1")
    screen.drawn("tokens")
    expect(page.locator(".matrix", has_text="Positions").locator(".matrix-subtitle")).to_contain_text(
        "an edit changes it"
    )
    screen.press("6")
    screen.drawn("output")
    page.wait_for_selector(".bars.parts")
    expect(page.locator(".bars.parts")).to_contain_text("block 1 · out (edited)")
    page = screen.visit(**AT, stage="heads", view="lines.contribution", edits={f"{SITE}.head.2": "zero"})
    expect(page.locator(".panel")).to_contain_text("nothing of what is looked at arrives")


def test_weights_that_are_no_shares_have_no_entropy(screen: Screen, file, plain) -> None:
    edits = {f"{SITE}.weights[2, 3, 1]": "set -0.5"}
    for mode in ("b", "delta"):
        page = screen.visit(**AT, stage="heads", view="grid.entropy", edits=edits, mode=mode)
        assert page.locator(".head-cell .number", has_text="").all_inner_texts().count("") == 1
    page = file(plain.edit(edits)).visit(stage="heads", view="grid.entropy")
    assert page.locator(".head-cell .number").all_inner_texts().count("") == 1


# ── why ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_norm_is_no_product(screen: Screen) -> None:
    page = screen.visit(**AT, node="decoder.1.norm_1.normalised", index=[3, 5])
    screen.explained()
    expect(page.locator(".term-label")).to_have_text("(0.out3, 5 − μ3, 0) / √(σ²[3, 0] + ε)")
    expect(page.locator(".terms .term-factors a")).to_have_count(3)
    assert "×" not in page.inner_text(".terms")


def test_an_edited_number_does_not_follow_from_its_formula(screen: Screen) -> None:
    page = screen.visit(**AT, node=f"{SITE}.scores", index=[2, 3, 1], edits={f"{SITE}.scaling": "off"})
    screen.explained()
    expect(page.locator(".why-symbols")).to_contain_text("without the edit")
    expect(page.locator("#drawer .check")).to_contain_text("set by an edit")
    expect(page.get_by_role("button", name="question")).to_have_count(0)


# ── tags ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_tags(screen: Screen, state: dict[str, Any]) -> None:
    page = screen.visit(stage="output", token=0, **state)
    assert page.locator(".tagged").count() == 14
    assert page.locator(".tagged .tag").count() == 7
    expect(page.locator(".panel .sentence")).to_contain_text("“[CLS]” is not part of a word")
    assert page.locator(".bars, .spoke, .matrix").count() == 0
    page = screen.visit(stage="output", token=4, **state)
    expect(page.locator(".panel .sentence")).to_contain_text("its first piece, “k”, decides")
    page = screen.visit(stage="output", **state)
    expect(page.locator('.tagged[aria-current="true"] .piece')).to_have_text("The")
    assert page.get_by_role("application", name="probabilities of tags, 7 by").count() == 1
    page = screen.visit(stage="residual", token=0, **state)
    expect(page.locator(".stream-lens .piece")).to_have_count(0)


def test_what_is_no_word_has_no_tag(screen: Screen, file) -> None:
    text = "The old king sees a garden."
    check_tags(screen, {"model": "toy-bert-tags", "text": text})
    check_tags(file(regard.load("toy-bert-tags").trace(text)), {})


# ── differences ─────────────────────────────────────────────────────────────────────────────────────────────────────

STAGES = ["tokens", "attention", "heads", "mlp", "residual", "output"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_token_without_a_counterpart(screen: Screen, stage) -> None:
    """No stage says "not a number" where there is no difference."""
    page = screen.visit(**AT, stage=stage, mode="delta", against="One fine day a dog", token=2)
    assert "not a number" not in page.inner_text("#stage")
    if stage != "heads":
        assert "no counterpart in A" in page.inner_text("#stage")
        return
    page.locator(".lines-side.query button").nth(2).click()
    assert set(page.locator(".lines-side.key .lines-number").all_inner_texts()) == {"no counterpart in A"}


@pytest.mark.parametrize(
    ("edits", "cell", "words"),
    [
        ({f"{SITE}.mask": "off"}, [1, 3], "hidden in A"),
        ({f"{SITE}.mask[4, 1]": "hide"}, [4, 1], "hidden in B"),
        ({f"{SITE}.mask[4, 1]": "hide"}, [1, 3], "hidden in A and in B"),
    ],
)
def test_what_is_hidden_has_no_difference(screen: Screen, edits, cell, words) -> None:
    state = {"mode": "delta", "edits": edits, "token": cell[0], "key": cell[1]}
    page = screen.visit(**AT, **state, node=f"{SITE}.masked", index=[HEAD, *cell])
    masked = page.locator(".four .matrix", has_text="Δ mask")
    expect(masked.locator(".matrix-readout b")).to_have_text(words)
    expect(page.locator(".why-value")).to_have_text(words)


def test_another_model_is_compared_by_spelling(screen: Screen) -> None:
    """The ids of one vocabulary are not those of another: the same model with other ids says the same."""
    state = {"stage": "output", "temperature": 1, "mode": "delta", "rival": "renumbered"}
    page = screen.visit(model="toy-gpt", text="The old king", **state)
    changes = figures(page.locator(".pieces.changed tbody td:last-child .number"))
    assert changes == pytest.approx([0.0] * len(changes), abs=1e-5)


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def wish(page: Page, place: str, what: str) -> None:
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Place").fill(place)
    page.get_by_label("Change", exact=True).fill(what)
    page.keyboard.press("Enter")


def test_a_refused_edit_leaves_the_stage_as_it_was(screen: Screen) -> None:
    kept = {f"{SITE}.head.2": "zero"}
    page = screen.visit(**AT, token=3, edits=kept)
    before = page.inner_text("#panel-attention")
    wish(page, "decoder.9.mlp.out", "zero")
    expect(page.locator("#stage .sentence.error")).to_contain_text("decoder.9.mlp.out")
    assert page.inner_text("#panel-attention") == before
    expect(page.locator(".chip")).to_have_count(1)
    page.wait_for_function("s => !location.hash.includes(s)", arg="decoder.9")
    assert screen.state["edits"] == kept
    wish(page, f"{SITE}.head.1", "zero")  # the sentence goes when something else is drawn
    expect(page.locator(".chip")).to_have_count(2)
    expect(page.locator("#stage .sentence.error")).to_have_count(0)
    screen.visit(**AT, edits={"decoder.9.mlp.out": "zero"})  # an address that asks for it at once
    expect(page.locator("#stage .sentence.error")).to_contain_text("decoder.9.mlp.out")
    expect(page.locator("#panel-attention .matrix").first).to_be_visible()
    expect(page.locator(".chip")).to_have_count(0)
    assert all("404" in each for each in screen.wrong)
    screen.wrong.clear()  # the browser writes every refusal to its console


def test_an_edit_that_does_not_fit_another_text_is_taken_back(screen: Screen) -> None:
    page = screen.visit(**AT, edits={"token.4": "zero"})
    expect(page.locator(".chip")).to_have_count(1)
    page.fill("#text", "One")
    page.press("#text", "Enter")
    expect(page.locator("#stage .sentence.error")).to_contain_text("token")
    expect(page.locator("#panel-attention .matrix").first).to_be_visible()
    assert screen.tokens() == ["One"]
    expect(page.locator(".chip")).to_have_count(0)
    screen.wrong.clear()


def test_a_file_refuses_an_edit_in_the_same_way(file, plain) -> None:
    screen = file(plain)
    page = screen.visit(site=SITE, head=HEAD, edits={"decoder.1.mlp.out": {"scale": 2}})
    expect(page.locator("#stage .sentence.error")).to_contain_text("cannot honour")
    expect(page.locator("#panel-attention .matrix").first).to_be_visible()
    expect(page.locator(".chip")).to_have_count(0)
