"""Every stage opens for every kind of model, on what a person typed."""

import pytest
from playwright.sync_api import expect

import regard
from browser import STAGES, Screen

TEXTS = {
    "toy-gpt": "One day the cat",
    "toy-bert": "The movie was [MASK].",
    "toy-bert-sentiment": "The actors were wonderful.",
    "toy-bert-tags": "The old actors were good.",
    "toy-translate": "the European Economic Area",
}


def pieces(model: str, text: str) -> list[str]:
    """The tokens as the page writes them: a space is a dot."""
    trace = regard.load(model).trace(text)
    return [piece.replace(" ", "·") or "∅" for piece in [*trace.tokens, *(trace.target_tokens or [])]]


def test_a_typed_text_becomes_its_tokens(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text="One day the cat")
    for text in ("The old king and the old woman", "Three children want a boat."):
        page.keyboard.press("/")
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        expect(page.locator("#stage .tokens .token")).to_have_text(pieces("toy-gpt", text))
        assert screen.state["text"] == text
        page.keyboard.press("Escape")


def test_without_an_address_there_is_already_something_to_see(screen: Screen) -> None:
    page = screen.scene()
    expect(page.locator(".thing.guess")).to_have_count(0)  # the first tour asks before it shows what the model guesses
    page.get_by_role("button", name="show the answer").click()
    expect(page.locator(".thing.guess").nth(3)).to_be_visible()
    assert screen.state["model"]
    assert page.locator(".thing.word").count() > 3


def test_a_model_and_an_example_are_chosen_from_lists(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text="One day the cat", node="decoder.0.attention.weights", index=[0, 1, 1])
    page.locator("select[data-keep=model]").select_option("toy-translate")
    expect(page.locator("#map .column")).to_have_count(2)
    page.get_by_label("Examples").select_option("The woman eats a red apple.")
    expect(page.locator("#stage .tokens .token")).to_have_text(pieces("toy-translate", "The woman eats a red apple."))
    assert "node" not in screen.state  # what was explained belonged to another run


@pytest.mark.parametrize("model", TEXTS)
def test_every_stage_opens(screen: Screen, model: str) -> None:
    page = screen.visit(model=model, text=TEXTS[model], stage="lessons")
    for number, stage in enumerate(STAGES, 1):
        page.keyboard.press(str(number))
        screen.drawn(stage)
        assert screen.errors() == [], stage
        expect(page.locator(f"#panel-{stage}")).not_to_be_empty()
        expect(page.locator('.tab[aria-current="page"]')).to_have_text(stage, ignore_case=True)
    assert screen.tokens() == pieces(model, TEXTS[model])


@pytest.mark.parametrize("model", ["toy-gpt", "toy-translate"])
def test_three_ways_of_looking_at_heads(screen: Screen, model: str) -> None:
    page = screen.visit(model=model, text=TEXTS[model], stage="heads")
    sites = regard.load(model).trace(TEXTS[model]).graph.sites
    assert page.locator(".lines-token").count() > 4
    page.get_by_role("button", name="All heads").click()
    expect(page.locator(".head-cell")).to_have_count(sum(site.heads for site in sites))
    page.get_by_role("button", name="ranked").click()
    expect(page.locator(".heads-ranked li")).to_have_count(sum(site.heads for site in sites))
    page.get_by_role("button", name="One query").click()
    expect(page.locator("table.neurons")).to_be_visible()
    assert screen.errors() == []


def test_what_is_wrong_is_said(screen: Screen) -> None:
    screen.page.goto(f"{screen.address}#model=nothing")
    expect(screen.page.locator(".narration .error")).to_have_text(
        "There is no model called “nothing” here; choose one from the list above."
    )
    screen.visit(model="toy-gpt", text="One day")
    screen.page.fill("#text", "the cat " * 100)
    screen.press("Enter")
    expect(screen.page.locator(".sentence.error")).to_contain_text("at most 128 can be traced")
    screen.wrong.clear()  # the browser writes every refusal to its console


def test_source_and_target_each_have_a_word_in_the_light(screen: Screen) -> None:
    page = screen.visit(model="toy-translate", text=TEXTS["toy-translate"], stage="tokens")
    strips = page.locator("#stage .tokens")
    expect(strips.locator(".token[data-lit]")).to_have_count(2)
    strips.nth(0).locator(".token").nth(4).click()
    expect(strips.nth(0).locator(".token").nth(4)).to_have_attribute("data-lit", "key")
    strips.nth(1).locator(".token").nth(2).click()
    expect(strips.nth(1).locator(".token").nth(2)).to_have_attribute("data-lit", "query")
    expect(strips.nth(0).locator(".token[data-lit]")).to_have_text("onom")
    expect(page.locator(".card[aria-current]")).to_have_count(2)
    page.focus(".matrix-view >> nth=0")  # the source's embeddings
    screen.press("ArrowDown")
    expect(strips.nth(0).locator(".token[data-lit]")).to_have_text("ic")
    expect(strips.nth(1).locator(".token").nth(2)).to_have_attribute("data-lit", "query")


def test_a_word_of_the_other_stack_is_gone_to(screen: Screen) -> None:
    """In cross attention it is the key; where only one stack is looked at, that stack is looked at."""
    page = screen.visit(model="toy-translate", text=TEXTS["toy-translate"], stage="attention", site="decoder.1.cross")
    source = page.locator("#stage .tokens").nth(0).locator(".token")
    source.nth(3).click()
    expect(source.nth(3)).to_have_attribute("data-lit", "key")
    assert (screen.state["key"], screen.state["site"]) == ("3", "decoder.1.cross")
    page.keyboard.press("4")
    screen.drawn("mlp")
    source.nth(5).click()
    expect(page.locator("#panel-mlp .controls").first).to_contain_text("for the token ic")
    assert (screen.state["token"], screen.state["site"]) == ("5", "encoder.1.attention")
