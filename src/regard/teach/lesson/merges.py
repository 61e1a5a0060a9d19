"""Byte-pair encoding: the most frequent pair of neighbours becomes one piece, again and again."""

from collections import Counter
from itertools import pairwise

import numpy as np

from regard.explain.trace import Array
from regard.teach.lesson.step import Load, Step, on_page

CORPUS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}  # how often each word was read (Sennrich et al., 2016)
NEW = "lowest"
TEXT = "The old king and the old woman"

Words = dict[tuple[str, ...], int]
Pair = tuple[str, str]


def byte_pairs(load: Load) -> list[Step]:
    words: Words = {tuple(word): count for word, count in CORPUS.items()}
    steps, learned = [], list[Pair]()
    steps.append(
        Step(
            "Four words, and how often each was read. At first every letter is a piece.",
            "count",
            np.array([[float(count)] for count in words.values()]),
            rows=tuple(map(spelt, words)),
        )
    )
    for turn in range(4):
        pairs = count_pairs(words)
        best = max(pairs, key=lambda pair: pairs[pair])
        steps.append(
            Step(
                (
                    "Neighbours are counted, over all words. The most frequent pair becomes a piece: "
                    if not turn
                    else "Counted again, with the new piece: "
                )
                + f"{best[0]!r} + {best[1]!r}.",
                "count of pairs",
                column(pairs, 6),
                rows=tuple(f"{a} + {b}" for a, b in leading(pairs, 6)),
                question="Which pair becomes a piece first?" if not turn else "",
                choices=tuple(f"{a} + {b}" for a, b in [("l", "o"), best, ("w", "e")]) if not turn else (),
                right=f"{best[0]} + {best[1]}",
            )
        )
        learned.append(best)
        words = {merge(word, best): count for word, count in words.items()}
    pieces = encode(NEW, learned)
    steps.append(
        Step(
            f"The word {NEW!r} was never read. It is spelt with the pieces that were learned: {spelt(pieces)}.",
            "letters",
            np.array([[float(len(piece)) for piece in pieces]]),
            columns=pieces,
            question=f"{NEW!r} was never read. How many pieces is it?",
            choices=("1", str(len(pieces)), str(len(NEW))),
            right=str(len(pieces)),
            answer="“low” of one word and “est” of others: no word is unknown, the rarest are only longer.",
        )
    )
    tokenizer = load("toy-gpt").tokenizer
    ids = tokenizer.encode(TEXT)
    steps.append(
        Step(
            f"The tokenizer of toy-gpt was made in this way, from stories. Its pieces of {TEXT!r}, with their numbers: "
            "frequent words are one piece, with the space before them.",
            "id",
            np.array([[float(id)] for id in ids]),
            rows=tuple(piece.replace(" ", "·") for piece in tokenizer.pieces(ids)),
            state=on_page(TEXT, 0),
        )
    )
    return steps


def count_pairs(words: Words) -> Counter[Pair]:
    pairs: Counter[Pair] = Counter()
    for word, count in words.items():
        for pair in pairwise(word):
            pairs[pair] += count
    return pairs


def merge(word: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    """The word with every occurrence of the pair as one piece."""
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return tuple(out)


def encode(word: str, learned: list[Pair]) -> tuple[str, ...]:
    """A word in the pieces that were learned, in the order in which they were."""
    pieces = tuple(word)
    for pair in learned:
        pieces = merge(pieces, pair)
    return pieces


def leading(pairs: Counter[Pair], most: int) -> list[Pair]:
    return sorted(pairs, key=lambda pair: -pairs[pair])[:most]


def column(pairs: Counter[Pair], most: int) -> Array:
    return np.array([[float(pairs[pair])] for pair in leading(pairs, most)])


def spelt(pieces: tuple[str, ...]) -> str:
    return " ".join(pieces)
