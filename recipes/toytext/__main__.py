"""`python -m toytext translate --n 1000 --seed 0 --split train --out pairs.tsv`: generated text in a file."""

import argparse
import sys
from collections.abc import Sequence

from regard.errors import RegardError
from toytext import reviews, stories, translate
from toytext.draw import SPLITS

WRITERS = {"translate": translate.write, "stories": stories.write, "reviews": reviews.write}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m toytext", description="Write generated text to a file.")
    parser.add_argument("kind", choices=WRITERS, help="what to write")
    parser.add_argument("--n", type=int, default=1000, help="how many examples (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--out", required=True, help="the file; for reviews it ends in .tsv, .jsonl or .conllu")
    chosen = parser.parse_args(arguments)
    try:
        WRITERS[chosen.kind](chosen.out, chosen.n, chosen.seed, chosen.split)
    except RegardError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
