"""Lessons: the lectures' examples worked number by number, and what they claim, measured on real parts and models.

A lesson is a list of steps; a step has a sentence, a formula and the matrix that comes out, computed here and now. The
terminal and the page show the same steps. Exact values stand first, and what the lecture wrote by hand beside them.
"""

from regard.errors import NotFound
from regard.explain.lesson.gradient import gradient_flow
from regard.explain.lesson.heads import two_heads
from regard.explain.lesson.masks import masks
from regard.explain.lesson.order import order_and_length
from regard.explain.lesson.scaling import why_scale
from regard.explain.lesson.step import Lesson, Ready, Step
from regard.explain.lesson.worked import pizza, residual_and_norm, the_cat_sat, three_inputs

__all__ = ["LESSONS", "Lesson", "Ready", "Step", "lesson"]

LESSONS = {
    "three-inputs": Lesson("Self-attention on three inputs", ("input 1", "input 2", "input 3"), three_inputs),
    "the-cat-sat": Lesson("The cat sat: scores, scaling, softmax", ("The", "cat", "sat"), the_cat_sat),
    "pizza": Lesson("Pizza is awesome", ("Pizza", "is", "awesome", "<EOS>"), pizza),
    "layernorm": Lesson("Residual connection and LayerNorm", ("h₁", "h₂", "h₃"), residual_and_norm),
    "scaling": Lesson("Why √d_k: what softmax and its gradient do without it", (), why_scale),
    "masks": Lesson("Masks: what −∞ does", ("The", "cat", "sat"), masks),
    "multi-head": Lesson("Two heads side by side, and W_o", ("The", "cat", "sat"), two_heads),
    "translation": Lesson("Order and length in translation", (), order_and_length),
    "gradient-flow": Lesson("What residuals and norms do to the gradient", (), gradient_flow),
}


def lesson(name: str) -> Lesson:
    if name not in LESSONS:
        raise NotFound(f"There is no lesson {name!r}; there are {', '.join(LESSONS)}.")
    return LESSONS[name]
