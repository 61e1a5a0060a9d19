"""Two runs side by side: which token stands for which, and how far every number moved."""

import math

import numpy as np
import pytest
import torch

import by_hand
import regard
from arrays import close
from regard.errors import NotFound, TaskError
from regard.explain.compare import align, compare
from regard.explain.trace import trace

IDS, TARGET = [7, 9, 12, 40, 33, 8, 21], [2, 11, 30, 8, 44]


def test_alignment():
    same = ["the", "cat", "sat"]
    assert align(same, same) == [(0, 0), (1, 1), (2, 2)]
    assert align(same, ["the", "dog", "sat"]) == [(0, 0), (1, 1), (2, 2)]  # one word in another's place
    assert align(same, ["the", "old", "cat", "sat"]) == [(0, 0), (1, 2), (2, 3)]
    assert align(same, ["a", "big", "cat"]) == [(1, 2)]  # two words for one do not stand for it
    assert align(same, ["und", "so", "weiter", "noch"]) == []


def test_before_and_after_an_edit():
    """The echo says (2, -1) with its head and (1, 0) without."""
    before = by_hand.look(by_hand.echo(), [0, 0])
    after = before.edit({"decoder.0.attention.head.0": "zero"})
    both = before.compare(after)
    assert both.pairs == [(0, 0), (1, 1)]
    assert both.target_pairs is None
    close(both["logits"], torch.tensor([[-1.0, 1], [-1, 1]]))
    changes = {each.name: each.change for each in both.nodes()}
    assert changes["decoder.0.attention.Z"] == pytest.approx(1)  # all of it is gone
    assert changes["logits"] == pytest.approx(math.sqrt(2 / 5))
    assert changes["embed.out"] == changes["decoder.0.attention.weights"] == 0
    assert [each.change for each in both.nodes()] == sorted(changes.values(), reverse=True)
    shifts = {each.id: (each.a, each.b) for each in both.output()}
    assert shifts[0] == pytest.approx((1 / (1 + math.exp(-3)), 1 / (1 + math.exp(-1))))


def test_two_prompts_are_reduced_to_what_they_share():
    net = by_hand.previous_and_uniform()
    a, b = by_hand.look(net, [0, 1, 2]), by_hand.look(net, [4, 0, 1, 2])
    both = compare(a, b)
    assert both.pairs == [(0, 1), (1, 2), (2, 3)]
    weights = both["decoder.0.attention.weights"]
    assert weights.shape == (2, 3, 3)
    expected = b["decoder.0.attention.weights"][:, 1:, 1:] - a["decoder.0.attention.weights"]
    close(weights, expected)
    assert weights[1, 2].tolist() == pytest.approx([1 / 4 - 1 / 3] * 3)
    assert (both["embed.tokens"] == 0).all()
    assert (both["embed.positions"] != 0).any()


def test_entries_masked_in_both_runs_did_not_change(saved):
    before = regard.load(saved("gpt2")).trace(IDS)
    moved = before.compare(before.edit({"decoder.0.attention.head.0": "scale 2"}))
    assert np.isfinite(moved["decoder.1.attention.masked"]).all()
    opened = before.compare(before.edit({"decoder.0.attention.mask[2, 5]": "show"}))
    assert opened["decoder.0.attention.masked"][:, 2, 5].tolist() == [math.inf] * 3
    assert 0 < {each.name: each.change for each in opened.nodes()}["decoder.0.attention.masked"] < math.inf


def test_source_and_target_are_aligned_separately(saved):
    net = regard.load(saved("bart")).reference
    a, b = trace(net, IDS, None, TARGET), trace(net, IDS[:2] + IDS[3:], None, [*TARGET, 19])
    both = compare(a, b)
    assert both.pairs == [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4), (6, 5)]
    assert both.target_pairs == [(i, i) for i in range(5)]
    cross = both["decoder.0.cross.weights"]  # target queries by source keys
    assert cross.shape == (2, 5, 6)
    aligned = b["decoder.0.cross.weights"][:, :5] - a["decoder.0.cross.weights"][:, :, [0, 1, 3, 4, 5, 6]]
    close(cross, aligned)
    assert both["decoder.0.cross.K"].shape[1] == 6
    assert both["decoder.0.attention.weights"].shape[1:] == (5, 5)
    assert both["encoder.0.out"].shape[0] == 6
    assert len(both.nodes()) == len(a.nodes())


def test_two_checkpoints_of_one_shape(saved, tmp_path):
    import tiny

    tiny.make("gpt2", seed=1).save_pretrained(tmp_path)
    a, b = regard.load(saved("gpt2")).trace(IDS), regard.load(tmp_path).trace(IDS)
    both = a.compare(b)
    close(both["decoder.0.attention.Q"], b["decoder.0.attention.Q"] - a["decoder.0.attention.Q"])
    assert len(both.nodes()) == len(a.nodes())


def test_checkpoints_of_different_shapes_are_compared_where_shapes_match(saved):
    a, b = regard.load(saved("gpt2")).trace(IDS), regard.load(saved("llama")).trace(IDS)
    both = a.compare(b)
    names = {each.name for each in both.nodes()}
    assert "decoder.0.H" in names  # both 24 wide
    assert "decoder.0.attention.weights" not in names  # 3 heads and 6
    with pytest.raises(TaskError, match=r"\(3, 7, 7\) in one run and \(6, 7, 7\)"):
        both["decoder.0.attention.weights"]
    with pytest.raises(NotFound, match=r"second run has no node 'embed\.positions'"):
        both["embed.positions"]
    with pytest.raises(TaskError, match="same outcomes"):
        both.output()


def test_outputs_at_a_position(saved):
    before = regard.load(saved("bert-tag")).trace(IDS)
    after = before.edit({"logits[4, 2]": "set 30"})
    both = before.compare(after)
    first = both.output()[0]  # by default where the answer changed most
    assert (first.id, first.piece, first.b) == (2, "LABEL_2", pytest.approx(1, abs=1e-4))
    assert first.a == pytest.approx(float(before.tensor("probabilities")[4, 2]))
    assert all(each.a == each.b for each in both.output(0))
    with pytest.raises(NotFound, match="there are 7"):
        both.output(7)


def test_classes(saved):
    before = regard.load(saved("bert-classify")).trace(IDS)
    shifts = before.compare(before.edit({"logits": "swap 0 2"})).output()
    said = before.tensor("probabilities").tolist()
    assert {each.id: each.b for each in shifts} == pytest.approx({0: said[2], 1: said[1], 2: said[0]})


def test_a_comparison_as_text():
    before = by_hand.look(by_hand.echo(), [0, 0])
    text = str(before.compare(before.edit({"decoder.0.attention.head.0": "zero"})))
    assert text.startswith("The same 2 tokens.\n")
    assert "decoder.0.attention.Z" in text
    assert "0.9526 → 0.7311  '0'" in text
    assert str(before.compare(before)) == "The same 2 tokens.\n0 nodes changed."
    other = str(before.compare(by_hand.look(by_hand.echo(), [0, 1, 0])))
    assert other.startswith("2 aligned tokens of 2 and 3: '0' '0'\n")


def test_nothing_in_common(saved):
    gpt, bert = (regard.load(saved(name)) for name in ("gpt2", "bert"))
    with pytest.raises(TaskError, match="no token in common"):
        gpt.trace([3, 4]).compare(gpt.trace([5, 6, 7]))
    both = gpt.trace(IDS).compare(bert.trace(IDS))  # only embeddings have the same names
    assert {each.name for each in both.nodes()} == {"embed.tokens", "embed.positions", "embed.out"}


def test_a_run_is_compared_with_a_run():
    with pytest.raises(TaskError, match="not with NoneType"):
        by_hand.look(by_hand.echo(), [0, 0]).compare(None)  # type: ignore[arg-type]
