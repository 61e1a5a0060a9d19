"""Order and length in translation, on a live model: which source words each written word looks at, and why the encoder
must be told where words stand.

In: two English phrases for the bundled translator. Out: their cross attention by words, and the first one again with the
encoder's positions taken away and its words in another order.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.explain.lesson.step import Load, Ready, Step
from regard.model.transformer import EncoderDecoder
from regard.nn.see import watching

MODEL, SITE = "toy-translate", "decoder.1.cross"
AREA, GARDEN = "the European Economic Area", "The queen's garden is small."
LONGEST = 32  # tokens; the phrases need a dozen

Words = list[list[int]]  # ids, grouped by words


def order_and_length(load: Load) -> list[Step]:
    model = load(MODEL)
    area, garden = (words(model, model.tokenizer.encode(text)) for text in (AREA, GARDEN))
    zone, jardin = (words(model, translate(model, flat(source))) for source in (area, garden))
    backwards = [*area[-2::-1], area[-1]]  # the end stays the end
    state = {"model": MODEL, "text": AREA}
    here = {"stage": "attention", "site": SITE}
    still, moved = (changes(model, area, backwards, positions)[:-1] for positions in (False, True))
    told = {p: [written(model, each, p) for each in (area, backwards)] for p in (True, False)}
    return [
        Step(
            f"The model reads {AREA!r} and writes {said(model, zone)!r}: as many words, in another order. It reads "
            f"{GARDEN!r} and writes {said(model, jardin)!r}: more of them.",
            "words",
            torch.tensor([[len(area) - 1.0, len(zone)], [len(garden) - 1.0, len(jardin)]]),
            rows=(AREA, GARDEN),
            columns=("read", "written"),
            state={**state, "stage": "tokens"},
        ),
        Step(
            "Where the decoder looks as it begins each French word: cross attention of the last block, mean of its heads, "
            "pieces summed to words. The adjectives come in the opposite order, and the weights cross over; 'la' looks "
            "ahead at 'Area', whose gender it needs.",
            "A",
            looked_at(model, area, zone),
            rows=spelt(model, zone),
            columns=spelt(model, area),
            state={**state, **here, "head": 0},
        ),
        Step(
            "Five words become seven: one source word may be looked at for several, and none has to be looked at at all.",
            "A",
            looked_at(model, garden, jardin),
            rows=spelt(model, jardin),
            columns=spelt(model, garden),
            state={"model": MODEL, "text": GARDEN, **here, "head": 0},
        ),
        Step(
            f"Now without positions in the encoder, and the words backwards, {' '.join(spelt(model, backwards)[:-1])!r}. "
            "Each word's encoding stays what it was, but for float32 rounding: attention alone sees a set, not a sequence.",
            "largest change",
            still,
            rows=spelt(model, area)[:-1],
            state={**state, **here, "edits": {"encoder.embed.positions": "zero"}},
        ),
        Step(
            "With positions, as trained, every encoding also says where its word stands.",
            "largest change",
            moved,
            rows=spelt(model, area)[:-1],
            state={**state, **here},
        ),
        Step(
            f"What it then writes. With positions {told[True][0]!r}, and for the words backwards {told[True][1]!r}. "
            f"Without, {told[False][0]!r} and {told[False][1]!r}.",
            "alike (1) or not (0)",
            torch.tensor([[float(one == other)] for one, other in told.values()]),
            rows=("with positions", "without"),
        ),
    ]


def looked_at(model: Ready, source: Words, target: Words) -> Tensor:
    """Rows: the state that begins each target word. Columns: source words, their pieces' weights summed."""
    begins = [len(flat(target[:i])) for i in range(len(target))]  # the start token is one place before the first word
    seen: list[Tensor] = []

    def keep(name: str, x: Tensor) -> Tensor:
        if name == f"{SITE}.weights":
            seen.append(x[0].mean(0))  # (target, source), over heads
        return x

    with torch.no_grad(), watching(keep):
        network(model)(batch(model, flat(source)), batch(model, [start(model), *flat(target)]))
    A = seen[0][begins]
    return torch.stack([part.sum(1) for part in A.split([len(word) for word in source], 1)], 1)


def changes(model: Ready, source: Words, other: Words, positions: bool) -> Tensor:
    """max |x - x'| of each source word's encodings, between one order and the other. (words, 1)"""
    encodings = []
    for each in (source, other):
        X = run_encoder(model, flat(each), positions)[0]
        encodings.append(list(X.split([len(word) for word in each])))
    rows = [X - encodings[1][other.index(word)] for word, X in zip(source, encodings[0], strict=True)]
    return torch.stack([row.abs().max() for row in rows])[:, None]


# ── running the model ───────────────────────────────────────────────────────────────────────────────────────────────


def network(model: Ready) -> EncoderDecoder:
    assert isinstance(model.net, EncoderDecoder)
    return model.net


def start(model: Ready) -> int:
    return model.net.spec.start_id or 0


def batch(model: Ready, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=next(model.net.parameters()).device)  # (1, N)


def written(model: Ready, source: Words, positions: bool = True) -> str:
    return model.tokenizer.decode(translate(model, flat(source), positions)).strip()


@torch.no_grad()
def translate(model: Ready, ids: Sequence[int], positions: bool = True) -> list[int]:
    """The likeliest piece, again and again, until the end."""
    net, memory, target = network(model), run_encoder(model, ids, positions), [start(model)]
    while len(target) < LONGEST:
        logits = net.logits(net.states(batch(model, target), memory))
        best = int(logits[0, -1].argmax())
        if best in net.spec.eos_ids:
            break
        target.append(best)
    return target[1:]


@torch.no_grad()
def run_encoder(model: Ready, ids: Sequence[int], positions: bool) -> Tensor:
    """(1, N, d). The readable definition computes, whether or not the positions are taken away."""

    def without(name: str, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if name == "encoder.embed.positions" and not positions else x

    with watching(without):
        return network(model).encode(batch(model, ids))


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(model: Ready, ids: Sequence[int]) -> Words:
    """Pieces grouped: one that begins with a space, or that ends the text, begins a word."""
    groups: Words = []
    for id, piece in zip(ids, model.tokenizer.pieces(ids), strict=True):
        if not groups or piece.startswith(" ") or id in model.net.spec.eos_ids:
            groups.append([])
        groups[-1].append(id)
    return groups


def flat(groups: Words) -> list[int]:
    return [id for group in groups for id in group]


def spelt(model: Ready, groups: Words) -> tuple[str, ...]:
    return tuple("".join(model.tokenizer.pieces(group)).strip() for group in groups)


def said(model: Ready, groups: Words) -> str:
    return model.tokenizer.decode(flat(groups)).strip()
