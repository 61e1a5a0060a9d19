"""The four examples that the lectures work by hand: three inputs, The cat sat, Pizza, LayerNorm."""

import numpy as np

from regard.nn.norm import layer_norm
from regard.teach.lesson.scaling import lecture_pair
from regard.teach.lesson.step import Load, Step, capture, capture_attention, matrix, on_page, step_of


def three_inputs(load: Load) -> list[Step]:
    X = matrix("1 0 1 0; 0 2 0 2; 1 1 1 1")
    W_q, W_k = matrix("1 0 1; 1 0 0; 0 0 1; 0 1 1"), matrix("0 0 1; 1 1 0; 0 1 0; 1 1 0")
    W_v = matrix("0 2 0; 0 3 0; 1 0 3; 1 1 0")
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    real = on_page("The old king")
    plain, scaled = capture_attention(Q, K, V, scale=1.0), capture_attention(Q, K, V)
    return [
        Step("Three tokens, each four numbers.", "X", X),
        Step("What each token asks.", "Q = X W_q", Q, state=real),
        Step("What each token offers to be found by.", "K = X W_k", K, state=real),
        Step("What each token will say.", "V = X W_v", V, state=real),
        Step(
            "Every question against every key: the attention scores.",
            "S = Q Kᵀ",
            plain["scores"],
            state=step_of(real, "dots"),
        ),
        Step(
            "Each row becomes shares that sum to 1: the attention weights.",
            "A = softmax(S)",
            plain["weights"],
            "by hand, rounded: 0.0 0.5 0.5 / 0.0 1.0 0.0 / 0.0 0.9 0.1",
            state=real,
        ),
        Step(
            "The values, mixed by those shares.",
            "Z = A V",
            plain["Z"],
            "by hand, with those: 2.0 7.0 1.5 / 2.0 8.0 0.0 / 2.0 7.8 0.3",
            state=real,
        ),
        Step(
            "The same with the scores divided by √d_k = √3, as transformers do it.", "Z = softmax(S/√3) V", scaled["Z"]
        ),
    ]


def the_cat_sat(load: Load) -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")
    captured, real = capture_attention(E, E, E), on_page("The cat sat")
    return [
        Step("Three words; all three weight matrices are the identity, so Q = K = V = E.", "E", E),
        Step("Dot products of every pair.", "Q Kᵀ", captured["dots"]),
        Step(
            "Divided by √d_k = 2, so that softmax does not saturate.",
            "S = Q Kᵀ/√4",
            captured["scores"],
            state=step_of(real, "scores"),
        ),
        Step(
            "Shares per row.",
            "A = softmax(S)",
            captured["weights"],
            "by hand: 0.42 0.15 0.42 / 0.15 0.42 0.42 / 0.21 0.21 0.58",
            state=real,
        ),
        Step(
            "What each word has become.",
            "Z = A V",
            captured["Z"],
            "by hand: 0.84 0.57 0.84 0.57 / 0.57 0.84 0.57 0.84 / 0.79 0.79 0.79 0.79",
            state=real,
        ),
        lecture_pair("Why divide: softmax of (6, 4), and of half of it."),
    ]


def residual_and_norm(load: Load) -> list[Step]:
    X, M = matrix("1 2 3; 4 5 6; 7 8 9"), matrix(".5 1 1.5; 2 2.5 3; 3.5 4 4.5")
    H, real = X + M, on_page("The cat sat", 1)
    captured = capture(lambda: layer_norm(H, None, None, 0.0))
    return [
        Step("What comes in.", "X", X),
        Step("What attention made of it.", "M", M),
        Step("The residual connection adds the two.", "H = X + M", H, state=real),
        Step(
            "Each row's mean μ and standard deviation σ.",
            "μ, σ",
            np.concatenate([captured["mean"], np.sqrt(captured["variance"])], 1),
            "by hand: σ = 1.22",
            columns=("μ", "σ"),
            state=real,
        ),
        Step(
            "LayerNorm with γ = 1, β = 0, ε = 0.",
            "(H - μ)/σ",
            captured["normalised"],
            "by hand, with σ rounded to 1.22: -1.23 0 1.23",
            state=real,
        ),
    ]


def pizza(load: Load) -> list[Step]:
    X, W = matrix(".1 2.13; .11 2.13; .21 3.13; .8 .9"), matrix(".78 2; .9 1.7")
    A, V = matrix(".36 .4 .24"), matrix(".6; -.35; 3.86")
    return [
        Step("Pizza is awesome <EOS>: two numbers per token.", "X", X, state=on_page("The pizza is good", 0)),
        Step("A weight matrix.", "W", W),
        Step("Each token, projected.", "X W", X @ W, "the cells that the slide fills in are placeholders"),
        Step(
            "The values mixed by their shares: 36 % Pizza, 40 % is, 24 % awesome.",
            ".36·.6 + .4·(-.35) + .24·3.86",
            A @ V,
            "by hand: 1.0; the slide's own row .38 .4 .24 sums to 1.02, its text says 36 %",
        ),
    ]
