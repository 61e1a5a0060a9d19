"""The residual stream of a live model: what attention and MLP of every block add, and what is left without the sum."""

import numpy as np

from regard.explain.logits import softmax
from regard.explain.trace import Array
from regard.nn.see import watching
from regard.teach.lesson.step import Load, LoadedModel, Step, on_page

TEXT = "The old king and the old"


def residual_stream(load: Load) -> list[Step]:
    model = load("toy-gpt")
    ids = np.array(model.tokenizer.encode(TEXT))
    seen, logits = run(model, ids)
    layers = sum(name.endswith(".out") and name.count(".") == 2 for name in seen if name.startswith("decoder."))
    into = [seen["embed.out"], *(seen[f"decoder.{i}.out"] for i in range(layers - 1))]
    P = softmax(logits.astype(np.float64))
    best = int(P.argmax())
    word = model.tokenizer.pieces([best])[0].strip()
    without = [softmax(run(model, ids, cut=i)[1].astype(np.float64))[best] for i in range(layers)]

    def lengths(i: int) -> list[float]:
        parts = (into[i], seen[f"decoder.{i}.attention.M"], seen[f"decoder.{i}.mlp.out"], seen[f"decoder.{i}.out"])
        return [float(np.linalg.norm(x[-1])) for x in parts]

    blocks = tuple(f"block {i}" for i in range(layers))
    lens = np.array([[cosine(x[-1], seen[f"decoder.{i}.out"][-1])] for i, x in enumerate(into)])
    return [
        Step(
            "A word's vector is never replaced. Attention and MLP read it, and add to it: out = x + attention + MLP. The "
            f"lengths of all four for the last word of {TEXT!r}.",
            "‖·‖",
            np.array([lengths(i) for i in range(layers)]),
            rows=blocks,
            columns=("x", "attention", "MLP", "out"),
            state=on_page(TEXT, 1),
        ),
        Step(
            "Proof: what is left of out when the three are taken away, at most. It is rounding.",
            "max |out - x - attention - MLP|",
            np.array([[float(np.abs(leftover(seen, into, i)).max())] for i in range(layers)]),
            rows=blocks,
        ),
        Step(
            "How much of its direction a word keeps from block to block: the cosine between before and after; 1 would be "
            "all.",
            "cos(x, out)",
            lens,
            rows=blocks,
        ),
        Step(
            "Without the sum around attention, of one block at a time, a block hands on what it found and forgets the "
            f"word itself. The probability of “{word}”, {P[best]:.1%} in the model as it is:",
            f"P({word})",
            np.array([[p] for p in without]),
            rows=blocks,
            question="In which block does forgetting the word hurt most?",
            choices=blocks,
            right=blocks[int(np.argmin(without))],
            state=on_page(TEXT, 0, edits={f"decoder.{int(np.argmin(without))}.residual_1": "off"}),
        ),
    ]


def run(model: LoadedModel, ids: Array, cut: int | None = None) -> tuple[dict[str, Array], Array]:
    """Everything seen, and the last logits. cut: a block whose attention is not added but taken instead of its input."""
    seen: dict[str, Array] = {}

    def keep(name: str, x: Array) -> Array:
        seen[name] = seen[f"decoder.{cut}.attention.M"] if cut is not None and name == f"decoder.{cut}.H" else x
        return seen[name]

    with watching(keep):
        logits: Array = model.reference(ids)
    return seen, logits[-1]


def leftover(seen: dict[str, Array], into: list[Array], i: int) -> Array:
    out: Array = seen[f"decoder.{i}.out"] - into[i] - seen[f"decoder.{i}.attention.M"] - seen[f"decoder.{i}.mlp.out"]
    return out


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
