"""Why scores are divided by √d_k: dot products, softmax and gradients measured as d_k grows."""

import numpy as np

from regard.explain.logits import softmax
from regard.explain.trace import Array
from regard.nn.attention import attend
from regard.teach.lesson.step import Load, Step, capture, matrix, on_page

SIZES = (1, 4, 16, 64, 256, 1024)
QUERIES, KEYS, D_V = 1024, 16, 8


def why_scale(load: Load) -> list[Step]:
    plain = np.stack([measure(d_k, 1.0) for d_k in SIZES])
    scaled = np.stack([measure(d_k, None) for d_k in SIZES])

    def plain_and_scaled(*which: int) -> Array:
        return np.stack([runs[:, i] for i in which for runs in (plain, scaled)], 1)

    names = tuple(f"d_k {d_k}" for d_k in SIZES)
    return [
        lecture_pair("The lecture's pair of scores, then half of it, as division by √d_k = 2 makes it."),
        Step(
            f"A dot product adds d_k products, so its variance is d_k. Measured on {QUERIES} random queries with {KEYS} "
            "random keys each, every feature of variance 1: not divided, and divided by √d_k.",
            "variance of the scores",
            plain_and_scaled(0),
            rows=names,
            columns=("q·k", "q·k/√d_k"),
        ),
        Step(
            f"So the largest score runs away from the others, and softmax saturates: of the 4 bits of an even choice among "
            f"{KEYS} keys little is left, and one key takes nearly all. Divided, nothing of the kind.",
            "softmax",
            plain_and_scaled(1, 2),
            rows=names,
            columns=("entropy", "divided", "largest A", "divided"),
            state=on_page("The old king sees", edits={"decoder.*.attention.scaling": "off"}),
        ),
        Step(
            "A real backward pass through `attend`. Where softmax is saturated, hardly any gradient reaches the scores "
            "(shown: the median over the queries). Where it is not, what reaches q is multiplied by ever longer keys and "
            "explodes (shown: the largest). Divided by √d_k, both stay.",
            "gradient norms",
            plain_and_scaled(3, 4),
            rows=names,
            columns=("‖∂L/∂S‖", "divided", "‖∂L/∂q‖", "divided"),
            bars="log",
        ),
    ]


def lecture_pair(say: str) -> Step:
    """Softmax of the scores 6 and 4, and of half of them."""
    by_hand = "by hand: 0.73 0.27 for the second; the lecture's 0.38 0.18 for the first is a slip"
    return Step(say, "softmax", softmax(matrix("6 4; 3 2")), by_hand, rows=("of 6, 4", "of 3, 2"))


def measure(d_k: int, scale: float | None) -> Array:
    """Variance of the scores, mean entropy, mean largest weight, median ‖∂L/∂S‖ and largest ‖∂L/∂q‖ over the queries.

    The loss L is a fixed random direction of Z, the same for every run.
    """
    rng = np.random.default_rng(0)
    G, V = rng.normal(size=(QUERIES, 1, D_V)), rng.normal(size=(QUERIES, KEYS, D_V))
    Q, K = rng.normal(size=(QUERIES, 1, d_k)), rng.normal(size=(QUERIES, KEYS, d_k))
    captured = capture(lambda: attend(Q, K, V, scale=scale))
    A = captured["weights"]
    to_weights = G @ V.swapaxes(-1, -2)  # ∂L/∂A
    to_scores = A * (to_weights - (A * to_weights).sum(-1, keepdims=True))  # through softmax
    to_queries = to_scores @ K * (d_k**-0.5 if scale is None else scale)
    bits = -(A * np.log2(A, out=np.zeros_like(A), where=A > 0)).sum(-1)
    return np.array(
        [
            captured["scores"].var(ddof=1),
            bits.mean(),
            A.max(-1).mean(),
            np.median(np.linalg.norm(to_scores, axis=-1)),
            np.linalg.norm(to_queries, axis=-1).max(),
        ]
    )
