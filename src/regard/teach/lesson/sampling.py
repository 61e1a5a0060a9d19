"""Sampling: logits of a live model become probabilities; temperature, top-k and top-p change them; a seed draws one."""

import numpy as np

from regard.engine.sampling import RowState, distribution, next_ids, random_bits
from regard.engine.settings import Settings
from regard.explain.trace import Array
from regard.teach.lesson.step import Load, LoadedModel, Step, on_page

TEXT = "The girl and the"
SHOWN, K, P, SEED = 8, 3, 0.6, 4


def next_word(load: Load) -> list[Step]:
    model = load("toy-gpt")
    logits = last_logits(model)
    order = np.argsort(-logits, kind="stable")[:SHOWN]
    names = tuple(model.tokenizer.pieces([int(i)])[0].replace(" ", "·") for i in order)

    def chances(**settings: float) -> Array:
        given: dict[str, float] = {"temperature": 1.0, **settings}
        return distribution(logits[None], [RowState(Settings(**given), [])])[0]  # type: ignore[arg-type]

    plain, cold, hot = chances(), chances(temperature=0.5), chances(temperature=2.0)
    few, core = chances(top_k=K), chances(top_p=P)
    u = random_bits(SEED, 0, 0) / 2**64
    row = RowState(Settings(temperature=1.0, seed=SEED), [])
    drawn = int(next_ids(logits[None], [row])[0][0])
    word = model.tokenizer.pieces([drawn])[0].strip()
    best = names[0].strip("·")
    scene = on_page(TEXT, 0)
    table = {**scene, "stage": "output"}
    return [
        Step(
            f"After {TEXT!r} toy-gpt has a score for every piece of its vocabulary: a logit. The {SHOWN} highest of "
            f"{len(logits)}.",
            "logits",
            logits[order][:, None],
            rows=names,
            state=scene,
        ),
        Step(
            "e to the power of each, divided by their sum: probabilities.",
            "softmax(logits)",
            plain[order][:, None],
            rows=names,
            state={**table, "temperature": 1, "top_k": 0},
        ),
        Step(
            "Temperature divides the logits before. Below 1 the likeliest gains, above 1 all come closer; at 0 the "
            "likeliest is always taken.",
            "softmax(logits/T)",
            np.stack([cold, plain, hot], 1)[order],
            rows=names,
            columns=("T = 0.5", "T = 1", "T = 2"),
            question=f"With temperature 2, does “{best}” become more or less likely?",
            choices=("more", "less", "I don’t know"),
            right="less" if hot[order[0]] < plain[order[0]] else "more",
            state={**table, "temperature": 2, "top_k": 0},
        ),
        Step(
            f"Top-k keeps the {K} likeliest and shares all probability out among them; top-p keeps the likeliest until "
            f"they have {P:.0%} together.",
            "after the cut",
            np.stack([plain, few, core], 1)[order],
            rows=names,
            columns=("all", f"top-k {K}", f"top-p {P}"),
            state={**table, "temperature": 1, "top_k": K},
        ),
        Step(
            f"Then a number between 0 and 1 is drawn and laid along the probabilities, largest first. Seed {SEED} gives "
            f"{u:.4f}, which falls on “{word}”. The same seed gives the same text, on every machine.",
            "sum so far",
            np.cumsum(plain[order])[:, None],
            rows=names,
            state={**table, "temperature": 1, "top_k": 0, "seed": SEED},
        ),
    ]


def last_logits(model: LoadedModel) -> Array:
    """Logits after the text, (n_vocab,)."""
    logits: Array = model.reference(np.array(model.tokenizer.encode(TEXT)))
    return logits[-1]
