"""Every lens has a place on the page, for each kind of model, and shows the library's numbers."""

import pytest
from playwright.sync_api import Route, expect

import regard
from browser import Screen, figure, figures
from regard.explain import lens

TEXTS = {
    "toy-gpt": "The old king and the old",
    "toy-bert": "The movie was [MASK].",
    "toy-translate": "the European Economic Area",
}
KINDS = {"toy-gpt": ["decoder"], "toy-bert": ["encoder"], "toy-translate": ["encoder", "decoder"]}


@pytest.fixture(scope="module")
def traces():
    return {name: regard.load(name).trace(text) for name, text in TEXTS.items()}


@pytest.mark.parametrize("model", TEXTS)
def test_rollout_up_to_a_block(screen: Screen, traces, model: str) -> None:
    page, trace = screen.visit(model=model, text=TEXTS[model], stage="heads"), traces[model]
    page.get_by_role("button", name="Through all blocks").click()
    page.wait_for_selector(".rollout")
    stack = KINDS[model][-1]
    last = max(site.layer for site in trace.graph.sites if site.stack == stack)
    assert screen.state["site"] == f"{stack}.{last}.attention"  # it begins after the last block
    for stack in KINDS[model]:
        page = screen.visit(model=model, text=TEXTS[model], stage="heads", view="rollout", site=f"{stack}.1.attention")
        whole = lens.attention_rollout(trace, stack, 1)
        page.focus(".matrix-view")
        screen.press("ArrowDown", "ArrowDown", "ArrowRight")
        expect(page.locator(".matrix-readout b")).to_have_text(f"{whole[2, 1]:.3f}")
        expect(page.locator(".rollout .total td").last).to_have_text(f"{whole[2, 1]:.3f}")
        products = figures(page.locator(".rollout tbody tr:not(.total) td:last-child"))
        assert sum(products) == pytest.approx(float(whole[2, 1]), abs=4e-3)  # a few terms of three digits
        first = figures(page.locator(".rollout-heads").first.locator("a"))
        assert len(first) == trace[f"{stack}.1.attention.weights"].shape[0]
        page.keyboard.press("{")  # one block earlier
        expect(page.locator(".rollout thead th").nth(4)).to_have_text("I")
        before = lens.attention_rollout(trace, stack, 0)
        expect(page.locator(".rollout .total td").last).to_have_text(f"{before[2, 1]:.3f}")
    page.click(".rollout-heads a >> nth=0")
    assert screen.explained()[0] == f"{stack}.0.attention.weights"


def test_the_difference_of_two_rollouts(screen: Screen, traces) -> None:
    edits, trace = {"decoder.1.attention.scaling": "off"}, traces["toy-gpt"]
    page = screen.visit(
        model="toy-gpt", text=TEXTS["toy-gpt"], stage="heads", view="rollout", site="decoder.2.attention",
        edits=edits, mode="delta", token=4, key=1,
    )  # fmt: skip
    change = (lens.attention_rollout(trace.edit(edits), None, 2) - lens.attention_rollout(trace, None, 2))[4, 1]
    assert figure(page.inner_text(".matrix-readout b")) == pytest.approx(float(change), abs=6e-4)


@pytest.mark.parametrize("model", TEXTS)
@pytest.mark.parametrize("measure", ["entropy", "previous", "induction", "first", "disagreement", "attribution"])
def test_every_measure_of_heads(screen: Screen, traces, model: str, measure: str) -> None:
    page, trace = screen.visit(model=model, text=TEXTS[model], stage="heads", view=f"grid.{measure}"), traces[model]
    shown = [figure(text) for text in page.locator(".head-caption .number").all_inner_texts() if text]
    if measure == "attribution" and model == "toy-bert":
        measures = page.locator("[data-keep='heads:lens'] option").all_inner_texts()
        assert "ablation effect" in measures
        assert "logit attribution" not in measures  # BERT's head bends: a logit is no sum of parts
        return
    if measure == "attribution":
        parts = lens.attribution(trace, -1).parts
        expected = [part.value for part in parts if ".head." in part.label]
        mlps = [part.value for part in parts if part.label.endswith(".mlp")]
        assert figures(page.locator(".heads-mlp:visible .number")) == pytest.approx(mlps, abs=6e-4)
    elif measure == "disagreement":
        sites = trace.graph.sites
        found = [lens.contribution(trace, s.site, h).disagreement for s in sites for h in range(s.heads)]
        expected = [x for x in found if x is not None]
        assert len(expected) == len(found)
    else:
        scores = lens.head_scores(trace).values()
        arrays = [getattr(each, measure) for each in scores]
        expected = [x for each in arrays if each is not None for x in each.tolist()]
    assert sorted(shown) == pytest.approx(sorted(expected), abs=6e-3)
    if not expected:
        expect(page.locator(".panel .sentence")).to_contain_text("No token occurs twice")


@pytest.mark.parametrize("model", TEXTS)
def test_the_effect_of_each_head_is_written_as_it_is_found(screen: Screen, traces, model: str) -> None:
    page = screen.visit(model=model, text=TEXTS[model], stage="heads", view="grid.ablation.ranked")
    token = traces[model].tokens.index("[MASK]") if model == "toy-bert" else -1
    effects = [abs(float(x)) for each in lens.ablation(traces[model], token).values() for x in each]
    expect(page.locator(".heads-ranked li")).to_have_count(len(effects))
    expect(page.locator(".measuring")).to_have_count(0)
    shown = [abs(x) for x in figures(page.locator(".heads-ranked .number"))]
    assert shown == pytest.approx(sorted(effects, reverse=True), abs=2e-3)


def test_measuring_can_be_stopped_and_goes_on(screen: Screen) -> None:
    asked: list[Route] = []
    free = False
    screen.page.route("**/lens?name=ablation*", lambda route: route.continue_() if free else asked.append(route))
    page = screen.visit(model="toy-gpt", text=TEXTS["toy-gpt"], stage="heads", view="grid.ablation")
    expect(page.locator(".measuring")).to_contain_text("0 of 4 sites")
    page.get_by_role("button", name="Stop").click()
    asked[0].continue_()
    expect(
        page.locator(".heads-row >> nth=3").locator(".head-caption .number").first
    ).not_to_be_empty()  # the last block first
    page.wait_for_timeout(300)
    assert len(asked) == 1
    free = True
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".measuring")).to_have_count(0)
    written = [text for text in page.locator(".head-caption .number").all_inner_texts() if text]
    assert len(written) == 16


def test_which_token_answers_is_the_one_that_was_chosen(screen: Screen) -> None:
    """Also the first, which is no different from the others."""
    page = screen.visit(model="toy-gpt", text=TEXTS["toy-gpt"], stage="output")
    assert page.locator("[data-keep='output:place']").input_value() == "6"
    for i in (0, 3, 0):
        page.locator("#stage .token").nth(i).click()
        expect(page.locator("[data-keep='output:place']")).to_have_value(str(i))
        expect(page.locator("#stage .token[data-lit]")).to_have_count(1)
    assert screen.state["token"] == "0"
