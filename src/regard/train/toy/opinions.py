"""What reviews say: opinions about a film and its parts, facts about it, and what happened around it.

Every word carries its tag, `word/TAG`, from the moment it is chosen, so no tagger is ever needed. A clause comes with
the opinions it states; facts and context state none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.train.toy.draw import Dice


@dataclass(frozen=True)
class Opinion:
    whole: bool  # about the film, not a part of it
    sign: int  # 1 or -1


Said = tuple[str, tuple[Opinion, ...]]  # words with their tags, and what is thought


def _tagged(tag: str, words: str) -> tuple[str, ...]:
    """Every word with the tag, each an option of its own."""
    return tuple(f"{word}/{tag}" for word in words.split())


QUALITIES = {
    1: _tagged(
        "ADJ", "amazing wonderful brilliant great good funny beautiful touching exciting clever charming excellent"
    ),
    -1: _tagged("ADJ", "boring terrible bad dull awful weak slow silly ugly confusing predictable annoying"),
}
FEELINGS = {1: ("loved", "enjoyed", "liked", "adored"), -1: ("hated", "disliked")}
FEELINGS_DENIED = {1: (), -1: ("love", "enjoy", "like")}  # "I did not like it"
EFFECTS = {1: _tagged("VERB", "impressed moved delighted"), -1: _tagged("VERB", "disappointed bored annoyed")}
WHOLES = _tagged("NOUN", "movie film")
PARTS = _tagged("NOUN", "story plot acting music ending script dialogue cast soundtrack photography")
MANY_PARTS = _tagged("NOUN", "visuals actors songs jokes characters effects costumes scenes")
INTENSIFIERS = _tagged("ADV", "very really quite so extremely rather truly")
DENIED_INTENSIFIERS = _tagged("ADV", "very really")
JUDGES = ("I/PRON", "we/PRON", "my/PRON wife/NOUN", "my/PRON friends/NOUN", "everybody/PRON", "the/DET children/NOUN")
MOVED = ("me/PRON", "us/PRON", "everybody/PRON")
CLOSENESS = ("the/DET", "the/DET", "this/DET")

TIMES = (
    "yesterday/NOUN",
    "on/ADP Friday/PROPN",
    "on/ADP Sunday/PROPN",
    "in/ADP March/PROPN",
    "two/NUM days/NOUN ago/ADV",
)
PEOPLE = (
    "my/PRON friends/NOUN",
    "my/PRON brother/NOUN",
    "our/PRON neighbours/NOUN",
    "we/PRON",
    "the/DET children/NOUN",
    "Anna/PROPN and/CCONJ Paul/PROPN",
    "Marie/PROPN",
)
VENUES = _tagged("NOUN", "cinema theatre festival")
WEATHERS = _tagged("ADJ", "nasty cold wet terrible warm lovely bad grey")
SKIES = ("weather/NOUN", "sky/NOUN", "day/NOUN", "evening/NOUN")
RAINS = ("it/PRON was/AUX raining/VERB", "it/PRON rained/VERB", "the/DET rain/NOUN did/AUX not/PART stop/VERB")
CONSEQUENCES = (
    "stayed/VERB at/ADP home/NOUN",
    "went/VERB to/ADP the/DET cinema/NOUN",
    "took/VERB an/DET umbrella/NOUN",
    "closed/VERB the/DET windows/NOUN",
)
KINDS_OF_HERO = _tagged("ADJ", "young old French rich poor famous")
HEROES = _tagged("NOUN", "doctor sailor teacher king woman soldier writer")
COUNTS = _tagged("NUM", "two three four ten")
ACTORS = _tagged("PROPN", "Anna Paul Marie Omar Victor")


def signed(dice: Dice) -> int:
    return dice.pick((1, -1))


def quality(dice: Dice, sign: int, bare: bool = False) -> str:
    """An adjective or, unless it must be bare, one with an intensifier or a denied opposite: "not very good"."""
    how = 0.0 if bare else dice.random()
    if how < 0.5:
        return dice.pick(QUALITIES[sign])
    if how < 0.8:
        return f"{dice.pick(INTENSIFIERS)} {dice.pick(QUALITIES[sign])}"
    degree = f"{dice.pick(DENIED_INTENSIFIERS)} " if dice.chance(0.4) else ""
    return f"not/PART {degree}{dice.pick(QUALITIES[-sign])}"


def feeling(dice: Dice, sign: int) -> str:
    """A verb for what somebody felt, denied or not."""
    if sign < 0 and dice.chance(0.5):
        return f"did/AUX not/PART {dice.pick(FEELINGS_DENIED[sign])}/VERB"
    return f"{dice.pick(FEELINGS[sign])}/VERB"


def about_part(dice: Dice, sign: int) -> Said:
    """An opinion about the story, the visuals and so on."""
    many = dice.chance(0.4)
    part = dice.pick(MANY_PARTS if many else PARTS)
    form = dice.below(4)
    if form == 0:
        verb = dice.pick(("had/VERB", "has/VERB"))
        article = "" if many else "a/DET "
        text = f"{dice.pick(CLOSENESS)} {dice.pick(WHOLES)} {verb} {article}{quality(dice, sign, bare=True)} {part}"
    elif form == 1:
        text = f"the/DET {part} {'were' if many else 'was'}/AUX {quality(dice, sign)}"
    elif form == 2:
        text = f"the/DET {part} {dice.pick(EFFECTS[sign])} {dice.pick(MOVED)}"
    else:
        text = f"{dice.pick(JUDGES)} {feeling(dice, sign)} the/DET {part}"
    return _with_an(text), (Opinion(False, sign),)


def about_whole(dice: Dice, sign: int) -> Said:
    """An opinion about the film."""
    whole = f"{dice.pick(CLOSENESS)} {dice.pick(WHOLES)}"
    form = dice.below(5)
    if form == 0:
        text = f"{whole} was/AUX {quality(dice, sign)}"
    elif form == 1:
        text = f"{dice.pick(JUDGES)} {feeling(dice, sign)} {whole}"
    elif form == 2:
        text = f"it/PRON was/AUX a/DET {quality(dice, sign, bare=True)} {dice.pick(WHOLES)}"
    elif form == 3:
        text = f"{whole} {dice.pick(EFFECTS[sign])} {dice.pick(MOVED)}"
    elif sign > 0:
        text = f"{dice.pick(JUDGES)} will/AUX see/VERB {whole} again/ADV"
    else:
        text = f"{whole} was/AUX a/DET waste/NOUN of/ADP time/NOUN"
    return _with_an(text), (Opinion(True, sign),)


def either(dice: Dice, sign: int) -> Said:
    return (about_whole if dice.chance(0.3) else about_part)(dice, sign)


def single(dice: Dice) -> Said:
    return (about_whole if dice.chance(0.5) else about_part)(dice, signed(dice))


def agreement(dice: Dice) -> Said:
    """Two opinions that go the same way."""
    sign = signed(dice)
    return _linked(about_part(dice, sign), " and/CCONJ ", about_part(dice, sign))


def contrast(dice: Dice) -> Said:
    """Two opinions that go opposite ways; at most one of them is about the whole."""
    sign = signed(dice)
    pair = [about_part(dice, sign), either(dice, -sign)]
    if dice.chance(0.3):
        pair.reverse()
    return _linked(pair[0], " ,/PUNCT but/CCONJ ", pair[1])


def concession(dice: Dice) -> Said:
    sign = signed(dice)
    text, said = _linked(about_part(dice, sign), " ,/PUNCT ", either(dice, -sign))
    return f"although/SCONJ {text}", said


def sequence(dice: Dice) -> Said:
    """Two sentences, each with an opinion about a part."""
    one, other = about_part(dice, signed(dice)), about_part(dice, signed(dice))
    return _linked(one, " ./PUNCT ", (other[0][0].upper() + other[0][1:], other[1]))


def fact(dice: Dice) -> Said:
    """Something about the film that is no opinion."""
    whole = f"{dice.pick(CLOSENESS)} {dice.pick(WHOLES)}"
    form = dice.below(4)
    if form == 0:
        text = f"{whole} lasted/VERB {dice.pick(COUNTS)} hours/NOUN"
    elif form == 1:
        hero = f"a/DET {dice.pick(KINDS_OF_HERO)} {dice.pick(HEROES)}"
        text = f"{whole} tells/VERB the/DET story/NOUN of/ADP {hero}"
    elif form == 2:
        text = f"{dice.pick(ACTORS)} plays/VERB a/DET {dice.pick(KINDS_OF_HERO)} {dice.pick(HEROES)}"
    else:
        text = f"{dice.pick(PEOPLE)} saw/VERB {whole} {dice.pick(TIMES)}"
    return _with_an(text), ()


def outing(dice: Dice) -> str:
    """ "Yesterday, my friends went to the cinema because the weather was nasty." """
    reason = _weather(dice) if dice.chance(0.75) else dice.pick(RAINS)
    went = f"{dice.pick(PEOPLE)} went/VERB to/ADP the/DET {dice.pick(VENUES)} because/SCONJ {reason}"
    return f"{dice.pick(TIMES)} ,/PUNCT {went}" if dice.chance(0.6) else went


def weather(dice: Dice) -> str:
    """ "The sky was grey, so we took an umbrella." """
    return f"{_weather(dice)} ,/PUNCT so/ADV {dice.pick(PEOPLE)} {dice.pick(CONSEQUENCES)}"


def _weather(dice: Dice) -> str:
    degree = f"{dice.pick(INTENSIFIERS)} " if dice.chance(0.3) else ""
    return f"the/DET {dice.pick(SKIES)} was/AUX {degree}{dice.pick(WEATHERS)}"


def context(dice: Dice) -> Said:
    """What happened around the film, alone."""
    return dice.weigh(CONTEXTS)(dice), ()


def _linked(one: Said, link: str, other: Said) -> Said:
    return f"{one[0]}{link}{other[0]}", one[1] + other[1]


def _with_an(text: str) -> str:
    """`an` before a vowel."""
    words = text.split()
    pairs: Sequence[tuple[str, str]] = list(zip(words, [*words[1:], ""], strict=True))
    return " ".join("an/DET" if word == "a/DET" and after[0] in "aeiou" else word for word, after in pairs)


JUDGEMENTS: tuple[tuple[Callable[[Dice], Said], int], ...] = (
    (single, 30),
    (agreement, 14),
    (contrast, 22),
    (concession, 9),
    (sequence, 9),
    (fact, 9),
    (context, 7),
)
CONTEXTS: tuple[tuple[Callable[[Dice], str], int], ...] = ((outing, 7), (weather, 3))
