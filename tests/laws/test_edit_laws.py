"""An edit that changes nothing changes nothing; an edited run is the run of a network that was changed by hand."""

import copy
from types import MethodType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import regard
import tiny
from arrays import close, equal
from regard.explain.trace import trace
from regard.model.build import module_of
from regard.model.module import as_module
from regard.nn.part import Part
from regard.nn.see import watching

IDS, TARGET = [7, 9, 12, 40, 33, 8, 21], [2, 11, 30, 8, 44]
CLOSE = 5e-5
FAMILIES = ["gpt2", "llama-gqa-tied", "mistral", "bert-mlm", "bart", "mbart", "vaswani"]


def traced(model):
    return trace(model.reference, IDS, None, TARGET if model.spec.kind == "encoder-decoder" else None)


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
    shown_only = {"probabilities", *plain.graph.observe_only}
    same = plain.edit({name: "scale 1" for name in plain.nodes() if name not in shown_only})
    assert all(equal(same.tensor(node), plain.tensor(node)) for node in plain.nodes())
    assert all(each.change == 0 for each in plain.compare(same).nodes())


def test_taking_an_edit_back_is_the_plain_run(model):
    plain, layer = traced(model), list(model.spec.stacks)[-1] + ".1"
    edited = plain.edit({f"{layer}.attention.head.0": "zero"})
    again = edited.edit({})
    assert all(equal(again.tensor(node), plain.tensor(node)) for node in plain.nodes())


def test_a_hidden_score_times_nothing_is_not_a_number(saved):
    """Without a warning of numpy's, whose reader has never heard of numpy."""
    plain = traced(regard.load(saved("gpt2")))
    edited = plain.edit({"decoder.1.attention.masked": {"scale": 0.0}})
    assert np.array_equal(
        np.isnan(edited["decoder.1.attention.masked"]), np.isneginf(plain["decoder.1.attention.masked"])
    )


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "bart", "gru"])
def test_editing_any_slice_is_replacing_it_when_it_is_seen(name, saved):
    """A node, a slice of it and a factor, whatever they are."""
    plain = traced(regard.load(saved(name)))
    nodes = [n for n in plain.nodes() if n != "probabilities" and n not in plain.graph.observe_only]

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
        expected = logits(module_of(plain.run.net), replace).numpy()
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)  # a norm that divides by √ε makes thousands
        close(edited["logits"], expected, rtol=0, atol=CLOSE * largest, equal_nan=True)

    check()


class Same(Part):
    def forward(self, X):
        return X


def without_head(block):
    block.attention.W_o.weight[:, block.attention.d_k : 2 * block.attention.d_k] = 0


def without_neuron(block):
    block.mlp.down.weight[:, 7] = 0


def without_scaling(block):
    block.attention.scale = 1.0


def without_norm(block):
    block.norm_1 = as_module(Same())


def without_mask(block):
    block.attention.causal, block.attention.window = False, None


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
        ("mlp.neuron.7", without_neuron),
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
    close(edited.tensor("logits"), logits(net), rtol=0, atol=CLOSE)
    assert (edited.tensor("logits") - logits(model.net)).abs().max() > 100 * CLOSE


def test_a_token_off_is_an_empty_row_of_the_embedding(model):
    net = copy.deepcopy(model.net)
    both = model.spec.kind == "encoder-decoder"
    embed = net.encoder.embed if both else net.embed
    embed.tokens.weight = nn.Parameter(embed.tokens.weight.detach().clone())  # not the unembedding's any more
    with torch.no_grad():
        embed.tokens.weight[IDS[3]] = 0
    edited = traced(model).edit({"encoder.token.3" if both else "token.3": "zero"})
    close(edited.tensor("logits"), logits(net), rtol=0, atol=CLOSE)


def test_positions_off_is_a_network_without_positions(model):
    net = copy.deepcopy(model.net)
    for side in (net.encoder, net.decoder) if model.spec.kind == "encoder-decoder" else (net,):
        side.rotary = side.embed.positions = None
    edited = traced(model).edit({"positions": "off"})
    close(edited.tensor("logits"), logits(net), rtol=0, atol=CLOSE)


@pytest.mark.parametrize(
    "name", [name for name in (*tiny.MODELS, *tiny.NATIVE) if name not in ("bart-classify", "gru")]
)
def test_hiding_one_entry_leaves_the_others(name, saved):
    plain = traced(regard.load(saved(name)))
    assert len(plain.graph.sites) >= sum(stack.n_layers for stack in plain.spec.stacks.values())
    for site in plain.graph.sites:
        (last,) = plain.graph[f"{site.site}.weights"].inputs
        after, before = plain.edit({f"{site.site}.mask[3, 1]": "hide"})[last], plain[last]
        assert np.isneginf(after[:, 3, 1]).all()
        after, before = after.copy(), before.copy()
        after[:, 3, 1] = before[:, 3, 1] = 0
        assert np.array_equal(after, before), site
