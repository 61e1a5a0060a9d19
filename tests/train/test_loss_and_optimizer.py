"""The chunked cross-entropy, the learning rate schedules, and the weight decay groups."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError
from regard.train.loss import linear_cross_entropy
from regard.train.optimizer import decay_groups, schedule
from tensor_sizes import LargestTensor


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(2, 30), st.integers(1, 16), st.sampled_from([0.0, 0.1, 0.5]), st.booleans())
def test_loss_and_gradients_are_those_of_cross_entropy(M, n_vocab, chunk, smoothing, biased):
    generator = torch.Generator().manual_seed(M * n_vocab)
    leaves = [torch.randn(M, 7, generator=generator), torch.randn(n_vocab, 7, generator=generator)]
    leaves += [torch.randn(n_vocab, generator=generator)] if biased else []
    targets = torch.randint(0, n_vocab, (M,), generator=generator)
    ours, theirs = ([leaf.clone().requires_grad_() for leaf in leaves] for _ in range(2))
    bias = ours[2] if biased else None
    total, plain = linear_cross_entropy(ours[0], ours[1], bias, targets, smoothing=smoothing, chunk=chunk)
    (3 * total).backward()
    logits = F.linear(theirs[0], theirs[1], theirs[2] if biased else None)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    (3 * expected).backward()
    torch.testing.assert_close(total.detach(), expected.detach(), rtol=1e-5, atol=1e-4)
    unsmoothed = F.cross_entropy(logits.detach(), targets, reduction="sum")
    torch.testing.assert_close(plain, unsmoothed, rtol=1e-5, atol=1e-4)
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-5)


def test_the_logits_never_exist_all_at_once():
    X, W = torch.randn(1000, 4, requires_grad=True), torch.randn(500, 4, requires_grad=True)
    with LargestTensor() as largest:
        linear_cross_entropy(X, W, None, torch.zeros(1000, dtype=torch.long), chunk=50)[0].backward()
    assert largest.numel <= 50 * 500


def test_learning_rate_schedules():
    cosine = schedule("cosine", 10, 110, floor=0.1)
    assert [cosine(0), cosine(9)] == pytest.approx([0.1, 1.0])
    assert cosine(60) == pytest.approx(0.55)
    assert cosine(110) == pytest.approx(0.1)
    linear = schedule("linear", 0, 100, floor=0.0)
    assert [linear(0), linear(50), linear(100)] == pytest.approx([1.0, 0.5, 0.0])
    assert schedule("constant", 5, 10)(100) == 1.0


def test_noam_is_the_schedule_of_the_paper():
    """lrate = d^-0.5 · min(step^-0.5, step · warmup^-1.5), as a share of its peak."""
    noam, warmup = schedule("noam", 40, 1000), 40
    peak = warmup**-0.5
    for step in (1, 10, 40, 41, 400):
        assert noam(step - 1) == pytest.approx(min(step**-0.5, step * warmup**-1.5) / peak)


def test_unknown_schedule_is_refused():
    with pytest.raises(ConfigError, match="cosine"):
        schedule("cubic", 1, 2)


def test_only_matrices_have_weight_decay():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    groups: Any = decay_groups(module, 0.1)
    decaying, other = groups
    assert [p.dim() for p in decaying["params"]] == [2]
    assert {p.dim() for p in other["params"]} == {1}
    assert (decaying["weight_decay"], other["weight_decay"]) == (0.1, 0.0)
    assert math.isclose(sum(p.numel() for g in (decaying, other) for p in g["params"]), 12 + 4 + 8)
