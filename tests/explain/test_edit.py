"""Every place and every what: what becomes of the node itself, what follows from it, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import regard
from arrays import close, equal
from regard.errors import NotFound, RegardError, TaskError
from regard.explain.edit import compile_edits, describe

IDS, TARGET = [7, 9, 12, 40, 33, 8, 21], [11, 30, 8, 44]
AFTER = "logits"


@pytest.fixture(scope="module")
def traces(saved):
    done = {}

    def trace(name):
        if name not in done:
            model = regard.load(saved(name))
            done[name] = model.trace(IDS, TARGET if model.spec.kind == "encoder-decoder" else None)
        return done[name]

    return trace


@pytest.fixture
def gpt(traces):
    return traces("gpt2")


def changed(before, after):
    """The nodes that are not the same any more."""
    return [name for name in before.nodes() if not equal(before.tensor(name), after.tensor(name))]


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["zero", "off", {"set": 0}, "set 0", {"scale": 0}, "scale 0"])
def test_a_head_off_is_its_Z_zero_and_nothing_before_it_changes(gpt, what):
    after = gpt.edit({"decoder.1.attention.head.2": what})
    Z = gpt.tensor("decoder.1.attention.Z")
    Z[2] = 0
    assert equal(after.tensor("decoder.1.attention.Z"), Z)
    assert changed(gpt, after)[0] == "decoder.1.attention.Z"
    assert AFTER in changed(gpt, after)
    assert after.edits == {"decoder.1.attention.head.2": what}


@pytest.mark.parametrize(
    ("place", "node", "at"),
    [
        ("decoder.1.mlp.neuron.17", "decoder.1.mlp.act", (slice(None), 17)),
        ("decoder.1.mlp.neuron.17[3]", "decoder.1.mlp.act", (3, 17)),
        ("token.4", "embed.tokens", 4),
        ("decoder.0.attention.head.1[2, 0:4]", "decoder.0.attention.Z", (1, 2, slice(0, 4))),
        ("decoder.0.attention.weights[2, 1, :]", "decoder.0.attention.weights", (2, 1)),
        ("decoder.0.attention.scores[0, -1]", "decoder.0.attention.scores", (0, -1)),
        ("decoder.2.out[5]", "decoder.2.out", 5),
        ("decoder.0.norm_2.variance", "decoder.0.norm_2.variance", ()),
        ("logits[6, 3]", "logits", (6, 3)),
    ],
)
def test_scaled_targets(gpt, place, node, at):
    after = gpt.edit({place: "scale 2"})
    expected = gpt.tensor(node)
    expected[at] *= 2
    assert equal(after.tensor(node), expected)
    assert changed(gpt, after)[0] == node


def test_the_neuron_of_a_gated_mlp_is_after_its_gate(traces):
    llama = traces("llama-gqa-tied")
    after = llama.edit({"decoder.0.mlp.neuron.5": "zero"})
    assert changed(llama, after)[0] == "decoder.0.mlp.gated"
    assert (after.tensor("decoder.0.mlp.gated")[:, 5] == 0).all()


def test_mean_is_over_tokens(gpt):
    after = gpt.edit({"decoder.0.attention.head.1": "mean", "token.2": "mean", "decoder.2.mlp.act": "mean"})
    Z = after.tensor("decoder.0.attention.Z")[1]
    close(Z, Z.mean(0).expand_as(Z))
    close(after.tensor("embed.tokens")[2], gpt["embed.tokens"].mean(0))
    assert equal(after.tensor("embed.tokens")[3], gpt["embed.tokens"][3])
    act = after.tensor("decoder.2.mlp.act")
    close(act, act[:1].expand_as(act))


def test_set_one_number_or_several(gpt):
    place = "decoder.0.attention.weights[1, 3, :]"
    rows = [0.5, 0.25, 0.25, 0, 0, 0, 0]
    assert gpt.edit({place: {"set": rows}})["decoder.0.attention.weights"][1, 3].tolist() == rows
    after = gpt.edit({place: {"set": rows}})
    V = gpt["decoder.0.attention.V"][1]
    close(after.tensor("decoder.0.attention.Z")[1, 3], V[0] / 2 + V[1] / 4 + V[2] / 4)
    assert (gpt.edit({place: "set 0.3"})["decoder.0.attention.weights"][1, 3] == 0.3).all()


@pytest.mark.parametrize("what", ["swap 1 4", {"swap": [4, 1]}])
def test_swapping_two_words_is_the_other_text(gpt, what):
    """Rows 1 and 4 of the token embeddings: the same as typing the two words the other way round."""
    ids = [7, 33, 12, 40, 9, 8, 21]
    after = gpt.edit({"embed.tokens": what})
    other = regard.explain.trace.trace(gpt.run.net, ids, None)
    close(after.tensor("logits"), other.tensor("logits"))


def test_swap_is_along_the_first_axis_of_the_target(gpt):
    Z = gpt["decoder.0.attention.Z"]
    assert equal(gpt.edit({"decoder.0.attention.Z": "swap 0 2"})["decoder.0.attention.Z"], Z[[2, 1, 0]])
    one = gpt.edit({"decoder.0.attention.head.1": "swap 0 2"})["decoder.0.attention.Z"]
    assert equal(one[1], Z[1][[2, 1, 0, 3, 4, 5, 6]])
    assert equal(one[0], Z[0])


def test_values_patched_from_another_run(traces):
    gpt = traces("gpt2")
    other = regard.explain.trace.trace(gpt.run.net, [7, 9, 12, 41, 33, 8, 21], None)
    patched = gpt.edit({"decoder.1.out": {"from": other}})
    close(patched["logits"], other.tensor("logits"))
    one = gpt.edit({"decoder.0.attention.head.1": {"from": other}})
    assert equal(one.tensor("decoder.0.attention.Z")[1], other.tensor("decoder.0.attention.Z")[1])
    assert equal(one.tensor("decoder.0.attention.Z")[0], gpt["decoder.0.attention.Z"][0])
    shorter = regard.explain.trace.trace(gpt.run.net, [7, 9], None)
    with pytest.raises(TaskError, match=r"\(7, 24\) here and \(2, 24\)"):
        gpt.edit({"decoder.1.out": {"from": shorter}})


def test_several_edits_of_one_node_apply_in_order(gpt):
    after = gpt.edit({"decoder.0.H": "scale 2", "decoder.0.H[1]": "zero", "decoder.0.H[1, 3]": "set 5"})
    expected = gpt["decoder.0.H"] * 2
    expected[1] = 0
    expected[1, 3] = 5
    assert equal(after.tensor("decoder.0.H"), expected)


# ── wildcards ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_star_is_every_layer_or_every_head(gpt):
    heads = {f"decoder.{i}.attention.head.{h}": "zero" for i in range(3) for h in range(3)}
    each = gpt.edit(heads)["logits"]
    assert equal(gpt.edit({"decoder.*.attention.head.*": "zero"})["logits"], each)
    assert equal(gpt.edit({"decoder.*.attention.Z": "zero"})["logits"], each)
    some = gpt.edit({"decoder.*.attention.head.1": "zero"})
    assert all((some[f"decoder.{i}.attention.Z"][1] == 0).all() for i in range(3))
    assert (some["decoder.2.attention.Z"][0] != 0).any()


# ── switches ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_scaling_off_leaves_the_dots(gpt):
    after = gpt.edit({"decoder.1.attention.scaling": "off"})
    assert equal(after.tensor("decoder.1.attention.scores"), gpt["decoder.1.attention.dots"])
    assert changed(gpt, after)[0] == "decoder.1.attention.scores"


def test_mask_off_lets_every_token_see_every_token(gpt):
    after = gpt.edit({"decoder.1.attention.mask": "off"})
    assert equal(after.tensor("decoder.1.attention.masked"), gpt["decoder.1.attention.scores"])
    assert (after.tensor("decoder.1.attention.weights") > 0).all()


def test_entries_of_the_mask(traces):
    gpt = traces("gpt2")
    after = gpt.edit({"decoder.0.attention.mask[3, 1]": "hide", "decoder.0.attention.mask[3, 5]": "show"})
    weights = after.tensor("decoder.0.attention.weights")
    assert (weights[:, 3, 1] == 0).all()
    assert (weights[:, 3, 5] > 0).all()
    assert (weights[:, 3, 4] == 0).all()
    close(weights.sum(-1), torch.ones(3, 7))
    assert equal(weights[:, 4], gpt["decoder.0.attention.weights"][:, 4])


@pytest.mark.parametrize(("name", "site"), [("bert-mlm", "encoder.1.attention"), ("bart", "decoder.0.cross")])
def test_hiding_where_there_is_no_mask(traces, name, site):
    """A column: no query looks at that key. There was nothing to see in the scores before."""
    before = traces(name)
    after = before.edit({f"{site}.mask[:, 2]": "hide"})
    plain = before.tensor(f"{site}.weights").clone()
    plain[:, :, 2] = 0
    close(after.tensor(f"{site}.weights"), plain / plain.sum(-1, keepdim=True))


def test_the_window_of_a_mask_can_be_opened(traces):
    mistral = traces("mistral")  # each sees 5 tokens, itself included
    assert (mistral["decoder.0.attention.weights"][:, 6, 1] == 0).all()
    after = mistral.edit({"decoder.0.attention.mask[6, 1]": "show"})
    assert (after.tensor("decoder.0.attention.weights")[:, 6, 1] > 0).all()
    assert (after.tensor("decoder.0.attention.weights")[:, 6, 0] == 0).all()


@pytest.mark.parametrize(
    ("name", "place", "node", "instead"),
    [
        ("gpt2", "decoder.1.residual_1", "decoder.1.H", "decoder.1.attention.M"),
        ("gpt2", "decoder.1.residual_2", "decoder.1.out", "decoder.1.mlp.out"),
        ("bert-mlm", "encoder.1.residual_2", "encoder.1.H_2", "encoder.1.mlp.out"),
        ("bart", "decoder.1.residual_cross", "decoder.1.C", "decoder.1.cross.M"),
        ("gpt2", "decoder.0.norm_1", "decoder.0.norm_1.out", "embed.out"),
        ("gpt2", "decoder.1.norm_1", "decoder.1.norm_1.out", "decoder.0.out"),
        ("gpt2", "decoder.1.norm_2", "decoder.1.norm_2.out", "decoder.1.H"),
        ("gpt2", "final_norm", "final_norm.out", "decoder.2.out"),
        ("llama", "final_norm", "final_norm.out", "decoder.2.out"),
        ("bert-mlm", "encoder.1.norm_2", "encoder.1.norm_2.out", "encoder.1.H_2"),
        ("bert-mlm", "embed.norm", "embed.norm.out", "embed.sum"),
        ("bert-mlm", "head.norm", "head.norm.out", "head.act"),
        ("mbart", "decoder.1.norm_cross", "decoder.1.norm_cross.out", "decoder.1.H"),
        ("mbart", "encoder.final_norm", "encoder.final_norm.out", "encoder.1.out"),
        ("bart", "decoder.1.norm_cross", "decoder.1.norm_cross.out", "decoder.1.C"),
        ("llama", "decoder.2.attention.rotary", "decoder.2.attention.Q_rotated", "decoder.2.attention.Q"),
        ("llama", "decoder.2.attention.rotary", "decoder.2.attention.K_rotated", "decoder.2.attention.K"),
    ],
)
def test_a_switch_leaves_out_one_step(traces, name, place, node, instead):
    before = traces(name)
    after = before.edit({place: "off"})
    assert equal(after.tensor(node), after[instead])
    assert not equal(before.tensor(node), before[instead])
    assert "logits" in changed(before, after)


@pytest.mark.parametrize("name", ["gpt2", "llama", "marian"])
def test_without_positions_the_order_of_tokens_does_not_matter(traces, name):
    """Words in another order, read without a mask and without positions, are the same words."""
    before = traces(name)
    stack = "encoder" if name == "marian" else "decoder"
    edits = {"positions": "off"} | ({f"{stack}.*.attention.mask": "off"} if stack == "decoder" else {})
    order = [3, 0, 6, 1, 5, 2, 4]
    turned = regard.explain.trace.trace(before.run.net, [IDS[i] for i in order], None, before.target_ids)
    one, other = before.edit(edits).tensor(f"{stack}.1.out"), turned.edit(edits)[f"{stack}.1.out"]
    close(one[order], other, rtol=1e-4, atol=1e-4)
    assert not np.allclose(before[f"{stack}.1.out"][order], turned[f"{stack}.1.out"], atol=1e-2)


def test_positions_of_one_stack(traces):
    marian = traces("marian")
    after = marian.edit({"encoder.positions": "off"})
    assert (after.tensor("encoder.embed.positions") == 0).all()
    assert equal(after.tensor("decoder.embed.positions"), marian["decoder.embed.positions"])
    assert equal(after.tensor("logits"), marian.edit({"encoder.embed.positions": "zero"})["logits"])


def test_edits_of_an_edited_run_add_up(gpt):
    a, b = {"decoder.0.attention.head.1": "zero"}, {"decoder.2.attention.head.0": "scale 2", "token.3": "zero"}
    both, either = gpt.edit(a).edit(b), gpt.edit({**a, **b})
    assert both.edits == {**a, **b}
    assert all(equal(both.tensor(node), either[node]) for node in gpt.nodes())
    assert not equal(both.tensor("logits"), gpt.edit(b)["logits"])
    assert (both.tensor("decoder.0.attention.Z")[1] == 0).all()


def test_a_run_of_other_weights_is_not_edited(saved):
    model = regard.load(saved("gpt2"))
    trace = model.trace(IDS)
    with torch.no_grad():
        net: Any = model.net
        net.decoder[0].mlp.up.weight.mul_(2)
    with pytest.raises(TaskError, match="weights have changed since this run, so it cannot be edited"):
        trace.edit({"decoder.2.H": "zero"})


def test_the_last_edit_of_a_path_counts(gpt):
    once = gpt.edit({"decoder.1.H": "scale 2", "decoder.1.H[3]": "zero"})
    again = once.edit({" decoder.1.H ": "scale 3"})  # after the entry, which was zero
    assert again.edits == {"decoder.1.H[3]": "zero", "decoder.1.H": "scale 3"}
    H = gpt["decoder.1.H"] * 3
    H[3] = 0
    assert equal(again.tensor("decoder.1.H"), H)
    with pytest.raises(TaskError, match="a mapping from paths"):
        once.edit(["token.1"])
    other = once.edit({"decoder.1.H": {"from": gpt}, "decoder.1.H[3]": {"from": gpt}})
    assert equal(other.tensor("logits"), gpt["logits"])


# ── replaying ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edited_run_that_evicts_blocks_gives_the_same_numbers(saved):
    """A block is run again from the spine: an edit of the block before it is not applied a second time."""
    model = regard.load(saved("gpt2"))
    edits = {"decoder.0.out": "scale 2", "decoder.1.norm_1": "off", "decoder.1.attention.scaling": "off"}
    whole = model.trace(IDS).edit(edits)
    spine = sum(whole[name].nbytes for name in whole.nodes() if not name.startswith("decoder"))
    little = regard.explain.trace.trace(model.reference, IDS, None, memory_limit=spine + 20_000).edit(edits)
    for name in reversed(whole.nodes()):
        assert equal(little[name], whole[name]), name
        assert little.nbytes <= little.memory_limit
    assert len(little._cache.inside) == 1  # of three blocks


def test_edits_save_what_they_need_and_change_only_their_nodes(gpt):
    shapes = {name: gpt.shape(name) for name in gpt.nodes()}
    edits = compile_edits(gpt.graph, {"decoder.1.norm_1": "off", "decoder.0.attention.mask": "off"}, shapes)
    assert edits.nodes() == {"decoder.1.norm_1.out", "decoder.0.attention.masked"}
    assert [name for name in shapes if edits.needs(name)] == ["decoder.0.attention.scores", "decoder.0.out"]
    x = np.ones((7, 24), np.float32)
    assert edits("decoder.0.H", x) is x
    assert compile_edits(gpt.graph, {}, shapes).nodes() == frozenset()


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_labels():
    edits = {
        "decoder.2.attention.head.5": "zero",
        "encoder.*.attention.head.1": {"scale": 2},
        "decoder.0.cross.head.3": "mean",
        "decoder.1.mlp.neuron.17": "set 0.3",
        "token.4": "zero",
        "encoder.token.1": "off",
        "decoder.0.attention.mask": "off",
        "decoder.0.attention.mask[3, 1]": "hide",
        "decoder.*.attention.scaling": "off",
        "embed.positions": "off",
        "decoder.0.residual_1": "off",
        "decoder.0.norm_cross": "off",
        "final_norm": "off",
        "decoder.0.attention.weights[3, 1, :]": {"swap": [1, 2]},
        "decoder.0.H[1]": {"set": [1, 2]},
    }
    assert describe(json.loads(json.dumps(edits))) == [
        "head 2.5 off",
        "encoder head *.1 × 2",
        "cross head 0.3 → mean",
        "neuron 1.17 = 0.3",
        "token 4 off",
        "encoder token 1 off",
        "decoder.0 mask off",
        "decoder.0 mask[3, 1] hidden",
        "decoder.* √d_k off",
        "positions off",
        "decoder.0 residual 1 off",
        "decoder.0 norm cross off",
        "final norm off",
        "decoder.0.attention.weights[3, 1, :] 1 ↔ 2",
        "decoder.0.H[1] = (2,) numbers",
    ]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("edits", "sentence"),
    [
        ({"decoder.0.atention.head.1": "zero"}, r"no edit target .*did you mean decoder\.0\.attention\.head\.0"),
        ({"decoder.3.attention.head.1": "zero"}, "no edit target 'decoder.3.attention.head.1'"),
        ({"decoder.*.cross.head.*": "zero"}, "no edit target"),
        ({"decoder.0.attention.head.3": "zero"}, "3 is out of range; axis 0 has 3 entries, 0 to 2"),
        ({"token.7": "zero"}, "0 to 6"),
        ({"encoder.token.1": "zero"}, "no edit target"),
        ({"decoder.0.attention.weights[1, 9]": "zero"}, "9 is out of range; axis 1 has 7 entries"),
        ({"decoder.0.attention.weights[1, 3:9]": "zero"}, "3:9 is out of range"),
        ({"decoder.0.attention.weights[0, 0, 0, 0]": "zero"}, "has 3 axes"),
        ({"decoder.0.attention.weights[x]": "zero"}, "'x' is not an index"),
        ({"decoder.0.attention.weights[0": "zero"}, "is not a path"),
        ({"": "zero"}, "is not a path"),
        ({"decoder.0.H": "bend"}, "'bend' is no edit"),
        ({"decoder.0.H": "zero 3"}, "is no edit"),
        ({"decoder.0.H": 3}, "3 is no edit"),
        ({"decoder.0.H": {"scale": 2, "set": 3}}, "is no edit"),
        ({"decoder.0.H": "scale two"}, "'two' is not a finite number"),
        ({"decoder.0.H": {"scale": float("nan")}}, "not a finite number"),
        ({"decoder.0.H": {"set": True}}, "not a finite number"),
        ({"decoder.0.H": {"set": [[1], [2, 3]]}}, "regular list"),
        ({"decoder.0.H": {"set": [1e999]}}, "finite"),
        ({"decoder.0.H": {"set": [1, 2, 3]}}, r"shape \(7, 24\), which \(3,\) does not fit"),
        ({"decoder.0.H": "swap 1 9"}, "1 and 9 cannot be swapped; there are 7"),
        ({"decoder.0.H": "swap 0.5 1"}, "0.5 and 1 cannot be swapped"),
        ({"decoder.0.H[1, 2]": "swap 0 1"}, "there are 0"),
        ({"decoder.0.H": "swap 1"}, "is no edit"),
        ({"decoder.0.H": {"from": "another"}}, "is no edit"),
        ({"decoder.0.H": "hide"}, "hide is for entries of a mask"),
        ({"decoder.0.attention.mask": "zero"}, "zero is for values"),
        ({"decoder.0.attention.mask[0, 0]": "hide"}, "token 0 would see nothing"),
        ({"decoder.0.attention.mask": "hide"}, "would see nothing"),
        ({"decoder.0.attention.scaling": "zero"}, "can only be off"),
        ({"decoder.0.norm_1[2]": "off"}, "on or off as a whole"),
        ({"decoder.0.attention.W_q": "zero"}, "a learned weight"),
        ({"decoder.0.attention.W_q.weight": "zero"}, "a learned weight"),
        ({5: "zero"}, "a mapping from paths"),
        (["token.1"], "a mapping from paths"),
        ({"probabilities": "zero"}, "edit logits"),
    ],
)
def test_invalid_edits_are_refused_in_one_sentence(gpt, edits, sentence):
    with pytest.raises(RegardError, match=sentence) as said:
        gpt.edit(edits)
    assert "\n" not in str(said.value)


def test_targets_that_this_model_lacks_are_refused(traces):
    with pytest.raises(TaskError, match=r"encoder\.0\.attention has no mask"):
        traces("bert-mlm").edit({"encoder.0.attention.mask": "off"})
    with pytest.raises(TaskError, match="no mask"):
        traces("bart").edit({"decoder.0.cross.mask[1, 1]": "show"})
    with pytest.raises(TaskError, match="does not divide its scores"):
        traces("gpt2-unscaled").edit({"decoder.0.attention.scaling": "off"})
    with pytest.raises(NotFound, match=r"no edit target 'embed\.positions'; did you mean positions"):
        traces("llama").edit({"embed.positions": "off"})
    with pytest.raises(NotFound, match=r"did you mean .*coder\.token\.0"):
        traces("bart").edit({"token.1": "zero"})
    with pytest.raises(TaskError, match="no token axis"):
        traces("bert-classify").edit({"pooler.out": "mean"})
    with pytest.raises(TaskError, match="step by step"):
        traces("gru").edit({"decoder.cross.weights": "zero"})


def test_a_recurrent_network_is_edited_too(traces):
    gru = traces("gru")
    after = gru.edit({"encoder.token.2": "zero"})
    assert (after.tensor("encoder.embed.tokens")[2] == 0).all()
    assert not equal(after.tensor("logits"), gru["logits"])
