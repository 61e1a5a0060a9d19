"""Steps that no bundled model has, in a real browser: each is shown, with this run's numbers and a caption that is true."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import odd_family
import regard
from browser import Screen, figure, figures, serving
from regard.api.trace import Trace
from regard.explain.caption import captions
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry

TEXT, SITE, HEAD, ROW, KEY = "One day the cat", "decoder.1.looking", 1, 3, 1
AT: dict[str, Any] = {"text": TEXT, "site": SITE, "head": HEAD, "token": ROW, "key": KEY}
TITLES = {"QKT": "products", "÷√dk": "shrunk", "slope": "sloped", "distance": "distance", "bias": "sloped"}
TITLES |= {"cap": "capped", "mask": "hidden"}
LEADS = {"shrunk": "scores: ", "looks": "weights: "}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    with pytest.MonkeyPatch.context() as patch:
        odd_family.known(patch)
        folder = tmp_path_factory.mktemp("odd")
        yield {name: odd_family.make(folder / name, sink=name == "odd-sink") for name in ("odd", "odd-sink")}


@pytest.fixture(scope="module")
def address(models: dict[str, Path]) -> Iterator[str]:
    with serving(make_app(ModelRegistry(list(models.values())))) as address:
        yield address


@pytest.fixture(scope="module")
def plain(models: dict[str, Path]) -> Trace:
    return regard.load(models["odd"]).trace(TEXT)


def check(page: Page, trace: Trace) -> None:
    """Every step is there, in order, with the numbers of Python's run at the cursor and the words of its captions."""
    site = trace.graph.sites[1]
    said = captions(trace, site, HEAD)
    steps = page.locator(".four .matrix")
    assert steps.count() == len(site.steps)
    for node, shown in zip(site.steps, steps.all(), strict=True):
        local = node.removeprefix(f"{SITE}.")
        value = figure(shown.locator(".matrix-readout b").inner_text())
        assert value == pytest.approx(float(trace[node][HEAD, ROW, KEY]), abs=6e-4), node
        title = shown.locator(".matrix-title").inner_text().replace(" ", "").replace("\n", "")
        assert TITLES.get(title, "looks") == local or (title == "scores" and local == "shrunk")
        words = shown.locator(".matrix-subtitle").inner_text()
        if local == "hidden":
            assert words == "hidden entries become −∞"
            assert said[node] in page.locator(".stage-head + .lead").inner_text()
        elif trace.graph[node].op == "sink":
            assert words == said[node]
        else:
            assert words == LEADS.get(local, "") + said[node]


EDITS: list[dict[str, Any]] = [
    {},
    {f"{SITE}.cap": "off"},
    {f"{SITE}.scaling": "off", f"{SITE}.mask[3, 0]": "hide"},
    {f"{SITE}.norm_q": "off"},
    {f"{SITE}.capped[1, 3, 1]": "set 2.5"},
]


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("model", ["odd", "odd-sink"])
def test_every_step_of_an_attention(screen: Screen, models: dict[str, Path], model: str, edits: dict[str, Any]) -> None:
    trace = regard.load(models[model]).trace(TEXT).edit(edits)
    page = screen.visit(model=model, **AT, edits=edits)
    check(page, trace)
    compared = "q and k are normed, then turned by position before they are compared"
    compared += f"; an edit changes {SITE}.norm_q.out." if f"{SITE}.norm_q" in edits else "."
    expect(page.locator(".work").first).to_contain_text(compared)
    products = page.locator(".work").first.locator("p.worked a.number")
    assert figure(products.inner_text()) == pytest.approx(float(trace[f"{SITE}.products"][HEAD, ROW, KEY]), abs=6e-4)
    products.click()  # it is taken apart into what it really reads
    assert screen.explained() == (f"{SITE}.products", (HEAD, ROW, KEY))
    expect(page.locator(".why-symbols")).to_contain_text("Q′[1, 3, c] · K′[1, 1, c]")
    weight = page.locator(".work").nth(1)
    if model == "odd":
        expect(weight).to_contain_text("Softmax of the row")
        assert figure(weight.locator("a.number").last.inner_text()) == pytest.approx(
            float(trace[f"{SITE}.looks"][HEAD, ROW, KEY]), abs=6e-4
        )
    else:
        expect(weight).to_contain_text("softmax(S), sink beside")
        assert "Softmax of the row" not in page.inner_text("#stage")
    z = page.locator(".work").last
    shown = figures(z.locator("p.worked a.number"))
    A = np.sort(trace[f"{SITE}.looks"][HEAD, ROW])[::-1]
    assert shown == pytest.approx([float(a) for a in A if a > 0][: len(shown)], abs=6e-4)


def test_a_file_that_was_handed_on(browser: Browser, plain: Trace, tmp_path: Path) -> None:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    screen = Screen(context.new_page(), plain.html(tmp_path / "run.html").as_uri())
    state = {key: value for key, value in AT.items() if key != "text"}
    for edits in EDITS[:3]:
        check(screen.visit(**state, edits=edits), plain.edit(edits))
    screen.visit(stage="residual", token=ROW)
    expect(screen.page.locator(".stream-sum")).to_have_count(2)
    context.close()
    assert screen.wrong == []


def test_the_neuron_view_takes_every_step(screen: Screen, plain: Trace) -> None:
    page = screen.visit(model="odd", **AT, stage="heads", view="neurons")
    words = [word.strip() for word in page.locator(".neurons thead th").all_inner_texts()]
    assert words == ["key", "k", "q × k", "q·k", "÷ √8", "slope", "cap", "mask", "softmax"]
    shown = figures(page.locator(".neurons tbody tr").nth(KEY).locator("td a.number"))
    steps = plain.graph.sites[1].steps
    assert shown == pytest.approx([float(plain[step][HEAD, ROW, KEY]) for step in steps], abs=6e-3)
    products = figures(page.locator(".figures tbody tr td:last-child"))
    assert products[-1] == pytest.approx(float(plain[steps[0]][HEAD, ROW, KEY]), abs=6e-4)
    expect(page.locator(".steps")).to_contain_text("3 · tanh(")


def test_the_residual_sum_is_the_nodes_value(screen: Screen, plain: Trace) -> None:
    page = screen.visit(model="odd", **AT, stage="residual", view="norm:decoder.1.before")
    names = [name.strip() for name in page.locator(".stream tbody th").all_inner_texts()]
    block = ["norm before attention and MLP", "attention {}", "MLP {}", "after block {}"]
    lines = [word.format(i) for i in (0, 1) for word in block]
    assert [name.lstrip("+=∘ \n") for name in names] == ["embedding", *lines, "final norm"]
    sizes = figures(page.locator(".stream .stream-size .number"))
    nodes = [
        f"decoder.{i}.{part}" for i in (0, 1) for part in ("before.out", "looking.said", "thinking.thought", "out")
    ]
    expected = [float(np.linalg.norm(plain[name][ROW])) for name in ("embed.tokens", *nodes, "final_norm.out")]
    assert sizes == pytest.approx(expected, abs=6e-3)
    added = plain["decoder.0.out"] + plain["decoder.1.looking.said"] + plain["decoder.1.thinking.thought"]
    np.testing.assert_allclose(plain["decoder.1.out"], added, rtol=1e-5, atol=1e-5)
    worked = [figure(text.split(" = ")[-1]) for text in page.locator(".norm-section dd").all_inner_texts()]
    x = plain["decoder.0.out"][ROW].astype(np.float64)
    assert worked == pytest.approx([x.mean(), x.var(), x.std()], abs=6e-3)


def test_the_mlp_under_other_names(screen: Screen, plain: Trace) -> None:
    page = screen.visit(model="odd", **AT, stage="mlp")
    expect(page.locator(".panel .lead")).to_contain_text("24 → 37 → 24")
    bent, out = plain["decoder.1.thinking.bent"][ROW], plain["decoder.1.thinking.thought"][ROW]
    adds = bent * (plain["decoder.1.thinking.fan_in.weight"] @ out) / np.linalg.norm(out)
    row = page.locator(".neurons-top tbody tr").first
    strongest = int(abs(adds).argmax())
    assert row.locator("th").inner_text() == str(strongest)
    row.get_by_text("off").click()
    expect(page.locator(".chip")).to_contain_text(f"neuron {strongest}")
    assert screen.state["edits"] == {f"decoder.1.thinking.neuron.{strongest}": "zero"}


OFFERS = {
    "head 1 off": {f"{SITE}.head.1": "zero"},
    "scaling by √d_k off": {f"{SITE}.scaling": "off"},
    "slope off": {f"{SITE}.slope": "off"},
    "cap off": {f"{SITE}.cap": "off"},
    "mask off": {f"{SITE}.mask": "off"},
    "norm of Q off": {f"{SITE}.norm_q": "off"},
    "rotation by position off": {f"{SITE}.rotary": "off"},
    "norm of K off": {f"{SITE}.norm_k": "off"},
    "residual around attention and the MLP off": {"decoder.1.residual": "off"},
    "norm before attention and the MLP off": {"decoder.1.before": "off"},
    "positions off": {"positions": "off"},
    "token “·c” off": {"token.3": "zero"},
}


def test_the_edits_that_are_offered_are_those_there_are(screen: Screen, plain: Trace) -> None:
    page = screen.visit(model="odd", **AT)
    page.get_by_role("button", name="Edit…").click()
    assert page.locator(".offers button").all_inner_texts() == list(OFFERS)
    for words, edits in OFFERS.items():
        page = screen.visit(model="odd", **AT, node="decoder.1.out", index=[4, 7])
        page.get_by_role("button", name="Edit…").click()
        page.locator(".offers button", has_text=words).click()
        expect(page.locator(".chip")).to_have_count(1)
        screen.wait_captured(float(plain.edit(edits)["decoder.1.out"][4, 7]))
        assert screen.state["edits"] == edits


def test_every_stage_and_the_map(screen: Screen) -> None:
    page = screen.visit(model="odd", **AT)
    assert page.locator(".block .part").all_inner_texts() == ["norm", "causal attention", "MLP"]
    for stage in ("tokens", "heads", "mlp", "residual", "output"):
        page.click(f"[data-keep='tab:{stage}']")
        screen.drawn(stage)
        assert not screen.errors(), stage
    page = screen.visit(model="odd", **AT, stage="tokens")
    expect(page.locator(".panel .lead").last).to_contain_text("a rotation of Q and K")
