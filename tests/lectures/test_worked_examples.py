"""Every worked example of the lectures, exact to 1e-6, and the decks' own figures to 0.011."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.nn import attend, attention_weights, layer_norm, simple_attention
from regard.teach.lesson import LESSONS

SelfAttention: Any = regard.nn.SelfAttention  # which is there with PyTorch only


def matrix(text: str) -> torch.Tensor:
    return torch.tensor([[float(x) for x in row.split()] for row in text.split(";")], dtype=torch.float64)


def close(a: Any, text: str, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(a, matrix(text), rtol=0, atol=tolerance)


class TestThreeInputs:
    X = matrix("1 0 1 0; 0 2 0 2; 1 1 1 1")
    Q = X @ matrix("1 0 1; 1 0 0; 0 0 1; 0 1 1")
    K = X @ matrix("0 0 1; 1 1 0; 0 1 0; 1 1 0")
    V = X @ matrix("0 2 0; 0 3 0; 1 0 3; 1 1 0")

    def test_projections(self):
        close(self.Q, "1 0 2; 2 2 2; 2 1 3", 0)
        close(self.K, "0 1 1; 4 4 0; 2 3 1", 0)
        close(self.V, "1 2 3; 2 8 0; 2 6 3", 0)

    def test_scores_are_not_scaled_in_this_lecture(self):
        close(self.Q @ self.K.T, "2 4 4; 4 16 12; 4 12 10", 0)

    def test_weights(self):
        A = attention_weights(self.Q, self.K, scale=1.0)
        close(A, ".063379 .468311 .468311; .000006 .982008 .017986; .000295 .880537 .119168")

    def test_output(self):
        Z = attend(self.Q, self.K, self.V, scale=1.0)
        close(Z, "1.936621 6.683105 1.595068; 1.999994 7.963992 .053976; 1.999705 7.759892 .358389")

    def test_output_by_hand(self):
        rounded = matrix("0 .5 .5; 0 1 0; 0 .9 .1")
        close(rounded @ self.V, "2.0 7.0 1.5; 2.0 8.0 0.0; 2.0 7.8 0.3", 0.011)

    def test_scaled(self):
        Z = regard.attend(self.Q, self.K, self.V)
        close(Z, "1.863874 6.319371 1.704189; 1.999110 7.814124 .273472; 1.992555 7.479636 .735877")


class TestTheCatSat:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")

    def test_scores_weights_and_output(self):
        close(self.E @ self.E.T, "2 0 2; 0 2 2; 2 2 4", 0)
        A = regard.attention_weights(self.E, self.E)
        close(A, ".422319 .155362 .422319; .155362 .422319 .422319; .211942 .211942 .576117")
        close(
            attend(self.E, self.E, self.E),
            ".844638 .577681 .844638 .577681; .577681 .844638 .577681 .844638; .788058 .788058 .788058 .788058",
        )

    def test_the_decks_figures(self):
        Z = attend(self.E, self.E, self.E)
        close(Z, ".84 .57 .84 .57; .57 .84 .57 .84; .79 .79 .79 .79", 0.011)

    def test_scaling_keeps_softmax_from_saturating(self):
        close(matrix("6 4").softmax(-1), ".880797 .119203")
        close(matrix("3 2").softmax(-1), ".731059 .268941")


class TestResidualAndLayerNorm:
    X, M = matrix("1 2 3; 4 5 6; 7 8 9"), matrix(".5 1 1.5; 2 2.5 3; 3.5 4 4.5")

    def test_by_the_book(self):
        H = self.X + self.M
        close(H, "1.5 3 4.5; 6 7.5 9; 10.5 12 13.5", 0)
        assert H.mean(1).tolist() == [3, 7.5, 12]
        close(H.std(1, correction=0)[None], "1.224745 1.224745 1.224745")
        row = "-1.224745 0 1.224745"
        close(layer_norm(H, None, None, 0.0), f"{row}; {row}; {row}")
        close(layer_norm(H, None, None, 0.0), "-1.23 0 1.23; -1.23 0 1.23; -1.23 0 1.23", 0.011)


class TestPizza:
    X, W = matrix(".1 2.13; .11 2.13; .21 3.13; .8 .9"), matrix(".78 2.0; .9 1.7")

    def test_product(self):
        close(self.X @ self.W, "1.995 3.821; 2.0028 3.841; 2.9808 5.741; 1.434 3.13")

    def test_the_sum_that_gives_one(self):
        close(matrix(".36 .4 .24") @ matrix(".6; -.35; 3.86"), "1.0024")

    def test_the_class_on_the_slide_gives_what_attend_gives(self):
        torch.manual_seed(0)
        module = SelfAttention(d_model=2, row_dim=0, col_dim=1).double()
        Q, K, V = (self.X @ W.weight.T for W in (module.W_q, module.W_k, module.W_v))
        torch.testing.assert_close(module(self.X), attend(Q, K, V), rtol=0, atol=1e-12)
        assert all(W.bias is None for W in (module.W_q, module.W_k, module.W_v))

    def test_other_axes_and_batches(self):
        torch.manual_seed(0)
        module = SelfAttention(d_model=4, row_dim=1, col_dim=2)
        X = torch.randn(3, 5, 4)
        turned = SelfAttention(d_model=4, row_dim=2, col_dim=1)
        turned.load_state_dict(module.state_dict())
        torch.testing.assert_close(turned(X.transpose(1, 2)), module(X).transpose(1, 2))


def test_simplified_self_attention_looks_only_back():
    """score_ij = x_i · x_j for j ≤ i, by the lecture's formula written out."""
    X = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for i in range(5):
        scores = [float(X[i] @ X[j]) for j in range(i + 1)]
        shares = [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]
        expected = sum(a * X[j] for j, a in enumerate(shares))
        torch.testing.assert_close(simple_attention(X)[i], expected)


def test_masked_weights_are_zero_above_the_diagonal_and_rows_sum_to_one():
    X = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    A = attention_weights(X, X, torch.ones(6, 6, dtype=torch.bool).tril())
    assert torch.equal(A.triu(1), torch.zeros(6, 6))
    torch.testing.assert_close(A.sum(-1), torch.ones(6))


def test_without_scaling_wide_heads_saturate_and_gradients_vanish():
    """Why √d_k: dot products of d_k random numbers have variance d_k, and softmax of large numbers has no slope."""
    torch.manual_seed(0)
    Q, K = torch.randn(64, 4096), torch.randn(64, 4096)

    def slope(scale: float) -> float:
        """How much the largest weight of a row still moves when the scores do."""
        S = (Q @ K.T * scale).requires_grad_()
        S.softmax(-1).max(-1).values.sum().backward()
        assert S.grad is not None
        return float(S.grad.norm(dim=-1).median())  # of a typical row

    assert attention_weights(Q, K, scale=1.0).max(-1).values.mean() > 0.95
    assert attention_weights(Q, K).max(-1).values.mean() < 0.15
    assert slope(1.0) < 1e-6 < 1e-2 < slope(1 / math.sqrt(4096))


@pytest.mark.parametrize("name", LESSONS)
def test_lessons_compute_what_they_show(name):
    steps = LESSONS[name].steps()
    assert len(steps) >= 3
    assert not any(np.isnan(step.value).any() or (step.value == np.inf).any() for step in steps)  # −∞ is a mask's


def test_lesson_values_are_the_lectures():
    by_formula = {step.formula: step.value for step in LESSONS["three-inputs"].steps()}
    close(by_formula["A = softmax(S)"], ".063379 .468311 .468311; .000006 .982008 .017986; .000295 .880537 .119168")
    close(by_formula["S = Q Kᵀ"], "2 4 4; 4 16 12; 4 12 10", 0)
