"""The law of the browser: for every family, what a file computes and says is what Python computes and says."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
import tiny
from offline import NODE, Offline
from regard.errors import RegardError
from regard.explain.render import constant, literal, number
from regard.explain.trace import Array, Trace
from regard.page import export_contents

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node on this machine")

SOURCE, TARGET = [7, 9, 12, 9, 33, 8], [3, 22, 6, 19]
ASKED = 3  # numbers of each node


@pytest.fixture(params=[*tiny.MODELS, *tiny.NATIVE])
def trace(request: Any, saved: Any) -> Trace:
    model = regard.load(saved(request.param))
    return model.trace(SOURCE, TARGET if model.spec.kind == "encoder-decoder" else None)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Trace], Offline]]:
    files: list[Offline] = []

    def opened(trace: Trace) -> Offline:
        files.append(Offline(trace, tmp_path, ablate_large=False))
        return files[-1]

    yield opened
    for file in files:
        file.close()


def same(got: Array, want: Array, words: object) -> None:
    """Both round to float32 after every sum: an error is a share of the largest number, also where terms cancel."""
    finite = np.abs(want[np.isfinite(want)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * max(1.0, finite.max(initial=0.0)), err_msg=str(words))


def test_a_node_follows_from_its_operands(trace: Trace, opened: Any) -> None:
    file = opened(trace)
    for name in trace.nodes():
        same(file.numbers("formula", name), trace[name], name)


def test_what_is_not_kept_follows_from_what_is(trace: Trace, opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(export_contents, "MAX_EXACT", 0)
    file, kept = opened(trace), export_contents.select(trace)
    assert not kept.all
    for name in trace.nodes():
        same(file.numbers("slice", "plain", name), trace[name], name)


def alike(got: Any, want: Any, place: object) -> None:
    """Equal, but for the last digits of numbers."""
    if isinstance(want, dict):
        assert got.keys() == want.keys(), place
        for key in want:
            alike(got[key], want[key], (place, key))
    elif isinstance(want, list | tuple):
        assert len(got) == len(want), place
        for k, (one, other) in enumerate(zip(got, want, strict=True)):
            alike(one, other, (place, k))
    elif isinstance(want, float) and not isinstance(got, str):
        assert got == pytest.approx(want, rel=1e-6, abs=1e-12), place
    else:
        assert got == want, place


def test_a_number_has_the_same_reason(trace: Trace, opened: Any) -> None:
    file, dice = opened(trace), random.Random(0)
    found = {x.name: x for node in trace.graph for x in node.operands if x.name not in ("ids", "target_ids")}
    names = [*trace.nodes(), *(name for name in found if name not in trace)]
    asked: list[Any] = [
        ["plain", name, [dice.randrange(n) for n in trace.shape(name)]] for name in names for _ in range(ASKED)
    ]
    for (_, name, index), got in zip(asked, file.ask("why", *asked), strict=True):
        want = trace.why(name, index).to_json()
        got["difference"] = want["difference"]  # of two numbers that are hardly apart
        alike(got, want, (name, index))


def test_numbers_and_tokens_are_written_as_python_writes_them(saved: Any, opened: Any) -> None:
    file, dice = opened(regard.load(saved("gpt2-untied")).trace(SOURCE)), random.Random(0)
    numbers = [1.0625, -1.0635, 0.5, 2.5e-5, 9999.5, 99995.0, 50256.0, -0.0, 1e-7, 1e22, 123456789.5, 0.044715, 1 / 3]
    numbers += [dice.gauss(0, 1) * 10.0 ** dice.randint(-12, 12) for _ in range(300)]
    numbers += [dice.randrange(1 << 14) / (1 << dice.randint(0, 12)) for _ in range(300)]  # many a tie among them
    texts = ["it's", 'say "it\'s"', "a\nb\t\\", "\x00\x1f\u200b\u2028", "naïve 漢字 🙂", ""]
    asked: list[Any] = [[x, texts[k % len(texts)]] for k, x in enumerate(numbers)]
    for (x, text), got in zip(asked, file.ask("written", *asked), strict=True):
        assert got == [number(float(x)), constant(float(x)), literal(float(x)), repr(text)]


def edits_of(trace: Trace) -> list[dict[str, Any]]:
    """One of each kind that the network has a place for."""
    graph, told = trace.graph, export_contents.targets_json(trace)
    free = [place for place, (node, _) in told["counted"].items() if node not in told["fixed"]]
    found: list[dict[str, Any]] = [{f"{place}.1": "zero"} for place in free]
    found += [{place: "off"} for place in told["switches"]]
    for place, (_, hides) in told["masks"].items():
        found.append({f"{place}[3, 1]": "hide"})
        found += [{place: "off"}, {f"{place}[1, 2]": "show", f"{place}[3, :2]": "hide"}] if hides else []
    if sites := [site for site in graph.sites if f"{site.site}.mask" in told["masks"]]:
        found += [{f"{sites[-1].site}.weights[0, 3, 1]": {"set": 0.7}}]
        found += [{f"{sites[0].site}.head.0": "zero", f"{sites[-1].site}.weights[0, 3, 1]": {"set": -0.25}}]
    embeddings = [node.name for node in graph if node.name.endswith("embed.tokens")]
    return [*found, {f"{embeddings[-1]}[2, 5]": {"set": 1.5}}]


def test_what_python_refuses_is_refused(trace: Trace, opened: Any) -> None:
    file, told = opened(trace), export_contents.targets_json(trace)
    asked: list[dict[str, Any]] = [{f"{node}": "zero"} for node in told["fixed"] if node in trace]
    asked += [{place: "zero"} for place in [*told["switches"], *told["masks"]]]
    asked += [{f"{place}[0, :]": "hide"} for place in told["masks"]]  # a token would see nothing
    asked += [{f"{place}[0, 99]": "hide"} for place in told["masks"]]
    asked += [{f"{trace.nodes()[0]}[0, 999]": {"set": 1.0}}, {"nowhere": "off"}]
    for edits, got in zip(asked, file.ask("fork", *(["plain", edits] for edits in asked)), strict=True):
        with pytest.raises(RegardError):
            trace.edit(edits)
        assert "error" in got, edits


def test_an_edit_does_the_same(trace: Trace, opened: Any) -> None:
    file = opened(trace)
    ends = [*trace.nodes()[-6:], *(f"{site.site}.weights" for site in trace.graph.sites)]
    for edits in edits_of(trace):
        (told,) = file.ask("fork", ["plain", edits])
        assert "error" not in told, (edits, told)
        changed = trace.edit(edits)
        assert set(told["edited"]) == changed.edited
        for name in ends:
            same(file.numbers("slice", told["trace"], name), changed[name], (edits, name))
