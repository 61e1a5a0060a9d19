"""Masks: a score of −∞ is a weight of exactly 0, and the other weights share the rest. Computed by `attend`."""

from typing import Any

import numpy as np

from regard.explain.logits import softmax
from regard.explain.trace import Array
from regard.nn.mask import Mask
from regard.teach.lesson.step import Load, Step, capture_attention, matrix, on_page

WORDS, PADDED = ("The", "cat", "sat"), ("The", "cat", "(pad)")


def masks(load: Load) -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")
    free, causal = capture_attention(E, E, E), capture_attention(E, E, E, visible(Mask(causal=True)))
    changed = np.concatenate([E[:2], matrix("9 -9 9 -9")])  # another third word
    later = capture_attention(changed, changed, changed, visible(Mask(causal=True)))
    padded = capture_attention(E, E, E, visible(Mask(real=np.array([[True, True, False]]))))
    alone = capture_attention(E[:2], E[:2], E[:2])
    return [
        by_words("The cat sat, as before: scores without a mask.", "S = Q Kᵀ/√4", free["scores"]),
        by_words(
            "A causal mask: a word sees itself and what came before. Later keys get −∞, the upper triangle.",
            "S + mask",
            causal["masked"],
        ),
        by_words(
            "e^−∞ = 0, so softmax gives them nothing, and every row still sums to 1: the first word can only see itself.",
            "A = softmax(S + mask)",
            causal["weights"],
            state=on_page("The cat sat"),
        ),
        by_words(
            "Why −∞ and not 0: a score of 0 is still e^0 = 1, a share like any other. Zeros in the triangle leak.",
            "softmax(S with 0 there)",
            softmax(np.tril(free["scores"])),
            state=on_page("The cat sat", edits={"decoder.0.attention.mask": "off"}),
        ),
        Step("What each word has become: the past only.", "Z = A V", causal["Z"]),
        Step(
            "Proof: put another word in the third position. The first two rows change by exactly nothing.",
            "Z' - Z",
            later["Z"] - causal["Z"],
        ),
        by_words(
            "A padding mask: the third token only fills up a rectangular batch. No query may attend to it.",
            "S + mask",
            padded["masked"],
            PADDED,
        ),
        by_words("Its column of weights is 0.", "A = softmax(S + mask)", padded["weights"], PADDED),
        Step(
            "Proof: the two real words get what they would get alone, without any padding.",
            "Z padded - Z alone",
            padded["Z"][:2] - alone["Z"],
            rows=WORDS[:2],
        ),
    ]


def by_words(
    say: str, formula: str, value: Array, words: tuple[str, ...] = WORDS, state: dict[str, Any] | None = None
) -> Step:
    """A step whose matrix has queries as rows and keys as columns."""
    return Step(say, formula, value, rows=words, columns=words, state=state)


def visible(mask: Mask) -> Array:
    """(3, 3), True where a query may attend to a key."""
    return np.broadcast_to(mask.matrix(np.empty((3, 3))).reshape(-1, 3), (3, 3))
