"""What reviews say: opinions about a film and its parts, facts about it, and what happened around it.

Every word carries its tag, `word/TAG`, from the moment it is chosen, so no tagger is ever needed. A clause comes with
the opinions it states; facts and context state none. Some words have two tags (`like`, `that`, `to`, `has`, `were`),
so that a tagger must look around.
"""

from collections.abc import Callable
from dataclasses import dataclass

from toytext.draw import Dice


@dataclass(frozen=True)
class Opinion:
    whole: bool  # about the film, not a part of it
    sign: int  # 1 or -1


@dataclass(frozen=True)
class Part:
    """Something a film has: `one` is counted, `many` are, `some` is not."""

    noun: str
    number: str

    @property
    def article(self) -> str:
        return "a/DET " if self.number == "one" else ""

    @property
    def was(self) -> str:
        return "were" if self.number == "many" else "was"


Said = tuple[str, tuple[Opinion, ...]]  # words with their tags, and what is thought


def _tagged(tag: str, words: str) -> tuple[str, ...]:
    """Every word with the tag, each an option of its own."""
    return tuple(f"{word}/{tag}" for word in words.split())


WHOLE = "film/NOUN"  # `reviews` says film or movie, the same throughout a review
QUALITIES = {
    1: _tagged(
        "ADJ",
        "amazing wonderful brilliant great good funny beautiful touching exciting clever charming excellent superb "
        "delightful original lively smart memorable warm",
    ),
    -1: _tagged(
        "ADJ",
        "boring terrible bad dull awful weak slow silly ugly confusing predictable annoying poor tedious messy lazy "
        "noisy cheap cold",
    ),
}
FEELINGS = {1: _tagged("VERB", "loved enjoyed liked adored admired"), -1: _tagged("VERB", "hated disliked regretted")}
DENIABLE = _tagged("VERB", "love enjoy like")
EFFECTS = {1: _tagged("VERB", "impressed moved delighted"), -1: _tagged("VERB", "disappointed bored annoyed")}
LIKENESSES = {1: ("dream/NOUN", "party/NOUN", "gift/NOUN"), -1: ("nightmare/NOUN", "punishment/NOUN", "chore/NOUN")}
EASE = {1: _tagged("ADJ", "easy pleasant"), -1: _tagged("ADJ", "hard painful")}
PARTS = tuple(
    Part(noun, number)
    for number, nouns in (
        ("one", "story plot ending script cast soundtrack"),
        ("some", "acting music dialogue photography"),
        ("many", "visuals actors songs jokes characters effects costumes scenes"),
    )
    for noun in _tagged("NOUN", nouns)
)
DEGREES = _tagged("ADV", "very really quite rather extremely truly")
DENIED_DEGREES = _tagged("ADV", "very really")
JUDGES = (
    "I/PRON",
    "we/PRON",
    "my/PRON wife/NOUN",
    "my/PRON friends/NOUN",
    "our/PRON neighbours/NOUN",
    "the/DET children/NOUN",
)
THINKERS = ("I/PRON think/VERB", "we/PRON thought/VERB", "my/PRON brother/NOUN says/VERB", "everybody/PRON says/VERB")
MOVED = ("me/PRON", "us/PRON", "everybody/PRON")
CLOSENESS = ("the/DET", "the/DET", "the/DET", "this/DET", "that/DET")

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
RAINS = ("it/PRON was/AUX raining/VERB", "it/PRON rained/VERB", "the/DET rain/NOUN did/AUX not/PART stop/VERB")


@dataclass(frozen=True)
class Sky:
    """A kind of weather: what it is called, where people go in it, and what else they do."""

    weathers: tuple[str, ...]
    skies: tuple[str, ...]
    venues: tuple[str, ...]
    consequences: tuple[str, ...]


FOUL = Sky(
    _tagged("ADJ", "nasty cold wet terrible bad"),
    _tagged("ADJ", "grey dark"),
    _tagged("NOUN", "cinema theatre"),
    (
        "stayed/VERB at/ADP home/NOUN",
        "took/VERB an/DET umbrella/NOUN",
        "closed/VERB the/DET windows/NOUN",
        "wanted/VERB to/PART see/VERB a/DET film/NOUN",
    ),
)
FAIR = Sky(
    _tagged("ADJ", "warm lovely dry good"),
    _tagged("ADJ", "blue clear"),
    _tagged("NOUN", "festival park beach"),
    (
        "walked/VERB to/ADP the/DET cinema/NOUN",
        "opened/VERB the/DET windows/NOUN",
        "wanted/VERB to/PART swim/VERB",
    ),
)
KINDS_OF_HERO = _tagged("ADJ", "young old French rich famous")
HEROES = _tagged("NOUN", "doctor sailor teacher king woman soldier writer")
COUNTS = _tagged("NUM", "two three four ten")
ACTORS = _tagged("PROPN", "Anna Paul Marie Omar Victor")


def signed(dice: Dice) -> int:
    return dice.pick((1, -1))


def quality(dice: Dice, sign: int) -> str:
    """An adjective, or one made stronger, or an opposite denied: "not very good"."""
    how = dice.random()
    if how < 0.5:
        return dice.pick(QUALITIES[sign])
    if how < 0.8:
        return f"{dice.pick(DEGREES)} {dice.pick(QUALITIES[sign])}"
    degree = f"{dice.pick(DENIED_DEGREES)} " if dice.chance(0.4) else ""
    return f"not/PART {degree}{dice.pick(QUALITIES[-sign])}"


def feeling(dice: Dice, sign: int, what: str) -> str:
    """What somebody felt about it, denied or not."""
    if sign < 0 and dice.chance(0.2):
        return f"nobody/PRON {dice.pick(FEELINGS[1])} {what}"
    if sign < 0 and dice.chance(0.5):
        return f"{dice.pick(JUDGES)} did/AUX not/PART {dice.pick(DENIABLE)} {what}"
    return f"{dice.pick(JUDGES)} {dice.pick(FEELINGS[sign])} {what}"


def judged(dice: Dice, sign: int, what: str, was: str) -> str:
    """A clause that says the film or one of its parts is good or bad, in one of the ways that suit both."""
    form = dice.below(10)
    if form < 5:
        return f"{what} {was}/AUX {quality(dice, sign)}"
    if form < 7:
        return feeling(dice, sign, what)
    if form == 7:
        return f"{what} {dice.pick(EFFECTS[sign])} {dice.pick(MOVED)}"
    if form == 8:
        return f"{what} {was}/AUX {dice.pick(EASE[sign])} to/PART follow/VERB"
    return f"{dice.pick(THINKERS)} that/SCONJ {what} {was}/AUX {quality(dice, sign)}"


def about_part(dice: Dice, sign: int, part: Part) -> Said:
    """An opinion about the story, the visuals and so on."""
    film = f"{dice.pick(CLOSENESS)} {WHOLE}"
    adjective = dice.pick(QUALITIES[sign])
    form = dice.below(6)
    if form < 2:
        text = f"{film} {dice.pick(('had', 'has'))}/VERB {part.article}{adjective} {part.noun}"
    elif form == 2:
        text = f"there/PRON {part.was}/VERB {part.article}{adjective} {part.noun} in/ADP {film}"
    else:
        text = judged(dice, sign, f"the/DET {part.noun}", part.was)
    return with_an(text), (Opinion(False, sign),)


def about_whole(dice: Dice, sign: int) -> Said:
    """An opinion about the film."""
    film = f"{dice.pick(CLOSENESS)} {WHOLE}"
    form = dice.below(6)
    if form == 0:
        text = f"it/PRON was/AUX a/DET {dice.pick(QUALITIES[sign])} {WHOLE}"
    elif form == 1:
        text = f"{film} felt/VERB like/ADP a/DET {dice.pick(LIKENESSES[sign])}"
    elif form > 2:
        text = judged(dice, sign, film, "was")
    elif sign > 0:
        text = f"{dice.pick(JUDGES)} wanted/VERB to/PART see/VERB {film} again/ADV"
    else:
        text = f"{film} was/AUX a/DET waste/NOUN of/ADP time/NOUN"
    return with_an(text), (Opinion(True, sign),)


def about_some_part(dice: Dice, sign: int) -> Said:
    return about_part(dice, sign, dice.pick(PARTS))


def single(dice: Dice) -> Said:
    return (about_whole if dice.chance(0.5) else about_some_part)(dice, signed(dice))


def agreement(dice: Dice) -> Said:
    """Two opinions about parts that go the same way."""
    sign = signed(dice)
    one, other = dice.two(PARTS)
    return _linked(about_part(dice, sign, one), " and/CCONJ ", about_part(dice, sign, other))


def contrast(dice: Dice) -> Said:
    """Two opinions that go opposite ways; at most one of them is about the whole."""
    one, other = _opposed(dice)
    return _linked(one, " ,/PUNCT but/CCONJ ", other)


def concession(dice: Dice) -> Said:
    one, other = _opposed(dice)
    text, said = _linked(one, " ,/PUNCT ", other)
    return f"although/SCONJ {text}", said


def _opposed(dice: Dice) -> tuple[Said, Said]:
    sign = signed(dice)
    part, other_part = dice.two(PARTS)
    one = about_part(dice, sign, part)
    other = about_whole(dice, -sign) if dice.chance(0.3) else about_part(dice, -sign, other_part)
    return (other, one) if dice.chance(0.3) else (one, other)


def sequence(dice: Dice) -> Said:
    """Two sentences, each with an opinion about a part."""
    part, other_part = dice.two(PARTS)
    one, (text, said) = about_part(dice, signed(dice), part), about_part(dice, signed(dice), other_part)
    return _linked(one, " ./PUNCT ", (text[0].upper() + text[1:], said))


def fact(dice: Dice) -> Said:
    """Something about the film that is no opinion."""
    film = f"{dice.pick(CLOSENESS)} {WHOLE}"
    hero = f"a/DET {dice.pick(KINDS_OF_HERO)} {dice.pick(HEROES)}"
    form = dice.below(5)
    if form == 0:
        text = f"{film} lasted/VERB {dice.pick(COUNTS)} hours/NOUN"
    elif form == 1:
        text = f"{film} tells/VERB the/DET {dice.pick(('', 'love/NOUN '))}story/NOUN of/ADP {hero}"
    elif form == 2:
        text = f"{dice.pick(ACTORS)} plays/VERB {hero} in/ADP {film}"
    elif form == 3:
        text = f"{dice.pick(ACTORS)} has/AUX seen/VERB {film} {dice.pick(COUNTS)} times/NOUN"
    else:
        text = f"{dice.pick(PEOPLE)} saw/VERB {film} {dice.pick(TIMES)}"
    return with_an(text), ()


def outing(dice: Dice, sky: Sky) -> str:
    """ "Yesterday, my friends went to the cinema because the weather was nasty." """
    reason = dice.pick(RAINS) if sky is FOUL and dice.chance(0.25) else weather(dice, sky)
    went = f"{dice.pick(PEOPLE)} went/VERB to/ADP the/DET {dice.pick(sky.venues)} because/SCONJ {reason}"
    return f"{dice.pick(TIMES)} ,/PUNCT {went}" if dice.chance(0.6) else went


def consequence(dice: Dice, sky: Sky) -> str:
    """ "The sky was grey, so we took an umbrella." """
    return f"{weather(dice, sky)} ,/PUNCT so/ADV {dice.pick(PEOPLE)} {dice.pick(sky.consequences)}"


def weather(dice: Dice, sky: Sky) -> str:
    noun = dice.pick(("weather/NOUN", "weather/NOUN", "sky/NOUN"))
    degree = f"{dice.pick(DEGREES)} " if dice.chance(0.3) else ""
    return f"the/DET {noun} was/AUX {degree}{dice.pick(sky.skies if noun == 'sky/NOUN' else sky.weathers)}"


def context(dice: Dice) -> str:
    """What happened around the film."""
    return (outing if dice.chance(0.7) else consequence)(dice, dice.pick((FOUL, FOUL, FAIR)))


def with_an(text: str) -> str:
    """`an` before a vowel."""
    words = text.split()
    pairs = zip(words, [*words[1:], "-"], strict=True)
    return " ".join("an/DET" if word == "a/DET" and after[0] in "aeiou" else word for word, after in pairs)


def _linked(one: Said, link: str, other: Said) -> Said:
    return f"{one[0]}{link}{other[0]}", one[1] + other[1]


JUDGEMENTS: tuple[tuple[Callable[[Dice], Said], int], ...] = (
    (single, 34),
    (agreement, 16),
    (contrast, 22),
    (concession, 9),
    (sequence, 9),
    (fact, 10),
)
