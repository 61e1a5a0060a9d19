"""A | B | Δ: with Δ the output, the lenses and the derivations show the difference itself."""

import pytest
from playwright.sync_api import expect

import regard
from browser import Screen, figure, figures
from regard.explain import lens

TEXT, EDITS = "The old king and the old", {"decoder.2.attention.scaling": "off"}
DELTA = {"model": "toy-gpt", "text": TEXT, "edits": EDITS, "mode": "delta"}


@pytest.fixture(scope="module")
def pair():
    before = regard.load("toy-gpt").trace(TEXT)
    return before, before.edit(EDITS)


def test_probabilities_that_changed_most_stand_first(screen: Screen, pair) -> None:
    page = screen.visit(stage="output", temperature=1, **DELTA)
    before, after = (run.tensor("logits")[-1].double() for run in pair)
    change = after.softmax(-1) - before.softmax(-1)
    rows = page.locator(".pieces.changed tbody tr")
    shown = figures(rows.locator("td:last-child .number"))
    expected = change[change.abs().argsort(descending=True)][: len(shown)]
    assert shown == pytest.approx(expected.tolist(), abs=6e-5)
    id = int(change.abs().argmax())
    cells = figures(rows.first.locator("td"))
    assert cells[:3] == pytest.approx([float(x[id]) for x in (before, after, after - before)], abs=6e-3)


def test_the_middles_of_all_changes_stand_below_each_other(screen: Screen) -> None:
    """Also where numbers are wide: most of 200 changes are written as powers of ten."""
    page = screen.visit(stage="output", temperature=1, **DELTA)
    page.get_by_role("button", name="Show ").click()
    rows = page.locator(".pieces.changed tbody tr")
    assert max(map(len, rows.locator("td:last-child .number").all_inner_texts())) >= 10
    middles = rows.locator(".bar.middle").evaluate_all(
        "all => all.map(bar => bar.getBoundingClientRect()).map(box => box.x + box.width / 2)"
    )
    assert len(middles) > 100
    assert max(middles) - min(middles) < 0.5


def test_the_parts_that_changed_sum_to_the_change_of_the_logit(screen: Screen, pair) -> None:
    page = screen.visit(stage="output", temperature=0, **DELTA)
    id = int(pair[1]["logits"][-1].argmax())
    a, b = (lens.attribution(run, -1, id) for run in pair)
    expect(page.locator(".spoke .lead")).to_contain_text(f"({b.total - a.total:+.2f})".replace("-", "−"))
    parts = figures(page.locator(".bars.parts .bars-number"))
    assert sum(parts) == pytest.approx(b.total - a.total, abs=0.005 * (len(parts) + 1))  # of numbers with two decimals


def test_labels_and_the_tokens_they_rest_on(screen: Screen) -> None:
    text, edits = "The actors were not wonderful.", {"encoder.1.attention.head.*": "zero"}
    page = screen.visit(model="toy-bert-sentiment", text=text, stage="output", edits=edits, mode="delta")
    before = regard.load("toy-bert-sentiment").trace(text)
    after = before.edit(edits)
    change = after.tensor("probabilities") - before.tensor("probabilities")
    order = after.tensor("logits").argsort(descending=True)
    assert figures(page.locator(".bars.labels .bars-number")) == pytest.approx(change[order].tolist(), abs=6e-5)
    best = int(order[0])
    shares = [lens.gradient_times_input(run, 0, best).source for run in (before, after)]
    shown = figures(page.locator(".rests .number"))
    assert shown == pytest.approx((shares[1] - shares[0]).tolist(), abs=6e-3)


def test_scores_of_heads(screen: Screen, pair) -> None:
    page = screen.visit(stage="heads", view="grid.entropy.ranked", **DELTA)
    a, b = (lens.head_scores(run) for run in pair)
    changes = [float(y - x) for site in a for x, y in zip(a[site].entropy, b[site].entropy, strict=True)]
    shown = figures(page.locator(".heads-ranked .number"))
    assert shown == pytest.approx(sorted(changes, key=abs, reverse=True), abs=1e-3)


def test_the_logit_lens_says_what_turned(screen: Screen, pair) -> None:
    page = screen.visit(stage="residual", token=5, **DELTA)
    rows = [lens.logit_lens(run, 5) for run in pair]
    same = [a.top[0].id == b.top[0].id for a, b in zip(*rows, strict=True)]
    assert page.locator(".lens-change").count() == sum(same)
    was, now = (100 * each[-1].top[0].probability for each in rows)
    last = page.locator(".lens-change").last.inner_text()
    assert figure(last.replace("±", "")) == pytest.approx(now - was, abs=1)


def test_a_derivation_of_the_difference(screen: Screen, pair) -> None:
    node, index = "decoder.2.attention.weights", (1, 6, 3)
    page = screen.visit(stage="attention", site="decoder.2.attention", head=1, node=node, index=list(index), **DELTA)
    a, b = (float(run[node][index]) for run in pair)
    page.wait_for_selector(".why-change")
    assert figure(page.inner_text(".why-value")) == pytest.approx(b - a, abs=6e-5)
    expect(page.locator(".why-change")).to_have_text(f"{a:.4f} before → {b:.4f} after")
    changes = figures(page.locator(".terms .term-value"))
    assert changes[0] == pytest.approx(b - a, abs=6e-4)  # its own share of the softmax
    assert sum(changes) == pytest.approx(0, abs=6e-3)  # what one gains the others lose
    assert figures(page.locator(".check dl dd:first-of-type")) == pytest.approx([a, b], rel=1e-6)
    expect(page.locator(".agrees")).to_have_count(2)
    screen.press("a")
    expect(page.locator(".why-change")).to_have_count(0)
    screen.wait_captured(a)


def test_other_texts_are_compared_where_they_stand_for_each_other(screen: Screen) -> None:
    texts = ("The old king saw the old", "The old woman and a king saw the old")
    page = screen.visit(model="toy-gpt", text=texts[0], against=texts[1], stage="output", mode="delta", temperature=1)
    a, b = (regard.load("toy-gpt").trace(text).tensor("logits")[-1].double().softmax(-1) for text in texts)
    shown = figures(page.locator(".pieces.changed tbody td:last-child .number"))  # the ends stand for each other
    assert abs(shown[0]) == pytest.approx(float((b - a).abs().max()), abs=6e-5)
