"""Panels as pictures: every one is drawn, an SVG's words are text, and no token becomes markup or a formula."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import regard
from regard.errors import NotFound, TaskError
from regard.explain.lens import logit_lens
from regard.explain.picture import PANELS, shown
from regard.explain.predictions import answer_positions
from regard.explain.trace import Trace

TEXTS = {"toy-gpt": "Once upon a time", "toy-bert-tags": "The old man saw", "toy-translate": "the cat sleeps"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def toy() -> Trace:
    return regard.load("toy-gpt").trace(TEXTS["toy-gpt"])


def words(path: Path) -> list[str]:
    """Every text of a picture, as a reader of it has it."""
    return ["".join(each.itertext()) for each in ET.parse(path).iter(f"{SVG}text")]


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("name", TEXTS)
def test_every_panel_of_every_kind_of_model(name: str, panel: str, tmp_path: Path) -> None:
    trace = regard.load(name).trace(TEXTS[name])
    path = trace.svg(panel, tmp_path / "new" / "a.svg")
    found = words(path)
    if panel in ("attention", "lines"):
        assert {shown(piece) for piece in trace.target_tokens or trace.tokens} <= set(found)
    elif panel == "tokens":
        pairs = zip(trace.tokens, trace.ids, strict=True)
        assert {f"{shown(piece)}  {id}" for piece, id in pairs} <= set(found)
    elif panel == "heads":
        assert {site.site.removesuffix(".attention") for site in trace.graph.sites} <= set(found)
    elif panel == "residual":
        *_, last = trace.spec.stacks
        added = [n for n in trace.nodes() if n.startswith(f"{last}.") and n.endswith((".M", ".mlp.out"))]
        assert [word for word in found if word.endswith((".M", ".mlp.out"))] == [
            n.removeprefix(f"{last}.") for n in added
        ]
    elif panel == "logit_lens":
        assert [word for word in found if word.endswith(".out")] == [row.node for row in logit_lens(trace, 0)]
    else:
        assert panel == "output"
        row = trace["probabilities"][-1 if trace.target_tokens else answer_positions(trace)[0]]
        assert {f"{p:.3f}" for p in sorted(row.tolist())[-3:]} <= set(found)
    with Image.open(trace.png(panel, tmp_path / "a.png")) as picture:
        assert picture.format == "PNG"
        assert picture.width > 200
        assert len(picture.convert("L").getcolors() or range(257)) > 2, "not blank"


def test_the_figure_has_the_numbers_of_the_run(toy: Trace, tmp_path: Path) -> None:
    site = "decoder.2.attention"
    found = words(toy.svg("attention", tmp_path / "a.svg", site=site, head=3))
    assert [f"{a:.2f}" for a in toy[f"{site}.weights"][3].flatten().tolist()] == [
        w for w in found if w[1:2] == "." and len(w) == 4
    ]
    assert f"{site}, head 3" in found
    best = toy["probabilities"][-1].max()
    assert f"{float(best):.3f}" in words(toy.svg("output", tmp_path / "b.svg"))
    lens = words(toy.svg("logit_lens", tmp_path / "c.svg", token=-1))
    assert {"embed.out", "decoder.3.out"} <= set(lens)
    assert any(word.endswith(f"  {float(best):.2f}") for word in lens)


def test_heads_of_one_site(toy: Trace, tmp_path: Path) -> None:
    every = ET.parse(toy.svg("heads", tmp_path / "all.svg"))
    one = ET.parse(toy.svg("heads", tmp_path / "one.svg", site="decoder.1.attention"))
    assert sum(1 for _ in every.iter(f"{SVG}image")) == 16
    assert sum(1 for _ in one.iter(f"{SVG}image")) == 4


HOSTILE = ["</text><script>hacked=1</script>", "$\\frac{", "<img onerror=x>", "\x00\x1b", "\u2028", "語", "\ud800", ""]


def test_tokens_are_only_ever_text(toy: Trace, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(toy, "tokens", [HOSTILE[i % len(HOSTILE)] for i in range(len(toy.tokens))])
    for panel in PANELS:
        path = toy.svg(panel, tmp_path / f"{panel}.svg")
        assert not list(ET.parse(path).iter(f"{SVG}script"))
        toy.png(panel, tmp_path / f"{panel}.png")
    assert {HOSTILE[0], HOSTILE[1], "語", "∅"} <= set(words(tmp_path / "attention.svg"))


def test_the_same_run_gives_the_same_bytes(toy: Trace, tmp_path: Path) -> None:
    first, second = (toy.svg("lines", tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second


@pytest.mark.parametrize(
    ("panel", "which", "error", "says"),
    [
        ("nothing", {}, NotFound, "there are attention, heads"),
        ("attention", {"site": "decoder.9.attention"}, NotFound, "decoder.3.attention"),
        ("attention", {"head": 4}, NotFound, "0 to 3"),
        ("attention", {"token": 1}, TaskError, "it takes site and head"),
        ("tokens", {"token": 1}, TaskError, "no options"),
        ("residual", {"token": 99}, NotFound, "no token 99"),
        ("residual", {"stack": "encoder"}, NotFound, "it has decoder"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    toy: Trace, tmp_path: Path, panel: str, which: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        toy.svg(panel, tmp_path / "a.svg", **which)
    assert not (tmp_path / "a.svg").exists()
