"""What if? Edits made on the page, checked against the same edits made in Python; and two texts beside each other."""

import re

import pytest
from playwright.sync_api import Page, expect

import regard
from browser import Screen
from regard.explain.trace import Trace

TEXT = "One day the cat"
NODE, INDEX = "decoder.3.out", [4, 7]
OFFERS = {  # the word on the button → the edit it stands for
    "head 2 off": {"decoder.1.attention.head.2": "zero"},
    "scaling by √d_k off": {"decoder.1.attention.scaling": "off"},
    "mask off": {"decoder.1.attention.mask": "off"},
    "norm before attention off": {"decoder.1.norm_1": "off"},
    "residual around the MLP off": {"decoder.1.residual_2": "off"},
    "positions off": {"positions": "off"},
}


@pytest.fixture(scope="module")
def plain() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


def remove(page: Page) -> None:
    page.get_by_role("button", name=re.compile("^Remove the edit")).first.click()
    expect(page.locator(".chip")).to_have_count(0)


def difference(page: Page) -> None:
    page.keyboard.press("d")
    expect(page.locator('.choice [aria-pressed="true"]', has_text="Δ")).to_be_visible()
    expect(page.locator(".matrix-title", has_text="Δ").first).to_be_visible()


def test_switches_of_the_menu(screen: Screen, plain) -> None:
    """Each gives the number that Python gives, A shows the run before, and removing the chip brings it back."""
    page = screen.visit(model="toy-gpt", text=TEXT, site="decoder.1.attention", head=2, node=NODE, index=INDEX)
    before = float(plain[NODE][tuple(INDEX)])
    for offer, edits in OFFERS.items():
        screen.wait_captured(before)
        page.get_by_role("button", name="Edit…").click()
        page.get_by_role("button", name=offer, exact=True).click()
        after = float(plain.edit(edits)[NODE][tuple(INDEX)])
        assert abs(after - before) > 1e-4, offer
        screen.wait_captured(after)
        assert screen.state["edits"] == edits
        page.keyboard.press("a")
        screen.wait_captured(before)
        page.keyboard.press("b")
        screen.wait_captured(after)
        remove(page)


def test_a_mode_that_there_is_not_is_the_usual_one(screen: Screen) -> None:
    """An address may say anything: of the runs before, after and their difference, one is shown and its switch says so."""
    page = screen.visit(model="toy-gpt", text=TEXT, edits=OFFERS["mask off"], mode="sideways")
    expect(page.get_by_role("button", name="B", exact=True)).to_have_attribute("aria-pressed", "true")


def test_a_cell_is_set_from_its_derivation(screen: Screen, plain) -> None:
    cell = "decoder.0.attention.weights[0, 2, 1]"
    page = screen.visit(model="toy-gpt", text=TEXT, node="decoder.0.attention.weights", index=[0, 2, 1])
    page.fill(".set input", "0.9")
    page.keyboard.press("Enter")
    screen.wait_captured(0.9)
    expect(page.locator(".chip")).to_contain_text("set 0.9")
    expect(page.locator(".why-note")).to_contain_text("without the edit it would be")
    after = plain.edit({cell: {"set": 0.9}})
    screen.visit(model="toy-gpt", text=TEXT, edits={cell: {"set": 0.9}}, node=NODE, index=INDEX)
    screen.wait_captured(float(after[NODE][tuple(INDEX)]))


def test_the_difference_of_two_runs_cell_by_cell(screen: Screen, plain) -> None:
    edits = {"decoder.*.attention.head.0": "zero"}
    page = screen.visit(model="toy-gpt", text=TEXT, site="decoder.2.attention", head=1, edits=edits, mode="b")
    difference(page)
    view = page.get_by_role("application", name="weights, head 1")
    view.focus()
    page.keyboard.press("End")
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowLeft")
    node = "decoder.2.attention.weights"
    change = float(plain.edit(edits)[node][1, 4, 3] - plain[node][1, 4, 3])
    assert abs(change) > 1e-3
    expect(page.locator("#said")).to_have_text(f"weights, head 1, query at, key ·c: {change:.3f}".replace("-", "−"))


def test_an_edit_anywhere_by_name_and_one_that_makes_no_sense(screen: Screen, plain) -> None:
    page = screen.visit(model="toy-gpt", text=TEXT, node=NODE, index=INDEX)
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Place").fill("decoder.0.mlp.neuron.17")
    page.get_by_label("Change", exact=True).fill("scale 3")
    page.keyboard.press("Enter")
    screen.wait_captured(float(plain.edit({"decoder.0.mlp.neuron.17": {"scale": 3}})[NODE][tuple(INDEX)]))
    remove(page)
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Place").fill("decoder.9.attention.head.0")
    page.get_by_label("Change", exact=True).fill("zero")
    page.keyboard.press("Enter")
    expect(page.locator("#stage .sentence.error")).to_contain_text("decoder.9.attention.head.0")
    expect(page.locator(".chip")).to_have_count(0)
    expect(page.locator("#panel-attention .matrix").first).to_be_visible()
    screen.wait_captured(float(plain[NODE][tuple(INDEX)]))
    assert all("404" in each for each in screen.wrong)
    screen.wrong.clear()  # the browser writes every refusal to its console


def test_two_texts_beside_each_other(screen: Screen) -> None:
    """Aligned by token: the difference is taken between words that stand for each other."""
    model = regard.load("toy-translate")
    a, b = model.trace("The woman eats a red apple."), model.trace("The woman sees a red apple.")
    node = "encoder.1.attention.weights"
    page = screen.visit(model="toy-translate", text="The woman eats a red apple.", site="encoder.1.attention")
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Compare with this text").fill("The woman sees a red apple.")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".chip")).to_contain_text("The woman sees a red apple.")
    expect(page.locator("#stage .tokens").first).to_contain_text("sees")
    difference(page)
    page.get_by_role("application", name="weights, head 0").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    compared = a.compare(b)
    assert compared.pairs[:3] == [(0, 0), (1, 1), (2, 2)]
    said = f"{float(compared[node][0, 1, 1]):.3f}".replace("-", "−")
    expect(page.locator("#said")).to_contain_text(said)
    page.get_by_role("button", name=re.compile("^Stop comparing")).click()
    expect(page.locator("#stage .tokens").first).to_contain_text("eats")
