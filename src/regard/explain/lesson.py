"""The lectures' worked examples, number by number, computed here and now.

A lesson is a list of steps; a step has a sentence, a formula and the matrix that comes out. The terminal prints them.
Exact values stand first, and what the lecture wrote by hand stands beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import NotFound
from regard.nn.attention import attend
from regard.nn.norm import layer_norm
from regard.nn.see import watching


@dataclass(frozen=True)
class Step:
    say: str
    formula: str
    value: Tensor
    by_hand: str = ""


@dataclass(frozen=True)
class Lesson:
    title: str
    words: tuple[str, ...]
    steps: Callable[[], list[Step]]


def seen_attention(Q: Tensor, K: Tensor, V: Tensor, scale: float | None = None) -> dict[str, Tensor]:
    """Every intermediate of one attention, as `attend` itself computes it."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x
        return x

    with watching(keep):
        attend(Q, K, V, scale=scale)
    return seen


def three_inputs() -> list[Step]:
    X = matrix("1 0 1 0; 0 2 0 2; 1 1 1 1")
    W_q, W_k = matrix("1 0 1; 1 0 0; 0 0 1; 0 1 1"), matrix("0 0 1; 1 1 0; 0 1 0; 1 1 0")
    W_v = matrix("0 2 0; 0 3 0; 1 0 3; 1 1 0")
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    plain, scaled = seen_attention(Q, K, V, scale=1.0), seen_attention(Q, K, V)
    return [
        Step("Three tokens, each four numbers.", "X", X),
        Step("What each token asks.", "Q = X W_q", Q),
        Step("What each token offers to be found by.", "K = X W_k", K),
        Step("What each token will say.", "V = X W_v", V),
        Step("Every question against every key: the attention scores.", "S = Q Kᵀ", plain["scores"]),
        Step(
            "Each row becomes shares that sum to 1: the attention weights.",
            "A = softmax(S)",
            plain["weights"],
            "by hand, rounded: 0.0 0.5 0.5 / 0.0 1.0 0.0 / 0.0 0.9 0.1",
        ),
        Step(
            "The values, mixed by those shares.",
            "Z = A V",
            plain["Z"],
            "by hand, with those: 2.0 7.0 1.5 / 2.0 8.0 0.0 / 2.0 7.8 0.3",
        ),
        Step(
            "The same with the scores divided by √d_k = √3, as transformers do it.", "Z = softmax(S/√3) V", scaled["Z"]
        ),
    ]


def the_cat_sat() -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")
    seen = seen_attention(E, E, E)
    return [
        Step("Three words; all three weight matrices are the identity, so Q = K = V = E.", "E", E),
        Step("Dot products of every pair.", "Q Kᵀ", seen["dots"]),
        Step("Divided by √d_k = 2, so that softmax does not saturate.", "S = Q Kᵀ/√4", seen["scores"]),
        Step(
            "Shares per row.",
            "A = softmax(S)",
            seen["weights"],
            "by hand: 0.42 0.15 0.42 / 0.15 0.42 0.42 / 0.21 0.21 0.58",
        ),
        Step("What each word has become.", "Z = A V", seen["Z"], "by hand: 0.84 0.57 0.84 0.57 / …"),
        Step(
            "Why divide: softmax of (6, 4), and of half of it.",
            "softmax(6, 4); softmax(3, 2)",
            torch.stack([matrix("6 4")[0].softmax(-1), matrix("3 2")[0].softmax(-1)]),
            "by hand: .73 .27 for the second; the lecture's .38 .18 for the first is a slip",
        ),
    ]


def residual_and_norm() -> list[Step]:
    X, M = matrix("1 2 3; 4 5 6; 7 8 9"), matrix(".5 1 1.5; 2 2.5 3; 3.5 4 4.5")
    H = X + M
    return [
        Step("What came in, and what attention made of it.", "X; M", torch.cat([X, M], 1)),
        Step("The residual connection adds the two.", "H = X + M", H),
        Step(
            "Each row's mean μ and standard deviation σ.", "μ; σ", torch.stack([H.mean(1), H.std(1, correction=0)], 1)
        ),
        Step(
            "LayerNorm with γ = 1, β = 0, ε = 0.", "(H - μ)/σ", layer_norm(H, None, None, 0.0), "by hand: -1.23 0 1.23"
        ),
    ]


def pizza() -> list[Step]:
    X, W = matrix(".1 2.13; .11 2.13; .21 3.13; .8 .9"), matrix(".78 2; .9 1.7")
    A, V = matrix(".36 .4 .24"), matrix(".6; -.35; 3.86")
    return [
        Step("Pizza is awesome <EOS>: two numbers per token.", "X", X),
        Step("Times a weight matrix (the lecture leaves the cells open).", "X W", X @ W),
        Step(
            "The values mixed by their shares: 36 % Pizza, 40 % is, 24 % awesome.",
            ".36·.6 + .4·(-.35) + .24·3.86",
            A @ V,
            "by hand: 1.0",
        ),
    ]


def matrix(text: str) -> Tensor:
    return torch.tensor([[float(x) for x in row.split()] for row in text.split(";")], dtype=torch.float64)


LESSONS = {
    "three-inputs": Lesson("Self-attention on three inputs", ("input 1", "input 2", "input 3"), three_inputs),
    "the-cat-sat": Lesson("The cat sat: scores, scaling, softmax", ("The", "cat", "sat"), the_cat_sat),
    "layernorm": Lesson("Residual connection and LayerNorm", ("h₁", "h₂", "h₃"), residual_and_norm),
    "pizza": Lesson("Pizza is awesome", ("Pizza", "is", "awesome", "<EOS>"), pizza),
}


def lesson(name: str) -> Lesson:
    if name not in LESSONS:
        raise NotFound(f"There is no lesson {name!r}; there are {', '.join(LESSONS)}.")
    return LESSONS[name]
