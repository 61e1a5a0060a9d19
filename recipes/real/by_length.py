"""BLEU and chrF of translation models by the length of the source, as a table.

    python by_length.py test.tsv,long.tsv runs/transformer runs/gru

Buckets are by the words of the source; translations are by beam search with four beams. BLEU and chrF are sacrebleu's.
"""

import sys
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF

import regard

BUCKETS = ((1, 4), (5, 8), (9, 13), (14, 19), (20, 99))  # words, first and last


def main(files: str, *models: str) -> None:
    lines = [line for name in files.split(",") for line in Path(name).read_text("utf-8").splitlines()]
    pairs = [line.split("\t") for line in lines]
    print("| words | sentences |", *(f"{model} BLEU | chrF |" for model in models))
    print("|---|---|", "---|---|" * len(models), sep="")
    written = [regard.load(model).translate([source for source, _ in pairs]) for model in models]
    for first, last in BUCKETS:
        chosen = [i for i, (source, _) in enumerate(pairs) if first <= len(source.split()) <= last]
        if chosen:
            cells = [scores([guesses[i] for i in chosen], [pairs[i][1] for i in chosen]) for guesses in written]
            print(f"| {first} to {last} | {len(chosen)} |", *cells)


def scores(guesses: list[str], references: list[str]) -> str:
    bleu, chrf = (metric.corpus_score(guesses, [references]).score for metric in (BLEU(), CHRF()))
    return f"{bleu:.1f} | {chrf:.1f} |"


if __name__ == "__main__":
    main(*sys.argv[1:])
