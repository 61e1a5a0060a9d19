"""Lessons: the lectures' examples computed step by step, and their claims measured on real parts and models.

A lesson is a list of steps; a step has a sentence, a formula and the resulting matrix, computed when the lesson is shown.
The terminal and the page show the same steps: exact values, with the lecture's rounded ones next to them.
"""

from regard.errors import NotFound, require
from regard.teach.lesson.cache import kv_cache
from regard.teach.lesson.grouped import grouped_queries
from regard.teach.lesson.heads import two_heads
from regard.teach.lesson.masks import masks
from regard.teach.lesson.merges import byte_pairs
from regard.teach.lesson.order import order_and_length
from regard.teach.lesson.rotary import rotary_positions
from regard.teach.lesson.sampling import next_word
from regard.teach.lesson.scaling import why_scale
from regard.teach.lesson.step import Lesson, Load, LoadedModel, Step
from regard.teach.lesson.stream import residual_stream
from regard.teach.lesson.worked import pizza, residual_and_norm, the_cat_sat, three_inputs

__all__ = ["LESSONS", "Lesson", "LoadedModel", "Step", "lesson"]


def gradient_flow(load: Load) -> list[Step]:
    require("torch", "The lesson gradient-flow")
    from regard.teach.lesson import gradient

    return gradient.gradient_flow(load)


LESSONS = {
    "three-inputs": Lesson("Self-attention on three inputs", ("input 1", "input 2", "input 3"), three_inputs),
    "the-cat-sat": Lesson("The cat sat: scores, scaling, softmax", ("The", "cat", "sat"), the_cat_sat),
    "pizza": Lesson("Pizza is awesome", ("Pizza", "is", "awesome", "<EOS>"), pizza),
    "layernorm": Lesson("Residual connection and LayerNorm", ("h₁", "h₂", "h₃"), residual_and_norm),
    "scaling": Lesson("Why √d_k: what softmax and its gradient do without it", (), why_scale),
    "masks": Lesson("Masks: what −∞ does", ("The", "cat", "sat"), masks),
    "multi-head": Lesson("Two heads side by side, and W_o", ("The", "cat", "sat"), two_heads),
    "translation": Lesson("Order and length in translation", (), order_and_length),
    "bpe": Lesson("Byte-pair encoding: from letters to pieces", (), byte_pairs),
    "rotary": Lesson("Rotary positions: only the distance counts", (), rotary_positions),
    "grouped-queries": Lesson(
        "Grouped queries: heads that share keys and values", ("The", "cat", "sat"), grouped_queries
    ),
    "kv-cache": Lesson("The KV cache: what is computed once", ("The", "cat", "sat", "down"), kv_cache),
    "sampling": Lesson("Sampling: from logits to the next word", (), next_word),
    "residual-stream": Lesson("The residual stream: what every block adds", (), residual_stream),
    "gradient-flow": Lesson("What residuals and norms do to the gradient", (), gradient_flow),
}


def lesson(name: str) -> Lesson:
    if name not in LESSONS:
        raise NotFound(f"There is no lesson {name!r}; there are {', '.join(LESSONS)}.")
    return LESSONS[name]
