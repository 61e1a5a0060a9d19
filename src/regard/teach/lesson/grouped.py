"""Grouped queries: several heads ask with queries of their own and share keys and values. A real `MultiHead`."""

import numpy as np

from regard.nn.attention import MultiHead
from regard.nn.part import with_arrays
from regard.teach.lesson.heads import W_O, W_Q
from regard.teach.lesson.step import Load, Step, capture, matrix

W_K = "1 0; 0 1; 1 0; 0 1"  # one key of two numbers per word, for both heads
LAYERS, HEADS, GROUPS, D_K = 30, 9, 3, 64  # SmolLM2's
SMOLLM2 = {"model": "smollm2", "text": "The capital of France is", "depth": 1, "site": "decoder.0.attention"}


def grouped_queries(load: Load) -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")
    captured = capture(lambda: attention()(E))
    Q, K, A, Z = (captured[name] for name in ("Q", "K", "weights", "Z"))
    return [
        Step("The cat sat, two heads as before: head 1 asks for words like itself.", "Q₁", Q[0]),
        Step("Head 2 asks for the opposite.", "Q₂", Q[1]),
        Step(
            "But there is one set of keys now, and one of values: two numbers per word instead of four.",
            "K, for both heads",
            K[0],
        ),
        Step("Head 1 against these keys.", "A₁ = softmax(Q₁Kᵀ/√2)", A[0], columns=("The", "cat", "sat")),
        Step(
            "Head 2 against the same keys. It looks elsewhere, since it asks something else.",
            "A₂ = softmax(Q₂Kᵀ/√2)",
            A[1],
            columns=("The", "cat", "sat"),
            question="Two heads with the same keys: do they look at the same words?",
            choices=("yes", "no", "I don’t know"),
            right="no",
            answer="No. What a head looks at is q·k, and the queries are their own.",
        ),
        Step(
            "What each head found, side by side: as many numbers as with keys of their own.",
            "Z = [Z₁ Z₂]",
            np.concatenate([Z[0], Z[1]], 1),
        ),
        Step(
            f"What is saved is the KV cache. SmolLM2 has {LAYERS} blocks of {HEADS} heads, {D_K} numbers each, in {GROUPS} "
            "groups: numbers kept for every token, if every head had its own, as it is, and with one group for all.",
            "numbers per token",
            np.array([[2.0 * LAYERS * groups * D_K] for groups in (HEADS, GROUPS, 1)]),
            rows=("multi-head", "grouped", "multi-query"),
            question="By how much does it shrink?",
            choices=("not at all", "to a third", "to a ninth"),
            right="to a third",
            answer="To a third: three heads share one set of keys and values. With a single group it would be a ninth.",
            state=SMOLLM2,
        ),
    ]


def attention() -> MultiHead:
    """Two heads of queries, one of keys and values; each W is stored transposed."""
    weights = {"W_q": matrix(W_Q), "W_k": matrix(W_K), "W_v": matrix(W_K), "W_o": matrix(W_O)}
    return with_arrays(MultiHead(4, 2, 1, bias=False), {f"{name}.weight": W.T for name, W in weights.items()})
