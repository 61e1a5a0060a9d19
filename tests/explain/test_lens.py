"""Each way of looking, on a network whose answer is known; then its laws, for every family."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import by_hand
import regard
import tiny
from arrays import close, equal
from regard.errors import NotFound, TaskError
from regard.explain.lens import (
    ablation,
    attention_rollout,
    attribution,
    contribution,
    gradient_times_input,
    head_scores,
    logit_lens,
)
from regard.explain.lens.single_token import rows_of_token
from regard.model.build import module_of
from regard.nn.block import PreNorm
from regard.nn.mlp import GatedMLP
from regard.nn.operation import Symbol

IDS, TARGET = [7, 9, 12, 40, 33, 8, 9, 21, 15, 6], [2, 11, 30, 8, 44, 5]
FAMILIES = [
    name for name in (*tiny.MODELS, *tiny.NATIVE) if name not in ("bert", "gru")
]  # all that have logits and heads
LINEAR = [
    "gpt2",
    "gpt2-untied",
    "llama-gqa-tied",
    "mistral",
    "bert-tag",
    "bart",
    "mbart",
    "marian",
    "vaswani",
    "vaswani-pre",
]


def traced(model):
    return model.trace(IDS, TARGET if model.spec.kind == "encoder-decoder" else None)


# ── heads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_previous_token_head_and_a_uniform_head():
    trace = by_hand.look(by_hand.previous_and_uniform(), [0, 1, 2, 3])
    scores: Any = head_scores(trace)["decoder.0.attention"]
    back, uniform = scores.previous.tolist()
    assert back == pytest.approx(1, abs=1e-4)
    assert uniform == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert scores.entropy[0] == pytest.approx(0, abs=1e-2)
    assert scores.entropy[1] == pytest.approx((math.log2(1) + math.log2(2) + math.log2(3) + math.log2(4)) / 4)
    assert scores.first.tolist() == pytest.approx([1 / 3, (1 / 2 + 1 / 3 + 1 / 4) / 3], abs=1e-4)
    assert scores.induction is None  # nothing is repeated


def test_an_induction_pair_completes_a_repetition():
    """· a b c d a: the second layer looks at the b that followed the first a, and says b."""
    trace = by_hand.look(by_hand.induction_pair(), [5, 0, 1, 2, 3, 0, 1, 2])
    scores: Any = head_scores(trace)
    assert scores["decoder.0.attention"].previous[0] > 0.99
    assert scores["decoder.1.attention"].induction[0] > 0.99
    assert scores["decoder.0.attention"].induction[0] < 0.01
    assert trace.tensor("decoder.1.attention.weights")[0, 5].argmax() == 2
    assert trace.tensor("logits").argmax(-1)[5:].tolist() == [1, 2, 3]


def test_induction_takes_each_earlier_occurrence_and_never_the_token_itself():
    trace = by_hand.look(by_hand.previous_and_uniform(), [0, 0, 1, 0])
    # query 1: what follows the first 0 is query 1 itself, so there is no occasion; query 3 looks at keys 1 and 2
    scores: Any = head_scores(trace)["decoder.0.attention"]
    assert scores.induction[1] == pytest.approx(2 / 4)


def test_cross_attention_has_no_previous_token_or_induction_score(saved):
    scores: Any = head_scores(traced(regard.load(saved("bart"))))
    cross: Any = scores["decoder.1.cross"]
    assert cross.previous is None
    assert cross.induction is None
    assert cross.entropy.shape == cross.first.shape == (2,)
    assert scores["encoder.0.attention"].previous.shape == (3,)


# ── flow ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rollout_of_uniform_layers():
    one = by_hand.look(by_hand.silent(2, 2, layers=1), [0, 1])
    two = by_hand.look(by_hand.silent(2, 2, layers=2), [0, 1])
    assert attention_rollout(one).tolist() == [[1, 0], [0.25, 0.75]]
    assert attention_rollout(two).tolist() == [[1, 0], [0.4375, 0.5625]]
    assert attention_rollout(two, layer=0).tolist() == [[1, 0], [0.25, 0.75]]
    assert equal(attention_rollout(two, layer=1), attention_rollout(two))
    for layer in (-1, 2):
        with pytest.raises(NotFound, match="0 to 1"):
            attention_rollout(two, layer=layer)


def test_rollout_of_either_stack(saved):
    trace = traced(regard.load(saved("bart")))
    assert attention_rollout(trace).shape == (len(IDS), len(IDS))
    mixed = attention_rollout(trace, "decoder")
    assert mixed.shape == (len(TARGET) + 1, len(TARGET) + 1)  # the start token comes first
    close(mixed.sum(-1), torch.ones(len(TARGET) + 1))
    assert not np.triu(mixed, 1).any()
    with pytest.raises(NotFound, match="encoder and decoder"):
        attention_rollout(trace, "middle")


def test_weight_is_not_contribution():
    """Both tokens are looked at alike, but the second one's value is nothing."""
    net = by_hand.silent(3, 2)
    by_hand.put(net.embed.tokens.weight, torch.tensor([[1.0, -1, 0], [0, 1, -1]]))
    by_hand.put(net.decoder[0].attention.W_v.weight, torch.diag(torch.tensor([1.0, 0, 0])))
    by_hand.put(net.decoder[0].attention.W_o.weight, 2 * torch.eye(3))
    look = contribution(by_hand.look(net, [0, 1]), "decoder.0.attention", 0)
    length = 2 * math.sqrt(1.5)  # the norm of (1, -1, 0) is (√1.5, -√1.5, 0)
    assert look.weights.tolist() == [[1, 0], [0.5, 0.5]]
    assert look.norms.tolist() == [pytest.approx([length, 0]), pytest.approx([length / 2, 0])]
    assert look.disagreement == pytest.approx(0.25)  # none in the first row, ½ in the second


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "bart"])
def test_contributions_of_all_heads_and_keys_sum_to_the_output_of_attention(name, saved):
    trace = traced(regard.load(saved(name)))
    site = trace.graph.sites[-1]
    look = contribution(trace, site.site, 1)
    A, V = trace.tensor(f"{site.site}.weights")[1], trace.tensor(f"{site.site}.V")
    V = V.repeat_interleave(site.heads // len(V), 0)[1]
    d_k = V.shape[-1]
    W_o = trace.tensor(f"{site.site}.W_o.weight")[d_k : 2 * d_k]
    each = A[:, :, None] * (V @ W_o)[None]  # (N, T, d)
    close(look.norms, each.norm(dim=-1), rtol=1e-4, atol=1e-6)


def test_there_is_no_such_site_or_head(saved):
    trace = traced(regard.load(saved("gpt2")))
    with pytest.raises(NotFound, match=r"decoder\.0\.attention"):
        contribution(trace, "decoder.0.cross", 0)
    with pytest.raises(NotFound, match="0 to 2"):
        contribution(trace, "decoder.0.attention", 3)


# ── saying it early ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_logit_lens_before_and_after_the_only_block():
    embed, block = logit_lens(by_hand.look(by_hand.echo(), [0, 0]))
    assert (embed.node, block.node) == ("embed.out", "decoder.0.out")
    assert embed.top[0].probability == pytest.approx(1 / (1 + math.exp(-1)))  # logits (1, 0)
    assert block.top[0].probability == pytest.approx(1 / (1 + math.exp(-3)))  # logits (2, -1)
    assert [guess.id for guess in block.top] == [0, 1]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_last_row_of_the_logit_lens_is_the_models_prediction(name, saved):
    trace = traced(regard.load(saved(name)))
    rows = logit_lens(trace, 3, most=4)
    said = trace.tensor("probabilities")
    p, ids = (said[3] if said.dim() == 2 else said).double().topk(min(4, said.shape[-1]))
    assert [guess.id for guess in rows[-1].top] == ids.tolist()
    assert [guess.probability for guess in rows[-1].top] == pytest.approx(p.tolist(), abs=1e-4)
    stack = trace.spec.decoder or trace.spec.encoder
    assert len(rows) == stack.n_layers + 1


# ── who said it ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_attribution_of_the_echo():
    """logit 0 = 1 from the embedding + 1 from the head; logit 1 = 0 - 1."""
    trace = by_hand.look(by_hand.echo(), [0, 0])
    said = attribution(trace, 1, 0)
    assert {part.label: part.value for part in said.parts} == pytest.approx(
        {"embed.tokens": 1, "embed.positions": 0, "decoder.0.head.0": 1, "decoder.0.mlp": 0}
    )
    assert (said.total, said.bias) == pytest.approx((2, 0))
    against = attribution(trace, 1, 1)
    assert {part.label: part.value for part in against.parts}["decoder.0.head.0"] == pytest.approx(-1)


def test_attribution_holds_the_last_norm_at_its_scale():
    """(2, -1) has mean ½ and σ = 1.5: under a last norm the embedding's (1, 0) gives ½/1.5, the head's (1, -1) 1/1.5."""
    net, last = by_hand.silent(2, 2, final_norm=True), by_hand.echo()
    net.load_state_dict({**net.state_dict(), **last.state_dict()})
    by_hand.put(net.final_norm.bias, torch.tensor([0.25, 0.0]))
    said = attribution(by_hand.look(net, [0, 0]), 1, 0)
    values = {part.label: part.value for part in said.parts}
    assert values["embed.tokens"] == pytest.approx(0.5 / 1.5)
    assert values["decoder.0.head.0"] == pytest.approx(1 / 1.5)
    assert (said.bias, said.total) == pytest.approx((0.25, 1.25))


def test_attribution_finds_the_induction_head():
    trace = by_hand.look(by_hand.induction_pair(), [5, 0, 1, 2, 3, 0, 1, 2])
    said = attribution(trace, 5)
    assert said.id == 1
    assert max(said.parts, key=lambda part: part.value).label == "decoder.1.head.0"


@pytest.mark.parametrize("name", LINEAR)
def test_the_parts_sum_to_the_logit(name, saved):
    """Through norms before and after, shared heads, cross attention, and the biases."""
    trace = traced(regard.load(saved(name)))
    for token, id in ((0, 4), (3, None), (-1, 2)):
        said = attribution(trace, token, id)
        assert sum(part.value for part in said.parts) + said.bias == pytest.approx(said.total, rel=1e-4, abs=1e-4)
        assert said.total == float(trace.tensor("logits")[token, said.id])
    labels = [part.label for part in said.parts]
    assert len(labels) == len(set(labels))
    heads = sum(site.heads for site in trace.graph.sites if site.stack in said.parts[-1].node)
    assert sum(".head." in label for label in labels) == heads


@pytest.mark.parametrize(
    "edits",
    [
        {"decoder.0.attention.head.1": "zero"},
        {"decoder.1.residual_1": "off"},
        {"final_norm": "off"},
        {"decoder.1.mlp.neuron.3": "scale 9", "decoder.0.H[2]": "mean"},
    ],
)
def test_the_parts_of_an_edited_run_sum_too(edits, saved):
    trace = traced(regard.load(saved("gpt2"))).edit(edits)
    said = attribution(trace, 3)
    assert sum(part.value for part in said.parts) + said.bias == pytest.approx(said.total, rel=1e-4, abs=1e-4)


# what is made for one token alone is what the run made for all


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("token", [0, 3, 5])
def test_rows_of_one_token_are_those_of_the_whole_run(name, token, saved):
    trace = traced(regard.load(saved(name)))
    rows = rows_of_token(trace, token)
    blocks = {f"{site.stack}.{site.layer}" for site in trace.graph.sites if site.stack == trace.graph.sites[-1].stack}
    assert {f"{block}.{node}" for block in blocks for node in ("attention.Z", "H", "mlp.out")} <= set(rows)
    asked = [node for node in rows if "cross.K" not in node and "cross.V" not in node]
    for node in asked:
        among_all = trace.tensor(node)[..., token, :]  # of weights as long as what may be seen
        close(rows[node], among_all[..., : rows[node].shape[-1]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LINEAR)
def test_attribution_is_that_of_the_whole_run(name, saved, monkeypatch):
    """The definition: each part's row from a run of all tokens, times the direction of the logit."""
    trace = traced(regard.load(saved(name)))
    quick = attribution(trace, 2)
    monkeypatch.setitem(attribution.__globals__, "alone", lambda trace, token: {})
    slow = attribution(trace, 2)
    assert [(part.label, part.node) for part in quick.parts] == [(part.label, part.node) for part in slow.parts]
    assert [part.value for part in quick.parts] == pytest.approx([part.value for part in slow.parts], abs=1e-5)
    assert (quick.id, quick.bias, quick.total) == (slow.id, pytest.approx(slow.bias, abs=1e-5), slow.total)


MLP_RUN = GatedMLP.forward


def test_no_other_token_goes_through_the_mlp(saved, monkeypatch):
    trace = traced(regard.load(saved("llama-gqa-tied")))
    seen, run = {}, MLP_RUN

    def watched(mlp, X):
        seen[mlp.place] = (Y := run(mlp, X)).shape
        return Y

    monkeypatch.setattr(GatedMLP, "forward", watched)
    attribution(trace, 4)
    assert set(seen.values()) == {(1, trace.spec.d)}
    assert len(seen) == trace.spec.decoder.n_layers


def test_an_edited_block_is_not_run_for_one_token():
    trace = by_hand.look(by_hand.induction_pair(), [5, 0, 1, 2, 3, 0, 1, 2]).edit({"decoder.0.H[2]": "mean"})
    rows = rows_of_token(trace, 5)
    assert rows
    assert all(node.startswith("decoder.1.") for node in rows)
    assert rows_of_token(trace.edit({"decoder.*.H[2]": "mean"}), 5) == {}


def test_attribution_is_refused_after_the_weights_changed():
    net = by_hand.echo()
    trace = by_hand.look(net, [0, 0])
    by_hand.put(net.decoder[0].attention.W_v.weight, 3 * torch.eye(2))
    with pytest.raises(TaskError, match="have changed"):
        attribution(trace)


@pytest.mark.parametrize(
    ("name", "where"), [("bert-mlm", "head.act"), ("bert-classify", "pooler.out"), ("gru", "decoder.out")]
)
def test_a_nonlinear_head_has_no_attribution(name, where, saved):
    with pytest.raises(TaskError, match=where):
        attribution(traced(regard.load(saved(name))), 3)


# ── what it depends on ──────────────────────────────────────────────────────────────────────────────────────────────


def test_ablation_of_the_echo():
    """Without the head the logits are (1, 0) instead of (2, -1)."""
    effect = ablation(by_hand.look(by_hand.echo(), [0, 0]))["decoder.0.attention"]
    assert effect.tolist() == pytest.approx([-math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-3))])


@pytest.mark.parametrize("name", FAMILIES)
def test_ablation_is_an_edit_for_each_head(name, saved):
    trace = traced(regard.load(saved(name)))
    effects = ablation(trace, 3)
    row = (3,) if trace.tensor("logits").dim() == 2 else ()
    id = int(trace.tensor("logits")[row].argmax())
    for site in (trace.graph.sites[0], trace.graph.sites[-1]):
        for head in range(site.heads):
            without = trace.edit({f"{site.site}.head.{head}": "zero"})
            expected = (
                without.tensor("logits")[row].log_softmax(-1)[id] - trace.tensor("logits")[row].log_softmax(-1)[id]
            )
            assert float(effects[site.site][head]) == pytest.approx(float(expected), abs=1e-4)
    assert list(effects) == [site.site for site in trace.graph.sites]
    last = trace.graph.sites[-1].site
    assert equal(ablation(trace, 3, sites=[last])[last], effects[last])


def test_ablation_of_an_edited_run_keeps_its_edits(saved):
    edits = {"decoder.1.norm_1": "off", "decoder.0.attention.mask[4, 1]": "hide", "logits[4, 3]": "scale 2"}
    trace = traced(regard.load(saved("gpt2"))).edit(edits)
    effect = ablation(trace, 4)["decoder.1.attention"][2]
    id = int(trace.tensor("logits")[4].argmax())
    without = trace.edit({**edits, "decoder.1.attention.head.2": "zero"})
    expected = without.tensor("logits")[4].log_softmax(-1)[id] - trace.tensor("logits")[4].log_softmax(-1)[id]
    assert float(effect) == pytest.approx(float(expected), abs=1e-4)


def test_gradient_times_input_where_nothing_mixes():
    """The logits are the embedding itself: the token answers for its own, and no other token speaks."""
    net = by_hand.silent(2, 2)
    by_hand.put(net.embed.tokens.weight, torch.tensor([[3.0, 0], [0, 5]]))
    by_hand.put(net.unembed.weight, torch.eye(2))
    trace = by_hand.look(net, [0, 1, 1])
    assert gradient_times_input(trace, 1).source.tolist() == [0, 5, 0]
    assert gradient_times_input(trace, 1, 0).source.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gradient_predicts_a_small_change(name, saved):
    """Scale one embedding by 1 ± ε: the logit moves by 2 ε times that token's share."""
    trace = traced(regard.load(saved(name)))
    share: Any = gradient_times_input(trace, 3)
    epsilon = 1e-2
    row = (3, share.id) if trace.tensor("logits").dim() == 2 else (share.id,)
    both = trace.spec.kind == "encoder-decoder"
    for place, value in [("encoder.token.2" if both else "token.2", share.source[2])] + (
        [("decoder.token.1", share.target[1])] if both else []
    ):
        up, down = (trace.edit({place: {"scale": 1 + sign * epsilon}}).tensor("logits")[row] for sign in (1, -1))
        assert float((up - down) / (2 * epsilon)) == pytest.approx(float(value), rel=0.02, abs=0.02)


@pytest.mark.parametrize("name", ["gpt2", "mistral", "bert-tag", "bart"])
def test_the_gradient_is_that_of_the_whole_run(name, saved):
    """The definition: all tokens through the network, one logit, back to every embedding."""
    trace = traced(regard.load(saved(name)))
    leaves = {}

    def watch(node, x):
        if node.endswith("embed.tokens"):
            x = leaves[node] = x.detach().requires_grad_()
        elif node == "logits":
            leaves[node] = x
        return x

    trace.run.forward(watch, torch.tensor, module_of(trace.run.net))
    logits = leaves.pop("logits")
    share = gradient_times_input(trace, 2)
    grads = torch.autograd.grad(logits[2, share.id], list(leaves.values()))
    shares = [(x * g).sum(-1).detach() for x, g in zip(leaves.values(), grads, strict=True)]
    for mine, whole in zip((share.source, share.target), shares, strict=False):
        close(mine, whole, rtol=1e-4, atol=1e-6)


def test_tokens_after_the_causal_prefix_are_not_run(saved, monkeypatch):
    lengths, run = [], PreNorm.forward
    trace = traced(regard.load(saved("gpt2")))

    def watched(block, X, **where):
        if block.place == "decoder.0" and not isinstance(X, Symbol):
            lengths.append(X.shape[-2])
        return run(block, X, **where)

    monkeypatch.setattr(PreNorm, "forward", watched)
    assert gradient_times_input(trace, 3).source[4:].tolist() == [0] * 6
    ablation(trace, 5, sites=["decoder.0.attention"])
    ablation(trace.edit({"decoder.0.H[9]": "zero"}), 5, sites=["decoder.0.attention"])
    assert lengths[0] == 4
    assert lengths[1] == 6
    assert lengths[-1] == 10  # an edit may be of any token


def test_after_generating_there_is_still_a_gradient(saved):
    """Laying the weights out for decoding leaves them fit for a backward pass."""
    model = regard.load(saved("llama"))
    model.answers(IDS, max_new_tokens=2, temperature=0.0)
    assert gradient_times_input(model.trace(IDS[:4])).source.any()


# ── where it makes no sense ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_without_a_head_has_no_answer(saved):
    trace = traced(regard.load(saved("bert")))
    for lens in (logit_lens, attribution, ablation, gradient_times_input):
        with pytest.raises(TaskError, match="no head"):
            lens(trace)
    assert len(head_scores(trace)) == 3


def test_a_recurrent_network_has_weights_but_no_layers(saved):
    trace = traced(regard.load(saved("gru")))
    assert head_scores(trace)["decoder.cross"].entropy.shape == (1,)
    target = gradient_times_input(trace).target
    assert target is not None
    assert target.shape == (len(TARGET) + 1,)
    for lens in (logit_lens, attention_rollout, ablation):
        with pytest.raises(TaskError, match="recurrent"):
            lens(trace)
    with pytest.raises(NotFound, match="none in this model"):
        contribution(trace, "decoder.cross", 0)


def test_tokens_and_ids_out_of_range_are_refused(saved):
    trace = traced(regard.load(saved("gpt2")))
    with pytest.raises(NotFound, match="0 to 9"):
        logit_lens(trace, 10)
    with pytest.raises(NotFound, match="the last is 70"):
        attribution(trace, 0, 71)


def test_edited_logits_have_no_attribution(saved):
    trace = traced(regard.load(saved("gpt2"))).edit({"logits[3, 5]": "set 40"})
    with pytest.raises(TaskError, match="themselves were edited"):
        attribution(trace, 3)
