"""Multi-head attention on The cat sat: two heads in parallel, concatenated, and one output projection (`MultiHead`)."""

import numpy as np

from regard.nn.attention import MultiHead
from regard.nn.part import with_arrays
from regard.teach.lesson.step import Load, Step, capture, matrix, on_page

W_Q = "1 0 0 0; 0 1 0 0; 0 0 0 1; 0 0 1 0"  # the second head's query has its two features exchanged
W_O = "1 0 1 0; 0 1 0 1; 1 0 -1 0; 0 1 0 -1"  # the heads' sum, then their difference


def two_heads(load: Load) -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")
    captured = capture(lambda: attention()(E))
    Q, K, A, Z, M = (captured[name] for name in ("Q", "K", "weights", "Z", "M"))
    first, second = on_page("The cat sat"), on_page("The cat sat", head=1)
    return [
        Step("The cat sat, four numbers a word. Head 1 takes the first two, head 2 the last two.", "X", E),
        Step("Head 1 asks for words like itself: its W_q is the identity.", "Q₁", Q[0]),
        Step("Head 2 asks for the opposite: its W_q exchanges the two features.", "Q₂", Q[1]),
        Step("Both offer the same keys here, and values too.", "K₁ = K₂ = V₁ = V₂", K[0]),
        Step(
            "Each head has its own weights; d_k is now 2. In head 1, like finds like.",
            "A₁ = softmax(Q₁K₁ᵀ/√2)",
            A[0],
            state=first,
        ),
        Step(
            "In head 2, in the same sentence, The finds cat and cat finds The.",
            "A₂ = softmax(Q₂K₂ᵀ/√2)",
            A[1],
            state=second,
        ),
        Step(
            "What each head found, side by side.",
            "Z = [Z₁ Z₂]",
            np.concatenate([Z[0], Z[1]], 1),
            state=on_page("The cat sat", 1),
        ),
        Step("The output projection may mix them. This one adds the heads, and subtracts them.", "W_o", matrix(W_O)),
        Step("What multi-head attention gives: Z₁ + Z₂, then Z₁ - Z₂.", "M = [Z₁ Z₂] W_o", M),
    ]


def attention() -> MultiHead:
    """Two heads over four features, their weights as above; each W is stored transposed."""
    weights = {"W_q": matrix(W_Q), "W_k": np.eye(4), "W_v": np.eye(4), "W_o": matrix(W_O)}
    return with_arrays(MultiHead(4, 2, bias=False), {f"{name}.weight": W.T for name, W in weights.items()})
