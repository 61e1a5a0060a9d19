"""The narration is true of the run beside it: every sentence with every switch, in every voice."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import regard
from browser import Screen
from regard.api.trace import Trace
from regard.explain import lens

TEXT, SITE, HEAD, ROW, KEY = "The old king and the old", "decoder.2.attention", 1, 6, 3
AT = {"model": "toy-gpt", "text": TEXT, "site": SITE, "head": HEAD, "token": ROW, "key": KEY}
VOICES = ["story", "numbers", "mathematics"]
STEPS = {"dots": "Q Kᵀ", "scores": "÷ √dₖ", "masked": "mask", "weights": "softmax"}
EDITS: list[dict[str, Any]] = [
    {},
    {f"{SITE}.scaling": "off"},
    {f"{SITE}.mask": "off"},
    {f"{SITE}.mask[6, 3]": "hide"},
    {f"{SITE}.head.1": "zero"},
    {"decoder.*.attention.head.1": "zero"},
    {f"{SITE}.Q[1, 6, 0]": "set 9"},
    {f"{SITE}.weights[1, 6, 5]": "set 1.5"},
    {f"{SITE}.Z[1, 6, 0]": "set 9"},
    {"decoder.2.mlp.out": "zero"},
    {"decoder.2.residual_1": "off"},
    {"positions": "off"},
]


@cache
def plain() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


def told(screen: Screen, depth: int, voice: str, edits: dict[str, Any]) -> tuple[Trace, str, str]:
    """The run, and the two sentences beside it, when all that they need has come."""
    page = screen.scene(**AT, depth=depth, voice=voice, edits=edits)
    page.wait_for_selector(".scene:not([data-moving])")
    if depth > 1:
        expect(page.locator(".thing.step")).to_have_count(len(STEPS))
    if depth == 1 and not edits:
        expect(page.locator(".thing.effect")).to_have_count(4)
    bold, said = (page.locator(f".narration .{kind}").inner_text() for kind in ("bold", "plain"))
    return plain().edit(edits), bold, said


def share(text: str) -> int:
    found = re.search(r"(\d+) %", text)
    assert found, text
    return int(found[1])


def word(trace: Trace, position: int) -> str:
    return trace.tokens[position].strip()


@pytest.mark.parametrize("edits", EDITS, ids=str)
def test_the_whole_model(screen: Screen, edits: dict[str, Any]) -> None:
    for voice in VOICES:
        trace, _, said = told(screen, 0, voice, edits)
        guesses = [row.top[0].piece.strip() for row in lens.logit_lens(trace, ROW)]
        changing = [one for i, one in enumerate(guesses) if not i or one != guesses[i - 1]]
        if voice == "story" and len(changing) == 1:
            assert f"its guess is the same: {changing[0]}." in said
        elif voice == "story":
            shown = changing if len(changing) <= 5 else [*changing[:2], "…", *changing[-2:]]
            assert f"its guess changes: {', '.join(shown)}." in said
        elif voice == "numbers":
            assert share(said) == round(100 * float(trace["probabilities"][ROW].max()))


@pytest.mark.parametrize("edits", EDITS, ids=str)
def test_a_block(screen: Screen, edits: dict[str, Any]) -> None:
    for voice in VOICES:
        trace, bold, said = told(screen, 1, voice, edits)
        here = any(node.startswith("decoder.2.") for node in trace.edited)
        assert ("with an edit in it" in bold, "edited run" in said) == (here, here)
        assert ("then the MLP works" in bold) == (not here)


@pytest.mark.parametrize("edits", EDITS, ids=str)
def test_a_head(screen: Screen, edits: dict[str, Any]) -> None:
    for voice in VOICES:
        trace, bold, said = told(screen, 2, voice, edits)
        weights = trace[f"{SITE}.weights"][HEAD, ROW]
        most = int(weights.argmax())
        if not trace[f"{SITE}.Z"][HEAD].any():
            assert bold == "Head 1 is switched off."
            continue
        assert f"“{word(trace, most)}”" in bold or (most == ROW and "itself" in bold)
        touched = [name for name in ("Q", "K", *STEPS, "Z") if f"{SITE}.{name}" in trace.edited]
        assert said.startswith("An edit changes") == bool(touched)
        if touched:
            assert f"An edit changes {', '.join(titles(trace, touched))} of this head" in said
            assert float(bold.rpartition(" ")[2].removesuffix(".")) == pytest.approx(weights[most], abs=6e-4)
        elif voice == "mathematics" and most != ROW:
            assert f"goes through {', '.join(STEPS.values())}, with {trace[f'{SITE}.Q'].shape[-1]} numbers" in said
        else:
            assert share(said) == round(100 * float(weights[most]))


def titles(trace: Trace, names: list[str]) -> list[str]:
    """As the buttons beside the matrix say it; scores that are not divided are called scores."""
    undivided = np.array_equal(trace[f"{SITE}.dots"], trace[f"{SITE}.scores"])
    return [("scores" if undivided and name == "scores" else STEPS.get(name, name)) for name in names]


@pytest.mark.parametrize("edits", EDITS, ids=str)
def test_a_cell(screen: Screen, edits: dict[str, Any]) -> None:
    for voice in VOICES:
        trace, bold, said = told(screen, 3, voice, edits)
        weight = float(trace[f"{SITE}.weights"][HEAD, ROW, KEY])
        hidden = np.isneginf(trace[f"{SITE}.masked"][HEAD, ROW, KEY])
        touched = any(f"{SITE}.{name}" in trace.edited for name in ("Q", "K", *STEPS, "Z"))
        assert ("may not look" in bold, "−∞" in said) == (hidden, hidden)
        if hidden:
            continue
        assert said.startswith("An edit changes") == touched
        if touched:
            shown = re.search(r"weight (\S+) in", bold)
            assert shown
            assert float(shown[1]) == pytest.approx(weight, abs=6e-4)
        else:
            assert share(bold) == round(100 * weight)


def test_a_number(screen: Screen) -> None:
    node, index = f"{SITE}.weights", [HEAD, ROW, 5]
    for edits in ({}, {f"{SITE}.weights[1, 6, 5]": "set 1.5"}):
        page = screen.scene(**AT, depth=4, node=node, index=index, edits=edits)
        page.wait_for_selector(".scene:not([data-moving])")
        said = page.locator(".narration .plain").inner_text()
        assert said.startswith(f"An edit changes {node}" if edits else f"{node}[1, 6, 5] is computed")
