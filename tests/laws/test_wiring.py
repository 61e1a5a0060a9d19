"""The law of the wiring: which node plays which part follows from edges, and the numbers of a run say the same."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odd_family
import regard
import tiny
from offline import NODE, Offline
from regard.errors import TaskError
from regard.explain import lens
from regard.explain.caption import captions
from regard.explain.trace import Trace
from regard.model.wiring import wiring
from regard.page.trace_json import trace_json
from regard.teach.handout import handout

SOURCE, TARGET = [7, 9, 12, 40, 33, 8], [3, 22, 6, 19]
SITE = "decoder.1.looking"
ODD = ("odd", "odd-sink")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Directories of models with steps of their own, while their family is known."""
    with pytest.MonkeyPatch.context() as patch:
        odd_family.known(patch)
        folder = tmp_path_factory.mktemp("odd")
        yield {name: odd_family.make(folder / name, sink=name == "odd-sink") for name in ODD}


@pytest.fixture(params=[*tiny.MODELS, *tiny.NATIVE, *ODD])
def trace(request: Any, saved: Any, odd: dict[str, Path]) -> Trace:
    model = regard.load(odd.get(request.param) or saved(request.param))
    return model.trace(SOURCE, TARGET if model.spec.kind == "encoder-decoder" else None)


def test_a_site_leads_from_dot_products_to_weights(trace: Trace) -> None:
    graph = trace.graph
    assert graph.sites
    mixed = [node.name for node in graph if node.op == "mix"]
    assert [site.Z for site in graph.sites] == mixed, "every mixture is a site's"
    for site in graph.sites:
        ops = [graph[name].op for name in site.steps]
        assert site.steps[-1] == site.weights
        chain = [name for name in site.steps if graph[name].op != "distance"]  # a bias is added, and made of no step
        for before, after in pairwise(chain):
            assert before in graph[after].inputs
        assert graph[site.Z].inputs == (site.weights, site.V)
        assert ops[-1] == ("sink" if trace.spec.family == "odd" and dict(trace.spec.own)["sink"] else "softmax")
        if trace.spec.recurrent is not None:  # a small network compares
            assert site.Q is site.K is site.M is None
            continue
        assert graph[chain[0]].op == "dot"
        assert graph[chain[0]].inputs == (site.Q, site.K)
        assert site.M is not None
        assert graph[site.M].inputs[0] == site.Z
        assert (graph.mask_of(site).causal and site.kind == "causal") or "mask" not in ops


def test_what_a_site_names_is_what_it_computes(trace: Trace) -> None:
    """softmax(Q Kᵀ …) V in float64, from the nodes that play the parts."""
    for site in trace.graph.sites:
        if site.Q is None or site.K is None or site.V is None:
            continue
        Q, K, V, A = (trace[name].astype(np.float64) for name in (site.Q, site.K, site.V, site.weights))
        K, V = (X.repeat(site.heads // len(X), 0) for X in (K, V))
        dots = next(name for name in site.steps if trace.graph[name].op == "dot")
        np.testing.assert_allclose(trace[dots], Q @ K.swapaxes(-1, -2), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(trace[site.Z], A @ V, rtol=1e-4, atol=1e-4)


def test_the_stream_is_what_it_was_and_what_is_added(trace: Trace) -> None:
    parts = wiring(trace.graph)
    assert bool(parts.blocks) == (trace.spec.recurrent is None)
    for block in parts.blocks:
        for each in block.sums:
            added = sum(trace[branch.node].astype(np.float64) for branch in each.branches)
            np.testing.assert_allclose(trace[each.node], trace[each.stream] + added, rtol=1e-4, atol=1e-4)
            assert all(branch.kind in ("attention", "cross attention", "MLP") for branch in each.branches)
        sites = [name for each in block.sums for branch in each.branches for name in branch.sites]
        assert sites == [s.site for s in trace.graph.sites if (s.stack, s.layer) == (block.stack, block.layer)]
    assert len(parts.blocks) == sum(stack.n_layers for stack in trace.spec.stacks.values())
    for stack, made in parts.embeddings.items():
        entered = next((block.sums[0].stream for block in parts.blocks if block.stack == stack), made[-1])
        assert made[-1] == entered


def test_a_norm_is_what_its_steps_say(trace: Trace) -> None:
    parts = wiring(trace.graph)
    assert [norm.normalised for norm in parts.norms] == [node.name for node in trace.graph if node.op == "normalise"]
    for norm in parts.norms:
        x = trace[norm.x].astype(np.float64)
        away = x if norm.mean is None else x - x.mean(-1, keepdims=True)
        spread = (away**2).mean(-1, keepdims=True)
        np.testing.assert_allclose(trace[norm.spread], spread, rtol=1e-4, atol=1e-5)
        eps = trace.graph[norm.normalised].facts["eps"]
        out = away / np.sqrt(spread + eps)
        out = out if norm.gamma is None else out * trace[norm.gamma]
        out = out if norm.beta is None else out + trace[norm.beta]
        np.testing.assert_allclose(trace[norm.out], out, rtol=1e-3, atol=1e-4)


def test_an_mlp_is_what_its_steps_say(trace: Trace) -> None:
    parts = wiring(trace.graph)
    assert len(parts.mlps) == len(parts.blocks)
    for mlp in parts.mlps:
        graph = trace.graph
        assert graph[mlp.act].inputs == (mlp.gate or mlp.up,)
        fired = trace[mlp.act].astype(np.float64)
        if mlp.gated is not None:
            np.testing.assert_allclose(trace[mlp.gated], fired * trace[mlp.up], rtol=1e-4, atol=1e-5)
        assert graph[mlp.out].inputs[0] == (mlp.gated or mlp.act)


def test_what_the_page_is_told_is_there(trace: Trace) -> None:
    facts = trace_json(trace)
    nodes = {node["name"]: node for node in facts["nodes"]}
    for site in facts["sites"]:
        assert all(nodes[name]["facts"]["said"] for name in site["steps"])
        assert {site["V"], site["Z"], *site["steps"]} <= nodes.keys()
    assert {node for concerned in facts["switches"].values() for node in concerned} <= nodes.keys()
    assert set(facts["masks"].values()) <= {site["site"] for site in facts["sites"]}


# ── steps that no other family has ──────────────────────────────────────────────────────────────────────────────────

TEXT = "One day the cat"


@pytest.mark.parametrize("name", ODD)
def test_each_step_is_said_as_it_is(odd: dict[str, Path], name: str) -> None:
    trace = regard.load(odd[name]).trace(TEXT)
    site = trace.graph.sites[1]
    assert [trace.graph[step].op for step in trace.graph.way_to(site.Q or "")] == [
        "linear",
        "normalise",
        "affine",
        "rotate",
    ]
    said = {name.removeprefix(f"{SITE}."): words for name, words in captions(trace, site, 1).items()}
    rows = trace[site.weights][1].sum(-1)
    assert (rows < 0.99).all() == (name == "odd-sink")
    slopes = {"sloped": "S - slopes · (i - j)"}
    if name == "odd-sink":
        slopes = {"distance": "-slopes · (i - j)", "sloped": "S + distance"}
    assert said == slopes | {
        "products": "dot products",
        "shrunk": "divided by √8 = 2.828",
        "capped": "kept within ±3: 3 · tanh(x / 3)",
        "hidden": "later tokens are hidden",
        "looks": "each row sums to 1" if name == "odd" else "softmax(S), sink beside; 5 of 5 rows do not sum to 1",
        "found": "the weighted sum of its values",
    }
    for node in trace.nodes():
        why = trace.why(node, [n - 1 for n in trace.shape(node)])
        assert why.agrees, str(why)


@pytest.mark.parametrize(
    ("place", "node", "instead"),
    [
        (f"{SITE}.scaling", "shrunk", "products"),
        (f"{SITE}.bias", "sloped", "shrunk"),
        (f"{SITE}.cap", "capped", "sloped"),
        (f"{SITE}.norm_q", "norm_q.out", "asked"),
        (f"{SITE}.norm_k", "norm_k.out", "offered"),
        (f"{SITE}.rotary", "asks", "norm_q.out"),
    ],
)
def test_each_step_can_be_off(odd: dict[str, Path], place: str, node: str, instead: str) -> None:
    trace = regard.load(odd["odd-sink"]).trace(TEXT)
    edited = trace.edit({place: "off"})
    np.testing.assert_array_equal(edited[f"{SITE}.{node}"], edited[f"{SITE}.{instead}"])
    assert not np.allclose(edited["logits"], trace["logits"], atol=1e-4)
    site = trace.graph.sites[1]
    if f"{SITE}.{node}" in site.steps:
        off = "not divided (an edit switched the scaling off)" if node == "shrunk" else "an edit switched this step off"
        assert captions(edited, site, 1)[f"{SITE}.{node}"] == off


def test_edits_of_a_mask_and_of_a_residual(odd: dict[str, Path]) -> None:
    trace = regard.load(odd["odd"]).trace(TEXT)
    seen = trace.edit({f"{SITE}.mask": "off"})
    np.testing.assert_array_equal(seen[f"{SITE}.hidden"], seen[f"{SITE}.capped"])
    one = trace.edit({f"{SITE}.mask[3, 1]": "hide"})
    assert np.isneginf(one[f"{SITE}.hidden"][:, 3, 1]).all()
    assert "and 1 more pair" in captions(one, trace.graph.sites[1], 0)[f"{SITE}.hidden"]
    alone = trace.edit({"decoder.1.residual": "off"})  # around both
    added = alone[f"{SITE}.said"] + alone["decoder.1.thinking.thought"]
    np.testing.assert_allclose(alone["decoder.1.out"], added, rtol=1e-6, atol=1e-6)
    changed = trace.edit({f"{SITE}.capped[1, 3, 1]": "set 9", f"{SITE}.sloped[1, 3, 2]": "set 9"})
    said = captions(changed, trace.graph.sites[1], 1)
    for step in ("capped", "sloped"):
        assert said[f"{SITE}.{step}"].endswith("; 1 of 25 numbers changed by an edit")


def test_lenses_and_sheets_of_other_steps(odd: dict[str, Path]) -> None:
    model = regard.load(odd["odd"])
    trace = model.trace(TEXT)
    parts = lens.attribution(trace)
    assert sum(part.value for part in parts.parts) + parts.bias == pytest.approx(parts.total, abs=1e-3)
    assert {part.label for part in parts.parts} >= {f"{SITE}.head.2", "decoder.1.thinking.thought"}
    without = trace.edit({f"{SITE}.head.0": "zero"})
    id = int(trace["logits"][-1].argmax())
    effect = float(np.log(without["probabilities"][-1, id] / trace["probabilities"][-1, id]))
    assert float(lens.ablation(trace)[SITE][0]) == pytest.approx(effect, abs=1e-4)
    assert not lens.contribution(without, SITE, 0).norms.any()
    guess = lens.logit_lens(trace)[-1].top[0]
    assert guess.probability == pytest.approx(float(trace["probabilities"][-1].max()), abs=1e-5)
    with pytest.raises(TaskError, match="no plain scaled dot-product attention"):  # what it asks would not be true
        handout(trace)


@pytest.mark.skipif(NODE is None, reason="there is no Node on this machine")
def test_a_file_with_other_steps_computes_them(odd: dict[str, Path], tmp_path: Path) -> None:
    trace = regard.load(odd["odd-sink"]).trace(TEXT)
    file = Offline(trace, tmp_path, ablate_large=False)
    try:
        for name in trace.nodes():
            got = file.numbers("formula", name)
            np.testing.assert_allclose(got, trace[name], rtol=1e-4, atol=2e-5, err_msg=name)
        edits = {f"{SITE}.cap": "off"}
        file.ask("fork", ["plain", edits])
        (id,) = [each["trace"] for each in file.ask("fork", ["plain", edits])]
        edited = trace.edit(edits)
        np.testing.assert_allclose(file.numbers("slice", id, "logits"), edited["logits"], rtol=1e-3, atol=1e-3)
    finally:
        file.close()
