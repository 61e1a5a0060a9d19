"""Small English stories of three to eight sentences in which early words decide late ones.

In come a seed, a split and an index; out comes a `Story`. The first sentence settles the tense, who there is and how
many of them; every later verb agrees with them, also across a phrase in between, and every `he`, `she`, `they` and `it`
has one antecedent, because no two characters of a story share a pronoun.

A plot (in `plots`) is a row of beats, and a beat a choice of templates for Python's `format`, whose fields are the
characters and things of the story. What follows the colon is how one is spoken of: `{a:first}` when it first appears,
`{a}` later, `{a:long}` with a phrase that tempts the verb to agree with something else, `{a:he}`, `{a:him}`,
`{a:his}`, and any other word is a verb that it does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toytext import plots
from toytext.draw import Dice, draw, write_lines

KIND = "stories"


@dataclass(frozen=True)
class Story:
    text: str


def example(seed: int, split: str, i: int) -> Story:
    return draw(KIND, seed, split, i, story, lambda made: made.text)


def write(path: str | Path, n: int, seed: int, split: str) -> None:
    """The first n stories, one on a line."""
    write_lines(path, (example(seed, split, i).text for i in range(n)))


def inflect(base: str, plural: bool, past: bool) -> str:
    """A verb in the third person."""
    if base == "be":
        return ("were" if past else "are") if plural else ("was" if past else "is")
    if past:
        return plots.PAST[base]
    if plural:
        return base
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeou":
        return base.removesuffix("y") + "ies"
    return base + ("es" if base.endswith(("ch", "sh", "s", "x", "o")) else "s")


@dataclass(frozen=True)
class Entity:
    """Somebody or something of a story, which formats itself as the template asks."""

    first: str
    name: str
    pronouns: tuple[str, str, str]  # he him his
    past: bool
    between: str = ""  # a phrase that may stand between it and its verb

    def __format__(self, how: str) -> str:
        ways = {"": self.name, "first": self.first, "long": self.name + self.between}
        ways |= dict(zip(("he", "him", "his"), self.pronouns, strict=True))
        return ways[how] if how in ways else inflect(how, self.pronouns == THEY, self.past)


HE, SHE, THEY, IT = ("he", "him", "his"), ("she", "her", "her"), ("they", "them", "their"), ("it", "it", "its")


def story(dice: Dice) -> Story:
    past = dice.chance(0.6)
    fields = _fields(dice, past)
    sentences = [dice.pick(beat).format(**fields) for beat in _beats(dice)]
    return Story(" ".join(_sentence(text) for text in sentences))


def _beats(dice: Dice) -> list[Sequence[str]]:
    """The beats of a plot that are told: those that may be left out begin with an empty template."""
    beats = dice.pick(plots.PLOTS)
    return [beat if beat[0] else beat[1:] for beat in beats if beat[0] or dice.chance(0.6)]


def _fields(dice: Dice, past: bool) -> dict[str, object]:
    """Everything a template may name: a cast in which no pronoun is shared, and words drawn once for the whole story."""
    one, other = dice.two((HE, SHE, THEY))
    third, fourth = dice.two((HE, SHE))
    thing, animal, food = (dice.pick(words) for words in (plots.THINGS, plots.ANIMALS, plots.FOODS))
    colour = dice.pick(plots.COLOURS)
    cast = {
        "a": character(dice, one, past),
        "b": character(dice, other, past),
        "c": character(dice, third, past),
        "d": character(dice, fourth, past),
        "thing": Entity(f"a {colour} {thing}", f"the {colour} {thing}", IT, past, f" {dice.pick(plots.ON_THINGS)}"),
        "animal": Entity(f"a {dice.pick(plots.SIZES)} {animal}", f"the {animal}", IT, past),
        "food": Entity(f"a {food}", f"the {food}", IT, past),
        "it": Entity("it", "it", IT, past),  # any one thing, for its verb
        "they": Entity("they", "they", THEY, past),  # any several, for their verb
    }
    return cast | {name: dice.pick(words) for name, words in plots.WORDS.items()}


def character(dice: Dice, pronouns: tuple[str, str, str], past: bool) -> Entity:
    """Somebody named, or described: then a phrase can stand between them and their verb."""
    if pronouns == THEY:
        kind, beside = dice.pick(plots.GROUPS), dice.pick(plots.BESIDE_ONE)
        return Entity(f"{dice.pick(plots.NUMBERS)} {kind}", f"the {kind}", pronouns, past, f" {beside}")
    people, names = (plots.MEN, plots.BOYS) if pronouns == HE else (plots.WOMEN, plots.GIRLS)
    if dice.chance(0.6):
        name = dice.pick(names)
        clause = f", who {inflect('have', False, past)} {dice.pick(plots.NUMBERS)} {dice.pick(plots.HAD)},"
        return Entity(name, name, pronouns, past, clause)
    person, beside = dice.pick(people), dice.pick(plots.BESIDE_MANY)
    return Entity(f"a {person}", f"the {person}", pronouns, past, f" {beside}")


def _sentence(text: str) -> str:
    """A capital in front, and `an` before a vowel."""
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return text[0].upper() + text[1:]
