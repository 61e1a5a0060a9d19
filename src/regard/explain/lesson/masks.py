"""Masks: a score of −∞ is a weight of exactly 0, and the others share what it leaves. Shown through `attend`."""

import torch
from torch import Tensor

from regard.explain.lesson.step import Load, Step, matrix, on_page, seen_attention
from regard.nn.mask import Mask

WORDS = ("The", "cat", "sat")


def masks(load: Load) -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1")
    free, causal = seen_attention(E, E, E), seen_attention(E, E, E, visible(Mask(causal=True)))
    changed = torch.cat([E[:2], matrix("9 -9 9 -9")])  # another third word
    later = seen_attention(changed, changed, changed, visible(Mask(causal=True)))
    padded = seen_attention(E, E, E, visible(Mask(real=torch.tensor([[True, True, False]]))))
    alone = seen_attention(E[:2], E[:2], E[:2])
    return [
        Step("The cat sat, as before: scores without a mask.", "S = Q Kᵀ/√4", free["scores"], columns=WORDS),
        Step(
            "A causal mask: a word sees itself and what came before. Later keys get −∞, the upper triangle.",
            "S + mask",
            causal["masked"],
            columns=WORDS,
        ),
        Step(
            "e^−∞ = 0, so softmax gives them nothing, and every row still sums to 1: the first word can only see itself.",
            "A = softmax(S + mask)",
            causal["weights"],
            columns=WORDS,
            state=on_page("The cat sat"),
        ),
        Step(
            "Why −∞ and not 0: a score of 0 is still e^0 = 1, a share like any other. Zeros in the triangle leak.",
            "softmax(S with 0 there)",
            free["scores"].tril().softmax(-1),
            columns=WORDS,
            state=on_page("The cat sat", edits={"decoder.0.attention.mask": "off"}),
        ),
        Step("What each word has become: the past only.", "Z = A V", causal["Z"]),
        Step(
            "Proof: put another word in third place. The first two rows change by exactly nothing.",
            "Z' - Z",
            later["Z"] - causal["Z"],
        ),
        Step(
            "A padding mask: the third place is only filled up to make a batch rectangular. Nobody may look there.",
            "S + mask",
            padded["masked"],
            columns=("The", "cat", "(pad)"),
            rows=("The", "cat", "(pad)"),
        ),
        Step(
            "Its column of weights is 0.",
            "A = softmax(S + mask)",
            padded["weights"],
            columns=("The", "cat", "(pad)"),
            rows=("The", "cat", "(pad)"),
        ),
        Step(
            "Proof: the two real words get what they would get alone, without any padding.",
            "Z padded - Z alone",
            padded["Z"][:2] - alone["Z"],
            rows=WORDS[:2],
        ),
    ]


def visible(mask: Mask) -> Tensor:
    """(3, 3), True where a query may look."""
    matrix = mask.matrix(3, 3, torch.device("cpu"))
    assert matrix is not None
    return matrix[0, 0].expand(3, 3)
