"""Splits real corpora into training, validation and test files, in the current directory. README.md has the sources.

    python split.py fra-eng fra-eng.zip        → train.tsv, valid.tsv, test.tsv, long.tsv
    python split.py shakespeare input.txt      → train.txt, valid.txt

A sentence is held out with all its translations, and occurs once in the held-out file, with the first of them. `long.tsv`
has further held-out sentences, all of them long, since a random thousand has few such.
"""

import random
import sys
import zipfile
from pathlib import Path

VALID, TEST, LONG = 500, 1000, 300  # sentences
MANY = 14  # words, from which a sentence is long


def split_pairs(archive: Path, seed: int = 0) -> None:
    with zipfile.ZipFile(archive) as files:
        lines = files.read("fra.txt").decode("utf-8").splitlines()
    pairs = [line.split("\t")[:2] for line in lines]
    first = dict(reversed([(english, french) for english, french in pairs]))
    sentences = sorted(first)
    random.Random(seed).shuffle(sentences)
    test, valid, rest = sentences[:TEST], sentences[TEST : TEST + VALID], sentences[TEST + VALID :]
    long = [sentence for sentence in rest if len(sentence.split()) >= MANY][:LONG]
    for name, chosen in (("test", test), ("valid", valid), ("long", long)):
        write(f"{name}.tsv", [f"{english}\t{first[english]}" for english in chosen])
    aside = {*test, *valid, *long}
    write("train.tsv", [f"{english}\t{french}" for english, french in pairs if english not in aside])


def split_text(file: Path) -> None:
    text = file.read_text("utf-8")
    cut = int(0.9 * len(text))
    Path("train.txt").write_text(text[:cut], "utf-8")
    Path("valid.txt").write_text(text[cut:], "utf-8")


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(line + "\n" for line in lines), "utf-8")
    print(f"{name}: {len(lines):,} lines")


if __name__ == "__main__":
    {"fra-eng": split_pairs, "shakespeare": split_text}[sys.argv[1]](Path(sys.argv[2]))
