"""Order and length in translation, on a real model: which source words each target word attends to, and why the encoder
needs positions.

In: two English phrases for the bundled translator. Out: their cross attention by words, and the first phrase again without
the encoder's positions and with its words in another order.
"""

from collections.abc import Sequence

import numpy as np

from regard.explain.trace import Array
from regard.model.transformer import EncoderDecoder
from regard.nn.see import watching
from regard.teach.lesson.step import Load, LoadedModel, Step

MODEL, SITE = "toy-translate", "decoder.1.cross"
AREA, GARDEN = "the European Economic Area", "The queen's garden is small."
MAX_TOKENS = 32  # of a translation; the phrases need a dozen

Words = list[list[int]]  # ids, grouped by words


def order_and_length(load: Load) -> list[Step]:
    model = load(MODEL)
    area, garden = (group_words(model, model.tokenizer.encode(text)) for text in (AREA, GARDEN))
    zone, jardin = (group_words(model, translate(model, flat(source))) for source in (area, garden))
    backwards = [*area[-2::-1], area[-1]]  # the end stays the end
    reversed_text = " ".join(word_texts(model, backwards)[:-1])
    state = {"model": MODEL, "text": AREA}
    here = {"depth": 2, "site": SITE}
    still, moved = (changes(model, area, backwards, positions)[:-1] for positions in (False, True))
    outputs = {p: [translation(model, each, p) for each in (area, backwards)] for p in (True, False)}
    return [
        Step(
            f"The model reads {AREA!r} and writes {decode(model, zone)!r}: as many words, in another order. It reads "
            f"{GARDEN!r} and writes {decode(model, jardin)!r}: more of them.",
            "words",
            np.array([[len(area) - 1.0, len(zone)], [len(garden) - 1.0, len(jardin)]]),
            rows=(AREA, GARDEN),
            columns=("read", "written"),
            state={**state, "depth": 0},
        ),
        Step(
            "Where the decoder looks as it begins each French word: cross attention of the last block, mean of its heads, "
            "pieces summed to words. The adjectives come in the opposite order, and the weights cross over; 'la' looks "
            "ahead at 'Area', whose gender it needs.",
            "A",
            cross_attention(model, area, zone),
            rows=word_texts(model, zone),
            columns=word_texts(model, area),
            state={**state, **here, "head": 0},
        ),
        Step(
            "Five words become seven: one source word may be looked at for several, and none has to be looked at at all.",
            "A",
            cross_attention(model, garden, jardin),
            rows=word_texts(model, jardin),
            columns=word_texts(model, garden),
            state={"model": MODEL, "text": GARDEN, **here, "head": 0},
        ),
        Step(
            f"Now without positions in the encoder, and the words backwards, {reversed_text!r}. "
            "Each word's encoding stays what it was, but for float32 rounding: attention alone sees a set, not a sequence.",
            "largest change",
            still,
            rows=word_texts(model, area)[:-1],
            state={**state, **here, "edits": {"encoder.embed.positions": "zero"}},
        ),
        Step(
            "With positions, as trained, every encoding also says where its word stands.",
            "largest change",
            moved,
            rows=word_texts(model, area)[:-1],
            state={**state, **here},
        ),
        Step(
            f"What it then writes. With positions {outputs[True][0]!r}, and for the words backwards {outputs[True][1]!r}. "
            f"Without, {outputs[False][0]!r} and {outputs[False][1]!r}.",
            "alike (1) or not (0)",
            np.array([[float(one == other)] for one, other in outputs.values()]),
            rows=("with positions", "without"),
        ),
    ]


def cross_attention(model: LoadedModel, source: Words, target: Words) -> Array:
    """Rows: queries that predict the first token of a target word. Columns: source words, their tokens' weights summed."""
    begins = [len(flat(target[:i])) for i in range(len(target))]  # the start token shifts positions by one
    captured: list[Array] = []

    def record(name: str, x: Array) -> Array:
        if name == f"{SITE}.weights":
            captured.append(x.mean(0))  # (target, source), over heads
        return x

    with watching(record):
        network(model)(np.array(flat(source)), np.array([start(model), *flat(target)]))
    return np.stack([part.sum(1) for part in split(captured[0][begins], source, 1)], 1)


def changes(model: LoadedModel, source: Words, other: Words, positions: bool) -> Array:
    """max |x - x'| of each source word's encodings, between one order and the other. (words, 1)"""
    encodings = [split(run_encoder(model, flat(each), positions), each, 0) for each in (source, other)]
    rows = [X - encodings[1][other.index(word)] for word, X in zip(source, encodings[0], strict=True)]
    return np.array([[np.abs(row).max()] for row in rows])


# ── running the model ───────────────────────────────────────────────────────────────────────────────────────────────


def network(model: LoadedModel) -> EncoderDecoder:
    assert isinstance(model.reference, EncoderDecoder)
    return model.reference


def start(model: LoadedModel) -> int:
    return network(model).spec.start_id or 0


def split(X: Array, groups: Words, axis: int) -> list[Array]:
    """An array split into words along a token axis."""
    return np.split(X, np.cumsum([len(word) for word in groups])[:-1], axis)


def translation(model: LoadedModel, source: Words, positions: bool = True) -> str:
    return model.tokenizer.decode(translate(model, flat(source), positions)).strip()


def translate(model: LoadedModel, ids: Sequence[int], positions: bool = True) -> list[int]:
    """Greedy decoding."""
    net, memory, target = network(model), run_encoder(model, ids, positions), [start(model)]
    while len(target) < MAX_TOKENS:
        logits = net.logits(net.states(np.array(target), memory))
        best = int(logits[-1].argmax())
        if best in net.spec.eos_ids:
            break
        target.append(best)
    return target[1:]


def run_encoder(model: LoadedModel, ids: Sequence[int], positions: bool) -> Array:
    """The encoder's output, (N, d), with positions or with zeros in their place."""

    def without(name: str, x: Array) -> Array:
        return np.zeros_like(x) if name == "encoder.embed.positions" and not positions else x

    with watching(without):
        encoded: Array = network(model).encode(np.array(ids))
    return encoded


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def group_words(model: LoadedModel, ids: Sequence[int]) -> Words:
    """Ids grouped into words: a token that begins with a space, and the end token, begin a word."""
    groups: Words = []
    for id, piece in zip(ids, model.tokenizer.pieces(ids), strict=True):
        if not groups or piece.startswith(" ") or id in network(model).spec.eos_ids:
            groups.append([])
        groups[-1].append(id)
    return groups


def flat(groups: Words) -> list[int]:
    return [id for group in groups for id in group]


def word_texts(model: LoadedModel, groups: Words) -> tuple[str, ...]:
    return tuple("".join(model.tokenizer.pieces(group)).strip() for group in groups)


def decode(model: LoadedModel, groups: Words) -> str:
    return model.tokenizer.decode(flat(groups)).strip()
