"""English–French pairs: noun phrases, numbers, dates, hours and short sentences in which order and length differ.

In come a seed, a split and an index; out comes a `Pair`. Every English text has exactly one French (the grammar settles
what English leaves open, see `bilingual.phrases`), so a model can be right. Sentences begin with a capital and end with
a mark; phrases, numbers and dates do not, though a phrase may be capitalised, and then both languages are. One text in
twelve is wholly in lower case, and so is its translation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toytext.bilingual import compounds, dates, nouns, numbers, phrases, sentences
from toytext.bilingual.french import spell
from toytext.bilingual.phrases import POSSESSIVES, Phrase
from toytext.draw import Dice, draw, write_lines

KIND = "translate"


@dataclass(frozen=True)
class Pair:
    source: str  # English
    target: str  # French


def example(seed: int, split: str, i: int) -> Pair:
    return draw(KIND, seed, split, i, any_pair, lambda pair: pair.source)


def write(path: str | Path, n: int, seed: int, split: str) -> None:
    """The first n pairs, a line each: English, a tab, French."""
    pairs = (example(seed, split, i) for i in range(n))
    write_lines(path, (f"{pair.source}\t{pair.target}" for pair in pairs))


def any_pair(dice: Dice) -> Pair:
    pair = dice.weigh(MIX)(dice)
    return Pair(pair.source.lower(), pair.target.lower()) if dice.chance(1 / 12) else pair


def sentence(dice: Dice) -> Pair:
    en, fr, mark = dice.weigh(SENTENCES)(dice)
    en = en.replace(" can not ", " cannot ")
    if dice.chance(0.4):
        en = _shortened(en)
    return Pair(_capital(en) + mark, _capital(spell(fr)) + (" ?" if mark == "?" else "."))


def noun_phrase(dice: Dice) -> Pair:
    return _phrase(dice, dice.weigh(PHRASES)(dice))


def institution(dice: Dice) -> Pair:
    return _phrase(dice, sentences.institution(dice))


def number(dice: Dice) -> Pair:
    n = dice.number(0, dice.weigh(((99, 2), (999, 2), (9_999, 2), (numbers.LAST, 4))))
    return Pair(numbers.english(n), numbers.french(n))


def date(dice: Dice) -> Pair:
    return Pair(*dates.date(dice))


def hour(dice: Dice) -> Pair:
    return Pair(*dates.what_time_it_is(dice))


def plain_phrase(dice: Dice) -> Phrase:
    determiners = ("the", "the", "the", "a", "a", "a", "this", "that", *POSSESSIVES)
    countable = ("every", "several", "many", "all", "number", "number", "numbered")
    return phrases.some_phrase(dice, ORDINARY, (*determiners, *countable), often=0.85)


def owned_phrase(dice: Dice) -> Phrase:
    return sentences.owned_phrase(dice, "KATWVLX")


def two_phrases(dice: Dice) -> Phrase:
    determiners = ("the", "a", *POSSESSIVES)
    one, other = (phrases.some_phrase(dice, ORDINARY, determiners, often=0.4) for _ in range(2))
    return Phrase(f"{one.en} and {other.en}", f"{one.fr} et {other.fr}", plural=True)


ORDINARY = tuple(noun for noun in nouns.NOUNS if noun.kinds != {"I"})
PHRASES: tuple[tuple[Callable[[Dice], Phrase], int], ...] = (
    (plain_phrase, 60),
    (owned_phrase, 12),
    (sentences.part_phrase, 8),
    (two_phrases, 10),
    (compounds.with_object_clause, 5),
    (compounds.with_subject_clause, 5),
)
SENTENCES: tuple[tuple[Callable[[Dice], sentences.Row], int], ...] = (
    (sentences.action, 22),
    (sentences.action_on_pronoun, 6),
    (sentences.happening, 12),
    (sentences.motion, 7),
    (sentences.giving, 6),
    (sentences.quality, 12),
    (sentences.comparison, 4),
    (sentences.whereabouts, 4),
    (sentences.existence, 5),
    (sentences.pointing, 3),
    (sentences.question, 4),
    (sentences.question_what, 2),
    (sentences.question_who, 2),
    (compounds.contrast, 4),
    (compounds.reason, 3),
    (compounds.sequel, 4),
    (compounds.relative, 3),
    (compounds.pointing_at, 1),
)
MIX: tuple[tuple[Callable[[Dice], Pair], int], ...] = (
    (sentence, 58),
    (noun_phrase, 20),
    (institution, 5),
    (number, 8),
    (date, 6),
    (hour, 3),
)
SHORTENINGS = tuple((f"{verb} not", f"{verb}n't") for verb in "do does did is are was were".split())


def _phrase(dice: Dice, phrase: Phrase) -> Pair:
    en, fr = phrase.en, spell(phrase.fr)
    if en[0].islower() and dice.chance(0.3):
        return Pair(_capital(en), _capital(fr))
    return Pair(en, fr)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _shortened(en: str) -> str:
    for full, short in SHORTENINGS:
        en = en.replace(f" {full} ", f" {short} ")
    return en
