"""Heads, MLP, Residual, Output, Training and Lessons in a real browser, their digits checked against the library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import regard
from browser import Screen, figure, figures
from regard.explain import lens
from regard.explain.trace import Trace
from regard.store.safetensors import open_checkpoint
from regard.teach.lesson import LESSONS, lesson

TEXT = "One day the cat"
PHRASE = "the European Economic Area"
REVIEW = "The movie had amazing visuals, but the story was quite boring."
GAP = "The story was quite [MASK]."


@pytest.fixture(scope="module")
def story() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


def test_a_held_query_has_the_weights_of_its_row(screen: Screen, story: Trace) -> None:
    page = screen.visit(stage="heads", model="toy-gpt", text=TEXT, site="decoder.1.attention", head=2)
    page.click(".lines-side.query .lines-token >> nth=3")
    row = story["decoder.1.attention.weights"][2, 3]
    assert figures(page.locator(".lines-side.key a.number")) == pytest.approx(row.tolist(), abs=6e-4)
    page.click(".lines-side.key a.number >> nth=1")
    expect(page.locator("#drawer")).to_contain_text("decoder.1.attention.weights")
    assert figure(page.inner_text(".why-value")) == pytest.approx(float(row[1]), rel=1e-3)


def test_the_lines_are_walked_with_the_keys(screen: Screen) -> None:
    page = screen.visit(stage="heads", model="toy-gpt", text=TEXT, site="decoder.1.attention")
    page.focus(".lines-side.query .lines-token >> nth=0")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.keep") == "lines:key:1"
    page.keyboard.press("Enter")
    assert page.get_attribute("[data-keep='lines:key:1']", "aria-pressed") == "true"


def test_the_columns_of_heads_are_walked_with_the_keys(screen: Screen, story: Trace) -> None:
    page = screen.visit(
        stage="heads", model="toy-gpt", text=TEXT, site="decoder.1.attention", view="lines.weight.1+2+3"
    )
    page.focus(".lines-side.query .lines-token >> nth=0")
    screen.press("ArrowDown", "ArrowDown", "ArrowDown", "Enter")  # the fourth query is held
    page.focus(".lines-heads")
    screen.press("ArrowRight", "ArrowDown", "ArrowDown")
    value = float(story["decoder.1.attention.weights"][2, 3, 2])
    expect(page.locator("#said")).to_contain_text(f"head 2, ·the: {value:.3f}")
    screen.press("Enter")
    assert screen.explained() == ("decoder.1.attention.weights", (2, 3, 2))
    screen.wait_captured(value)


def test_where_weight_and_contribution_differ_most_stands_first(screen: Screen) -> None:
    page = screen.visit(
        stage="heads", model="toy-translate", text=PHRASE, site="decoder.1.cross", head=2, view="lines.difference"
    )
    trace = regard.load("toy-translate").trace(PHRASE)
    found = lens.contribution(trace, "decoder.1.cross", 2)
    gap = found.norms / found.norms.sum(-1, keepdims=True) - found.weights
    cells = page.locator(".figures tbody tr").first.locator("td").all_inner_texts()
    assert abs(figure(cells[-1])) == pytest.approx(float(abs(gap).max()), abs=6e-4)


def test_heads_are_ranked_by_a_lens_and_lead_to_their_lines(screen: Screen, story: Trace) -> None:
    page = screen.visit(stage="heads", model="toy-gpt", text=TEXT, view="grid.entropy.ranked")
    scores = figures(page.locator(".heads-ranked .number"))
    expected = sorted(float(x) for each in lens.head_scores(story).values() for x in each.entropy)
    assert scores == pytest.approx(expected, abs=6e-3)
    page.click(".heads-ranked .head-cell >> nth=0")
    page.wait_for_selector(".lines")
    assert "view=lines" in page.url


def test_products_of_q_and_k_sum_to_the_dot(screen: Screen, story: Trace) -> None:
    page = screen.visit(
        stage="heads", model="toy-gpt", text=TEXT, view="neurons", site="decoder.0.attention", head=1, token=3, key=2
    )
    rows = page.locator(".figures tbody tr")
    products = figures(rows.locator("td:last-child"))
    dot = float(story["decoder.0.attention.dots"][1, 3, 2])
    assert products[-1] == pytest.approx(dot, abs=6e-4)
    assert sum(products[:-1]) == pytest.approx(dot, abs=5e-4 * len(products))  # of numbers with three decimals


def test_the_strongest_neuron_can_be_switched_off(screen: Screen, story: Trace) -> None:
    page = screen.visit(stage="mlp", model="toy-gpt", text=TEXT, token=3, site="decoder.2.attention")
    out, act = story["decoder.2.mlp.out"][3], story["decoder.2.mlp.act"][3]
    W = story["decoder.2.mlp.down.weight"]  # (d_ff, d)
    adds = act * (W @ out) / np.linalg.norm(out)
    strongest = int(abs(adds).argmax())
    row = page.locator(".neurons-top tbody tr").first
    assert row.locator("th").inner_text() == str(strongest)
    shown = figures(row.locator("td").filter(has_not_text="off"))
    assert shown[1:] == pytest.approx([float(act[strongest]), float(adds[strongest])], abs=6e-3)
    row.get_by_text("off").click()
    expect(page.locator(".chip")).to_contain_text(f"neuron {strongest}")


def test_the_stream_has_its_lengths_and_a_norm_its_mean_and_variance(screen: Screen, story: Trace) -> None:
    page = screen.visit(stage="residual", model="toy-gpt", text=TEXT, token=3, view="norm:decoder.1.norm_2")
    added = page.locator(".stream-add .stream-size .number")
    names = [f"decoder.{i}.{part}" for i in range(4) for part in ("attention.M", "mlp.out")]
    assert figures(added) == pytest.approx([float(np.linalg.norm(story[name][3])) for name in names], abs=6e-3)
    worked = [figure(text.split(" = ")[-1]) for text in page.locator(".norm-section dd").all_inner_texts()]
    x = story["decoder.1.H"][3]
    assert worked == pytest.approx([float(x.mean()), float(x.var()), float(x.std())], abs=6e-4)


def test_a_residual_switched_off_is_an_edit(screen: Screen) -> None:
    page = screen.visit(stage="residual", model="toy-gpt", text=TEXT, token=3)
    page.click(".stream-sum button >> nth=0")
    expect(page.locator(".chip")).to_contain_text("residual")
    expect(page.locator(".stream-sum button >> nth=0")).to_have_text("on")


def test_what_is_drawn_is_what_generation_draws(screen: Screen, story: Trace) -> None:
    page = screen.visit(stage="output", model="toy-gpt", text=TEXT, temperature=1.3, top_k=20, seed=5)
    model = regard.load("toy-gpt")
    said = model.generate(TEXT, max_new_tokens=1, temperature=1.3, top_k=20, seed=5)
    assert page.inner_text(".chain li:last-child b").replace("·", " ") == said
    shares = figures(page.locator(".pieces tbody tr td:nth-child(4)"))
    expected = (story.tensor("logits")[-1].double() / 1.3).softmax(-1).sort(descending=True).values
    assert shares == pytest.approx(expected[: len(shares)].tolist(), abs=6e-5)
    parts = figures(page.locator(".bars.parts .bars-number"))
    logit = figure(page.inner_text(".spoke .lead a.number"))
    assert sum(parts) == pytest.approx(logit, abs=0.005 * (len(parts) + 1))  # of numbers with two decimals


def test_classes_and_tags_have_their_probabilities(screen: Screen) -> None:
    page = screen.visit(stage="output", model="toy-bert-sentiment", text=REVIEW)
    [answer] = regard.load("toy-bert-sentiment").classify([REVIEW])
    assert page.inner_text(".verdict") == max(answer, key=lambda label: answer[label])
    assert figures(page.locator(".bars.labels .bars-number")) == pytest.approx(sorted(answer.values())[::-1], abs=6e-5)
    page.wait_for_selector(".rests")
    page = screen.visit(stage="output", model="toy-bert-tags", text=REVIEW)
    tags = page.locator(".tagged .tag").all_inner_texts()
    [tagged] = regard.load("toy-bert-tags").tag([REVIEW])
    assert [each.tag for each in tagged] == tags  # a word's first piece decides, and [CLS] is no word


def test_a_mask_is_filled(screen: Screen) -> None:
    page = screen.visit(stage="output", model="toy-bert", text=GAP)
    best: list[Any] = regard.load("toy-bert").fill(GAP, top_k=12)
    assert page.locator(".pieces tbody th").all_inner_texts() == [each["token"] for each in best]
    shares = figures(page.locator(".pieces tbody td:nth-child(3)"))
    assert shares == pytest.approx([each["probability"] for each in best], abs=6e-5)


def test_frames_are_scrubbed(screen: Screen, runs: list[Path]) -> None:
    page = screen.visit(stage="training", model="toy-gpt", text=TEXT, run=runs[0].name, step=3)
    expect(page.locator(".frame-step")).to_have_text("step 3")
    page.focus(".scrub input")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".frame-step")).to_have_text("step 6")
    expect(page.locator(".charts .chart-readout").last).to_have_text("step 6")
    right = "e => e.getBoundingClientRect().right"
    legend, cells = (page.locator(f".frame {part}").evaluate(right) for part in (".legend", ".matrix-spacer"))
    assert legend == pytest.approx(cells, abs=40)  # it stands below its picture
    held = open_checkpoint(runs[0] / "frames" / "step-000006.safetensors")
    names = [name for name in held.names if name.endswith("decoder.0.cross.weights")]
    each = [-(A * A.clamp_min(1e-12).log2()).sum(-1).mean(-1) for A in (held.tensor(name).float() for name in names)]
    row = page.locator(".entropy tbody tr").filter(has_text="decoder.0.cross")
    assert figures(row.locator("td")) == pytest.approx(torch.stack(each).mean(0).tolist(), abs=0.011)


def test_lessons_are_listed(screen: Screen) -> None:
    page = screen.visit(stage="lessons", model="toy-gpt", text=TEXT)
    assert page.locator(".lesson-link").count() == len(LESSONS) + 1  # and the story of one word
    page.click("text=Self-attention on three inputs")
    expect(page.locator(".narration .bold")).to_have_text(lesson("three-inputs").steps()[0].say)


def test_nothing_is_wider_than_a_phone(screen: Screen) -> None:
    page = screen.visit(stage="heads", model="toy-gpt", text=TEXT)
    page.set_viewport_size({"width": 390, "height": 844})
    for stage in ("heads", "mlp", "residual", "output", "training", "lessons"):
        page.click(f"[data-keep='tab:{stage}']")
        screen.drawn(stage)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, stage


def test_probabilities_over_the_whole_vocabulary_sum_to_one(screen: Screen, story: Trace) -> None:
    page = screen.visit(stage="output", model="toy-gpt", text=TEXT, temperature=1, top_k=0)
    page.click("text=Show 200")
    rows = figures(page.locator(".pieces tbody tr td:nth-child(4)"))
    rest = 1 - float(story.tensor("logits")[-1].double().softmax(-1).topk(len(rows)).values.sum())
    assert sum(rows) + rest == pytest.approx(1, abs=0.01)
    assert torch.tensor(rows).diff().le(0).all()
