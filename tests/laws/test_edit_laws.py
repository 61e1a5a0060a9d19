"""An edit that changes nothing changes nothing; an edited run is the run of a network that was changed by hand."""

import copy
from types import MethodType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import regard
import tiny
from regard.explain.trace import trace
from regard.nn.attention import MultiHead
from regard.nn.mask import EVERYTHING
from regard.nn.see import Part, watching

IDS, TARGET = [7, 9, 12, 40, 33, 8, 21], [2, 11, 30, 8, 44]
CLOSE = 5e-5
FAMILIES = ["gpt2", "llama-gqa-tied", "mistral", "bert-mlm", "bart", "mbart", "vaswani"]


def traced(model):
    return trace(model.net, IDS, None, TARGET if model.spec.kind == "encoder-decoder" else None)


@pytest.fixture(params=FAMILIES)
def model(request, saved):
    return regard.load(saved(request.param))


@torch.no_grad()
def logits(net, watcher=lambda name, x: x):
    """Watched, so that the readable definition runs; by default unchanged."""
    ids = torch.tensor([IDS])
    with watching(watcher):
        return (net(ids, torch.tensor([TARGET])) if net.spec.kind == "encoder-decoder" else net(ids))[0]


@pytest.mark.parametrize("name", [*(name for name in tiny.MODELS if name != "bart-classify"), "vaswani-pre", "gru"])
def test_an_edit_that_changes_nothing_changes_nothing(name, saved):
    plain = traced(regard.load(saved(name)))
    shown_only = ("probabilities", "decoder.cross.", "decoder.states") if name == "gru" else ("probabilities",)
    same = plain.edit({name: "scale 1" for name in plain.nodes() if not name.startswith(shown_only)})
    assert all(torch.equal(same[node], plain[node]) for node in plain.nodes())
    assert all(each.change == 0 for each in plain.compare(same).nodes())


def test_taking_an_edit_back_is_the_plain_run(model):
    plain, layer = traced(model), list(model.spec.stacks)[-1] + ".1"
    edited = plain.edit({f"{layer}.attention.head.0": "zero"})
    again = edited.edit({})
    assert all(torch.equal(again[node], plain[node]) for node in plain.nodes())


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "bart", "gru"])
def test_editing_any_slice_is_replacing_it_when_it_is_seen(name, saved):
    """A node, a slice of it and a factor, whatever they are."""
    plain = traced(regard.load(saved(name)))
    nodes = [
        n for n in plain.nodes() if n != "probabilities" and not n.startswith(("decoder.cross.", "decoder.states"))
    ]

    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def check(data):
        node, factor = data.draw(st.sampled_from(nodes)), data.draw(st.sampled_from([-1.5, 0.0, 0.5, 2.0]))
        entries = [data.draw(st.none() | st.integers(-n, n - 1)) for n in plain.shape(node)]
        index = tuple(slice(None) if i is None else i for i in entries)

        def replace(seen, x):
            if seen == node:
                x = x.clone()
                x[0][index] *= factor
            return x

        words = ", ".join(":" if i is None else str(i) for i in entries)
        edited = plain.edit({f"{node}[{words}]": {"scale": factor}})
        torch.testing.assert_close(edited["logits"], logits(plain.net, replace), rtol=0, atol=CLOSE, equal_nan=True)

    check()


class Same(Part):
    def forward(self, X):
        return X


def without_head(block):
    block.attention.W_o.weight[:, block.attention.d_k : 2 * block.attention.d_k] = 0


def without_neuron(block):
    block.mlp.down.weight[:, 5] = 0


def without_scaling(block):
    block.attention.scale = 1.0


def without_norm(block):
    block.norm_1 = Same()


def without_mask(block):
    def forward(self, X, mask=None, **where):
        return MultiHead.forward(self, X, EVERYTHING, **where)

    block.attention.forward = MethodType(forward, block.attention)


def without_residual(block):
    """What attention is given is taken off again where it is added."""
    attention = block.attention
    inner, norm = attention.forward, block.norm_1
    given = []

    def note(self, X):
        given.append(X)
        return type(norm).forward(self, X)

    def forward(self, X, **where):
        return inner(X, **where) - (given.pop() if given else X)

    if "Pre" in type(block).__name__:
        norm.forward = MethodType(note, norm)
    attention.forward = MethodType(forward, attention)


@pytest.mark.parametrize(
    ("place", "by_hand"),
    [
        ("attention.head.1", without_head),
        ("mlp.neuron.5", without_neuron),
        ("attention.scaling", without_scaling),
        ("norm_1", without_norm),
        ("residual_1", without_residual),
        ("attention.mask", without_mask),
    ],
)
def test_editing_is_rerunning_a_network_changed_by_hand(model, place, by_hand):
    stack = list(model.spec.stacks)[-1]
    if place.endswith("mask") and stack == "encoder":
        pytest.skip("an encoder has no mask; that it is refused is tested with the other refusals")
    net = copy.deepcopy(model.net)
    with torch.no_grad():
        by_hand(net.get_submodule(f"{stack}.1"))
    edited = traced(model).edit({f"{stack}.1.{place}": "off"})
    torch.testing.assert_close(edited["logits"], logits(net), rtol=0, atol=CLOSE)
    assert (edited["logits"] - logits(model.net)).abs().max() > 100 * CLOSE


def test_a_token_off_is_an_empty_row_of_the_embedding(model):
    net = copy.deepcopy(model.net)
    both = model.spec.kind == "encoder-decoder"
    embed = net.encoder.embed if both else net.embed
    embed.tokens.weight = nn.Parameter(embed.tokens.weight.detach().clone())  # not the unembedding's any more
    with torch.no_grad():
        embed.tokens.weight[IDS[3]] = 0
    edited = traced(model).edit({"encoder.token.3" if both else "token.3": "zero"})
    torch.testing.assert_close(edited["logits"], logits(net), rtol=0, atol=CLOSE)


def test_positions_off_is_a_network_without_positions(model):
    net = copy.deepcopy(model.net)
    for side in (net.encoder, net.decoder) if model.spec.kind == "encoder-decoder" else (net,):
        side.rotary = side.embed.positions = None
    edited = traced(model).edit({"positions": "off"})
    torch.testing.assert_close(edited["logits"], logits(net), rtol=0, atol=CLOSE)
