"""axe-core finds nothing on the scene and on the tables, in both themes and at several depths."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from browser import Screen

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: make setup installs it where there is npm"
)
AT = {
    "model": "toy-gpt",
    "text": "The old king and the old",
    "site": "decoder.2.attention",
    "head": 1,
    "token": 6,
    "key": 3,
}


def violations(page: Page) -> list[str]:
    page.evaluate(f"() => {{ {AXE.read_text()} }}")
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run(document)).violations")
    return [
        f"{each['id']}: {node['html'][:120]} {node['failureSummary'][:200]}" for each in found for node in each["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("depth", range(5))
def test_the_scene(screen: Screen, depth: int, theme: Any) -> None:
    screen.page.emulate_media(color_scheme=theme)
    why = {"node": "decoder.2.attention.weights", "index": [1, 6, 3]} if depth == 4 else {}
    page = screen.scene(**AT, depth=depth, **why)
    page.wait_for_selector(".scene:not([data-moving])")
    if why:
        screen.explained()
    assert violations(page) == []


@pytest.mark.parametrize("model", ["toy-translate", "toy-bert-sentiment", "toy-bert-tags", "minilm"])
def test_other_kinds(screen: Screen, model: str) -> None:
    page = screen.scene(model=model, text="The actors were wonderful.")
    page.wait_for_selector(".scene:not([data-moving])")
    assert violations(page) == []


@pytest.mark.parametrize("stage", ["tokens", "attention", "heads", "mlp", "residual", "output", "training", "lessons"])
def test_the_tables(screen: Screen, stage: str) -> None:
    found = violations(screen.visit(**AT, stage=stage))
    assert not found, "\n".join(found)
