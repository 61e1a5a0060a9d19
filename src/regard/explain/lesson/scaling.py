"""Why scores are divided by √d_k, measured: what happens to dot products, softmax and gradients as d_k grows."""

import torch
from torch import Tensor

from regard.explain.lesson.step import Load, Step, matrix, on_page, seen_while
from regard.nn.attention import attend

SIZES = (1, 4, 16, 64, 256, 1024)
QUERIES, KEYS, D_V = 256, 16, 8


def why_scale(load: Load) -> list[Step]:
    plain = torch.stack([measure(d_k, 1.0) for d_k in SIZES])
    scaled = torch.stack([measure(d_k, None) for d_k in SIZES])

    def side_by_side(*which: int) -> Tensor:
        return torch.stack([runs[:, i] for i in which for runs in (plain, scaled)], 1)

    names = tuple(f"d_k {d_k}" for d_k in SIZES)
    return [
        Step(
            "The lecture's pair of scores, then half of it, as division by √d_k = 2 makes it.",
            "softmax",
            torch.stack([matrix("6 4")[0].softmax(-1), matrix("3 2")[0].softmax(-1)]),
            "by hand: 0.73 0.27 for the second; the lecture's 0.38 0.18 for the first is a slip",
            rows=("of 6, 4", "of 3, 2"),
        ),
        Step(
            f"A dot product adds d_k products, so its variance is d_k. Measured on {QUERIES} random queries with {KEYS} "
            "random keys each, every feature of variance 1: not divided, and divided by √d_k.",
            "variance of the scores",
            side_by_side(0),
            rows=names,
            columns=("q·k", "q·k/√d_k"),
        ),
        Step(
            f"So the largest score runs away from the others, and softmax saturates: of the 4 bits of an even choice among "
            f"{KEYS} keys little is left, and one key takes nearly all. Divided, nothing of the kind.",
            "softmax",
            side_by_side(1, 2),
            rows=names,
            columns=("entropy", "divided", "largest A", "divided"),
            state=on_page("The old king sees", edits={"decoder.*.attention.scaling": "off"}),
        ),
        Step(
            "A real backward pass through `attend`. Where softmax is saturated, hardly any gradient reaches the scores "
            "(shown: the median over the queries). Where it is not, what reaches q is multiplied by ever longer keys and "
            "explodes (shown: the largest). Divided by √d_k, both stay.",
            "gradient norms",
            side_by_side(3, 4),
            rows=names,
            columns=("‖∂L/∂S‖", "divided", "‖∂L/∂q‖", "divided"),
            bars="log",
        ),
    ]


def measure(d_k: int, scale: float | None) -> Tensor:
    """Variance of the scores, mean entropy, mean largest weight, median ‖∂L/∂S‖ and largest ‖∂L/∂q‖ over the queries.

    L is a fixed random direction of Z, so every run is asked for the same thing.
    """
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    G, V = normal(QUERIES, 1, D_V), normal(QUERIES, KEYS, D_V)
    Q, K = normal(QUERIES, 1, d_k).requires_grad_(), normal(QUERIES, KEYS, d_k)
    seen = seen_while(lambda: attend(Q, K, V, scale=scale))
    to_scores, to_queries = torch.autograd.grad((seen["Z"] * G).sum(), (seen["scores"], Q))
    A = seen["weights"].detach()
    entropy = torch.special.entr(A).sum(-1) / torch.tensor(2.0, dtype=A.dtype).log()  # bits
    return torch.stack(
        [
            seen["scores"].detach().var(),
            entropy.mean(),
            A.max(-1).values.mean(),
            to_scores.norm(dim=-1).median(),
            to_queries.norm(dim=-1).max(),
        ]
    )
