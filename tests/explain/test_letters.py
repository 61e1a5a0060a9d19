"""The lectures' letters follow from a node's role in the graph, not from its name."""

import pytest

import odd_family
import regard
from regard.explain.letters import letters
from regard.explain.show import show
from regard.model.graph import Graph
from regard.model.registry import spec_of
from regard.model.spec import Spec
from regard.model.wiring import wiring

SITE = {
    "asked": "Q",
    "offered": "K",
    "told": "V",
    "asks": "Q′",
    "offers": "K′",
    "products": "QKᵀ",
    "shrunk": "S",
    "sloped": "S",
    "capped": "S",
    "hidden": "S",
    "looks": "A",
    "found": "Z",
    "said": "M",
    "W_q.weight": "W_q",
    "W_o.weight": "W_o",
    "slopes": "slopes",
}


def odd_spec(monkeypatch: pytest.MonkeyPatch, *, sink: bool = False) -> Spec:
    odd_family.known(monkeypatch)
    return spec_of(odd_family.CONFIG | {"sink": sink})


def test_a_family_with_its_own_node_names_gets_the_lectures_letters(monkeypatch):
    found = letters(Graph(odd_spec(monkeypatch), 5))
    for layer in (0, 1):
        assert {name: found[f"decoder.{layer}.looking.{name}"] for name in SITE} == SITE
    norm = {"weight": "γ", "bias": "β", "mean": "μ", "variance": "σ²", "normalised": "x̂", "out": "before.out"}
    assert {name: found[f"decoder.1.before.{name}"] for name in norm} == norm
    assert found["decoder.0.looking.norm_q.mean_square"] == "ms"
    assert found["embed.tokens.weight"] == "E"
    assert found["rotary.theta"] == "θ"


def test_a_bias_that_is_added_to_scores_is_no_score(monkeypatch):
    found = letters(Graph(odd_spec(monkeypatch, sink=True), 5))
    assert found["decoder.0.looking.distance"] == "distance"
    assert found["decoder.0.looking.sloped"] == "S"
    assert found["decoder.0.looking.looks"] == "A"


def test_formulas_are_written_in_the_letters(monkeypatch, tmp_path):
    listing = show(odd_spec(monkeypatch))
    assert " Q′ K′ᵀ\n" in listing
    assert " x̂ ⊙ γ + β\n" in listing
    assert " [Z₁ … Zₕ] W_o\n" in listing
    trace = regard.load(odd_family.make(tmp_path)).trace([7, 9, 12, 40])
    why = trace.why("decoder.1.looking.found", (2, 3, 1))
    assert why.symbols == "Z[2, 3, 1] = Σ_j A[2, 3, j] · V[2, j, 1]"
    assert why.latex.startswith("{Z}_{2,3,1} = \\sum_{j} {A}_{2,3,j} {V}_{2,j,1} = ")
    assert trace.why("decoder.1.looking.W_q.weight", (0, 1)).symbols == "W_q[0, 1]"


@pytest.mark.parametrize("name", ["gpt2", "bert", "bart", "llama-gqa-tied"])
def test_sums_of_a_block_are_called_by_what_is_added(saved, name):
    trace = regard.load(saved(name)).trace([7, 9, 12], [3, 22] if name == "bart" else None)
    found, blocks = letters(trace.graph), wiring(trace.graph).blocks
    sums = [found[each.node] for each in blocks[-1].sums if each.node != blocks[-1].out]
    assert sums == {"gpt2": ["H"], "bert": ["H", "H_2"], "bart": ["H", "C", "H_2"], "llama-gqa-tied": ["H"]}[name]


def test_several_biases_of_one_node_keep_their_names(saved):
    found = letters(regard.load(saved("gru")).trace([7, 9, 12], [3, 22]).graph)
    assert found["decoder.cell.bias_ih"] == "bias_ih"
    assert found["decoder.cell.bias_hh"] == "bias_hh"
    assert found["decoder.first.bias"] == "b"
    assert found["decoder.cross.scores"] == "S"
    assert found["encoder.reader.H"] == "H"
