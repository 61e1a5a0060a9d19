"""Any number is taken apart down to the weights, and every digit on the way is the one that torch computed."""

import json
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Page, expect

import regard
from browser import Screen, number

GPT, BERT, TRANSLATE = "One day the cat", "The movie was [MASK].", "the European Economic Area"
DOWN = {  # model, text, where to begin, and which operand to follow at each level
    "decoder": ("toy-gpt", GPT, "decoder.1.attention.weights", [2, 3, 1],
                ["attention.masked", "attention.scores", "attention.dots", "attention.Q", "attention.W_q.weight"]),
    "encoder": ("toy-bert", BERT, "encoder.2.attention.weights", [1, 3, 2],
                ["attention.scores", "attention.dots", "attention.K", "encoder.1.out", "norm_2.out", "norm_2.weight"]),
    "both": ("toy-translate", TRANSLATE, "decoder.1.cross.M", [2, 5],
             ["cross.Z", "cross.V", "final_norm.out", "final_norm.normalised", "1.out", "mlp.out", "mlp.down.weight"]),
}  # fmt: skip


def follow(page: Page, operand: str) -> None:
    """Click the first operand of that name."""
    page.locator(f'#drawer .term-factors a[title*="{operand}["]').first.click()
    page.wait_for_function("n => new URLSearchParams(location.hash.slice(1)).get('node').endsWith(n)", arg=operand)


@pytest.mark.parametrize("kind", DOWN)
def test_down_to_a_weight_and_back_up(screen: Screen, kind: str) -> None:
    model, text, node, index, way = DOWN[kind]
    page = screen.visit(model=model, text=text, node=node, index=index)
    net = regard.load(model)
    trace = net.trace(text)
    for level, operand in enumerate(way):
        node, at = screen.explained()
        why = trace.why(node, at)
        assert screen.captured() == pytest.approx(float(trace[node][at]), rel=1e-7, abs=1e-9)
        assert number(page.inner_text(".check dd >> nth=1")) == pytest.approx(why.recomputed, rel=1e-7, abs=1e-9)
        assert page.locator(".agrees").count() == 1
        shown = [number(text) for text in page.locator(".term-factors a.number").all_inner_texts()[:2]]
        assert shown == pytest.approx([f.value for t in why.terms for f in t.factors if f.node][:2], abs=6e-4)
        expect(page.locator(".trail a")).to_have_count(level)
        follow(page, operand)
    node, at = screen.explained()
    module, _, leaf = node.rpartition(".")
    parameter = getattr(net.net.get_submodule(module), leaf)
    value = parameter[at[::-1]]  # a linear map is (in, out) on the page and (out, in) in torch
    assert screen.captured() == pytest.approx(float(value), rel=1e-7)
    assert len(way) >= 4
    screen.press(*["Backspace"] * len(way))
    expect(page.locator(".trail a")).to_have_count(0)
    assert screen.explained() == (DOWN[kind][2], tuple(DOWN[kind][3]))


def test_a_click_on_a_cell_asks_for_that_cell(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=GPT, site="decoder.2.attention", head=3)
    view = page.get_by_role("application", name="weights, head 3")
    view.scroll_into_view_if_needed()
    box = view.locator(".matrix-spacer").bounding_box()
    assert box is not None
    view.click(position={"x": box["width"] - 8, "y": box["height"] - 8})
    node, index = screen.explained()
    assert node == "decoder.2.attention.weights"
    assert index == (3, 4, 4)
    trace = regard.load("toy-gpt").trace(GPT)
    assert screen.captured() == pytest.approx(float(trace[node][index]), rel=1e-7)


def test_every_number_on_the_stages_is_a_link_to_itself(screen: Screen) -> None:
    """What a link says is what the run has at the place it leads to."""
    trace, seen = regard.load("toy-gpt").trace(GPT), 0
    for stage in ("tokens", "attention", "mlp", "residual", "output"):
        page = screen.visit(model="toy-gpt", text=GPT, stage=stage, token=3, temperature=1)
        for link in page.locator("#stage a.number").all()[:25]:
            goal = dict(parse_qsl((link.get_attribute("href") or "").lstrip("#")))
            value = float(trace[goal["node"]][tuple(json.loads(goal["index"]))])
            text = link.inner_text()
            if "·10" not in text and "∞" not in text:
                assert number(text) == pytest.approx(value, abs=6e-3), (stage, goal)
                seen += 1
    assert seen > 40


def test_it_is_copied_for_a_paper_a_program_and_an_exam(screen: Screen) -> None:
    page = screen.visit(model="toy-gpt", text=GPT, node="decoder.1.attention.weights", index=[2, 3, 1])
    screen.explained()
    page.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }")
    why = regard.load("toy-gpt").trace(GPT).why("decoder.1.attention.weights", (2, 3, 1))
    for name, text in (("LaTeX", why.latex), ("Python", why.python)):
        page.get_by_role("button", name=name).click()
        assert page.evaluate("window.copied") == text
    page.get_by_role("button", name="question").click()
    assert f"Answer: {why.value:.3f}" in page.evaluate("window.copied")


@pytest.mark.parametrize("saved", [False, True])
def test_the_other_terms_are_listed_when_asked_for(screen: Screen, tmp_path: Path, saved: bool) -> None:
    """Up to a hundred of them, on the server and in a file; then fewer again."""
    trace = regard.load("toy-gpt").trace(GPT)
    if saved:
        screen.address = trace.html(tmp_path / "run.html").as_uri()
    node, index = "decoder.2.mlp.out", (3, 5)
    page = screen.visit(node=node, index=list(index), **({} if saved else {"model": "toy-gpt", "text": GPT}))
    why = trace.why(node, index)
    rest = page.locator(".terms .rest")
    for shown, word in ((12, "Show 88 of them"), (100, "Show fewer"), (12, "Show 88 of them")):
        expect(page.locator(".terms li")).to_have_count(shown)
        count, total = why.rest(shown)
        assert float(number(rest.locator(".number").inner_text())) == pytest.approx(total, abs=6e-4)
        expect(rest).to_contain_text(f"The other {count} sum to")
        rest.get_by_role("button", name=word).press("Enter")
    assert float(number(page.locator(".terms .term-value").nth(50).inner_text())) == pytest.approx(
        why.terms[50].value, abs=6e-4
    )
    screen.hosts.discard("")  # a file has none
