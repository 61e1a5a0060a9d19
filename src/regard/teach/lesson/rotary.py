"""Rotary positions (RoPE): pairs of numbers of q and k are rotated by their position, and q·k knows the distance only."""

import numpy as np

from regard.explain.trace import Array
from regard.nn.operations import rotate
from regard.nn.position import Rotary
from regard.teach.lesson.step import Load, Step, matrix

N, FAR = 5, 100
SMOLLM2 = {"model": "smollm2", "text": "The capital of France is", "depth": 2, "site": "decoder.0.attention", "head": 0}


def rotary_positions(load: Load) -> list[Step]:
    places = np.arange(N)
    q = np.repeat(matrix("1 0"), N, 0)  # five equal words
    cos, sin = angles(2, places)
    near, far = rotated(q, places), rotated(q, places + FAR)
    four = np.repeat(matrix("1 1 0 0"), N, 0)
    slow = rotated(four, places)
    at, to = tuple(f"at {i}" for i in places), tuple(f"to {i}" for i in places)
    return [
        Step(
            "The same word in five places: the same q, two numbers. Without positions, nothing tells the five apart.",
            "q",
            q,
            rows=at,
        ),
        Step(
            "Each place p has an angle p θ, here θ = 1: its cosine and its sine.",
            "cos p θ, sin p θ",
            np.concatenate([cos, sin], 1),
            rows=at,
            columns=("cos", "sin"),
        ),
        Step("q, rotated by the angle of its place. Its length stays 1.", "R q", near, rows=at, columns=("q₁", "q₂")),
        Step(
            "Query times key for every pair of places, k rotated in the same way. Look along the diagonals.",
            "q·k = cos((i - j) θ)",
            near @ near.T,
            rows=at,
            columns=to,
            question="What does q·k depend on?",
            choices=("on both places", "on their distance only", "I don’t know"),
            right="on their distance only",
            answer="On their distance only: every diagonal has one value. Rotating both by the same angle changes nothing.",
            state={**SMOLLM2, "matrix": "decoder.0.attention.dots"},
        ),
        Step(
            f"Proof: the same five words {FAR} places later. What changes is rounding.",
            f"q·k at {FAR} … - q·k at 0 …",
            far @ far.T - near @ near.T,
            rows=at,
            columns=to,
        ),
        Step(
            "A head has many pairs, each slower than the one before: of four numbers the second pair has θ = 0.01. Fast "
            "pairs tell neighbours apart, slow ones what is far.",
            "R q, d_k = 4",
            slow,
            rows=at,
            columns=("fast cos", "slow cos", "fast sin", "slow sin"),
            state=SMOLLM2,
        ),
    ]


def angles(d_k: int, places: Array) -> tuple[Array, Array]:
    cos, sin = Rotary(d_k).forward(places)
    return cos, sin


def rotated(Q: Array, places: Array) -> Array:
    """Each row rotated by its place, as a model does it."""
    out: Array = rotate(Q[None], *angles(Q.shape[-1], places))[0]
    return out
