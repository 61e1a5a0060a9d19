"""Review-like sentences about films, with a sentiment and the universal part of speech of every token.

In come a seed, a split and an index; out comes a `Review`. What it says is a list of opinions, and one rule makes the
label of them: an opinion about the film as a whole decides; without one, opinions about its parts decide if they agree,
and are neutral together if they do not ("amazing visuals, but a boring story"); no opinion at all is neutral. `not`
turns an opinion round, an intensifier does not, and neither does what is said of the weather.

Tags follow the English treebanks of Universal Dependencies: `my` is PRON, `was` AUX, `yesterday` NOUN.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from toytext import opinions
from toytext.draw import Dice, draw, write_lines
from toytext.opinions import Opinion

KIND = "reviews"
LABELS = ("negative", "neutral", "positive")
GLUED = frozenset(".,")  # written without a space before them


@dataclass(frozen=True)
class Review:
    text: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    label: str


def example(seed: int, split: str, i: int) -> Review:
    return draw(KIND, seed, split, i, review, lambda made: made.text)


def write(path: str | Path, n: int, seed: int, split: str) -> None:
    """The first n reviews: `.tsv` for text and label, `.jsonl` for everything, `.conllu` for words and tags."""
    forms = {".tsv": _tsv, ".jsonl": _jsonl, ".conllu": _conllu}
    ending = Path(path).suffix
    if ending not in forms:
        raise DataError(f"{path} does not say how to write reviews; end it in {', '.join(forms)}.")
    write_lines(path, (forms[ending](example(seed, split, i)) for i in range(n)))


def review(dice: Dice) -> Review:
    """What is thought of a film, perhaps after what happened around it; now and then the latter alone."""
    text, said = dice.weigh(opinions.JUDGEMENTS)(dice)
    sentences = [text]
    if dice.chance(0.35):
        sentences.insert(0, opinions.context(dice))
    if dice.chance(0.06):
        sentences, said = [opinions.context(dice)], ()
    return compose(sentences, said, dice.pick(("film/NOUN", "movie/NOUN")))


def compose(sentences: Sequence[str], said: Sequence[Opinion], whole: str) -> Review:
    """A review of sentences with their tags and the opinions they state, calling the film by one name throughout."""
    marked = " ".join(_sentence(sentence) for sentence in sentences).replace(opinions.WHOLE, whole)
    words, tags = zip(*(token.rsplit("/", 1) for token in marked.split()), strict=True)
    return Review(joined(words), words, tags, label_of(said))


def label_of(said: Sequence[Opinion]) -> str:
    """The label that opinions make together (the module's docstring says the rule)."""
    deciding = [opinion for opinion in said if opinion.whole] or said
    signs = {opinion.sign for opinion in deciding}
    return LABELS[1 + signs.pop()] if len(signs) == 1 else "neutral"


def joined(words: Sequence[str]) -> str:
    """The text of the words: a space before each but the first and the marks."""
    return "".join(word if i == 0 or word in GLUED else f" {word}" for i, word in enumerate(words))


def _sentence(marked: str) -> str:
    return f"{marked[0].upper()}{marked[1:]} ./PUNCT"


def _tsv(made: Review) -> str:
    return f"{made.text}\t{made.label}"


def _jsonl(made: Review) -> str:
    return json.dumps({"text": made.text, "label": made.label, "tokens": made.words, "tags": made.tags})


def _conllu(made: Review) -> str:
    """One review, its sentences together, as ten columns a token of which four are known."""
    rows = [f"# text = {made.text}", f"# label = {made.label}"]
    following = (*made.words[1:], "")
    for i, (word, tag, after) in enumerate(zip(made.words, made.tags, following, strict=True), 1):
        space = "SpaceAfter=No" if after in GLUED else "_"
        rows.append("\t".join((str(i), word, "_", tag, *"_____", space)))
    return "\n".join(rows) + "\n"
