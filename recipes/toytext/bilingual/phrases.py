"""Noun phrases, English and French: determiners, adjectives, numbers, owners, places.

In come a noun and what is said with it; out goes a `Phrase`, both languages and what has to agree with it. French is a
row of words that `french.spell` has yet to join. What English leaves open is settled once, so that every English text
has one French: `you` is one man addressed politely, `I` is a man, `we` and `they` are men.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toytext.bilingual import adjectives, nouns, numbers
from toytext.bilingual.adjectives import Adjective
from toytext.bilingual.french import opens_with_vowel
from toytext.bilingual.nouns import Noun
from toytext.draw import Dice


@dataclass(frozen=True)
class Phrase:
    en: str
    fr: str
    gender: str = "m"
    plural: bool = False
    person: int = 3
    kinds: frozenset[str] = frozenset("P")

    @property
    def form(self) -> int:
        """Where the verb stands among je il nous vous ils."""
        return {1: 2 if self.plural else 0, 2: 3, 3: 4 if self.plural else 1}[self.person]

    def pronoun(self) -> "Phrase":
        """What takes its place when it is named again as a subject."""
        if self.person < 3:
            return self
        fr = ("elle" if self.gender == "f" else "il") + ("s" if self.plural else "")
        return replace(self, en=self._english(("he", "she", "it", "they")), fr=fr)

    def object_pronoun(self) -> "Phrase":
        """Likewise as an object; its French goes before the verb."""
        fr = "les" if self.plural else "la" if self.gender == "f" else "le"
        return replace(self, en=self._english(("him", "her", "it", "them")), fr=fr)

    def _english(self, forms: tuple[str, str, str, str]) -> str:
        if self.plural:
            return forms[3]
        return forms[self.gender == "f"] if "P" in self.kinds else forms[2]


I, WE, YOU = Phrase("I", "je", person=1), Phrase("we", "nous", plural=True, person=1), Phrase("you", "vous", person=2)
HE, SHE, THEY = Phrase("he", "il"), Phrase("she", "elle", "f"), Phrase("they", "ils", plural=True)
PRONOUNS = (I, WE, YOU, HE, SHE, THEY)
HIM, HER, THEM = HE.object_pronoun(), SHE.object_pronoun(), THEY.object_pronoun()

# English one, many; French masculine, feminine, plural. No form, no such phrase.
DETERMINERS = {
    "the": ("the", "the", "le", "la", "les"),
    "a": ("a", "some", "un", "une", "des"),
    "bare": ("", "", "", "", "des"),  # "he buys apples"
    "kind": ("", "", "le", "la", "les"),  # "he likes apples": all of them
    "part": ("some", "", "de le", "de la", ""),  # of what is not counted
    "stuff": ("", "", "de le", "de la", ""),  # likewise, unsaid in English
    "none": ("a", "any", "de", "de", "de"),  # after a negation
    "no": ("no", "no", "de", "de", "de"),  # after "there is"
    "this": ("this", "these", "ce", "cette", "ces"),
    "that": ("that", "those", "ce", "cette", "ces"),
    "my": ("my", "my", "mon", "ma", "mes"),
    "your": ("your", "your", "votre", "votre", "vos"),
    "his": ("his", "his", "son", "sa", "ses"),
    "her": ("her", "her", "son", "sa", "ses"),
    "our": ("our", "our", "notre", "notre", "nos"),
    "their": ("their", "their", "leur", "leur", "leurs"),
    "every": ("every", "", "chaque", "chaque", ""),
    "several": ("", "several", "", "", "plusieurs"),
    "many": ("", "many", "", "", "beaucoup de"),
    "all": ("", "all the", "", "", "tous les"),
}
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
DEFINITE = ("the", *POSSESSIVES)
ALWAYS_MANY = ("several", "many", "all", "bare", "kind")
NOT_COUNTED = {  # what becomes of a determiner beside a noun that is not counted
    "a": "part",
    "bare": "stuff",
    "several": "part",
    "many": "part",
    "number": "part",
    "numbered": "the",
    "every": "the",
    "all": "the",
}
BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "sa": "son"}
SAID_LIKE_YOU = ("uni", "use", "eu", "one")  # "a union", not "an union"


def noun_phrase(
    noun: Noun, determiner: str = "the", many: bool = False, said: Sequence[Adjective] = (), count: int = 0
) -> Phrase:
    """`said` are its adjectives in any order; `count` is a number in words, alone or after a definite determiner."""
    many = many or count > 1
    any_of_it = determiner == "none" and not noun.counted
    said = sorted(said, key=lambda adjective: adjective.rank)
    en_words = [*[a.en for a in said], noun.en_plural if many else noun.en]
    before = _french_before(noun, many, [a for a in said if a.precedes])
    after = [a.agreed(noun.gender, many) for a in reversed(said) if not a.precedes]
    if count:
        en_words.insert(0, numbers.english(count))
        before.insert(0, numbers.french(count, feminine=noun.gender == "f"))
    en = _english_determiner(determiner, many or any_of_it, en_words[0])
    fr = _french_determiner(determiner, noun.gender, many, before[0], elsewhere=len(before) > 1 and not count)
    return Phrase(" ".join([*en, *en_words]), " ".join([*fr, *before, *after]), noun.gender, many, kinds=noun.kinds)


def _french_before(noun: Noun, many: bool, preceding: Sequence[Adjective]) -> list[str]:
    """The adjectives that precede the noun, each in its form before the next word, and the noun."""
    words = [noun.fr_plural if many else noun.fr]
    for adjective in reversed(preceding):
        words.insert(0, adjective.agreed(noun.gender, many, words[0]))
    return words


def _english_determiner(determiner: str, many: bool, following: str) -> list[str]:
    if not determiner:
        return []
    word = DETERMINERS[determiner][many]
    if word == "a" and following[0].lower() in "aeiou" and not following.lower().startswith(SAID_LIKE_YOU):
        word = "an"
    return [word] if word else []


def _french_determiner(determiner: str, gender: str, many: bool, following: str, elsewhere: bool) -> list[str]:
    """`elsewhere`: an adjective stands between determiner and noun, where `des` becomes `de`."""
    if not determiner:
        return []
    word = DETERMINERS[determiner][4 if many else 2 + (gender == "f")]
    if word == "des" and elsewhere:
        word = "de"
    if word == "tous les" and gender == "f":
        word = "toutes les"
    return [BEFORE_VOWEL.get(word, word) if opens_with_vowel(following) else word]


def owned(owner: Phrase, possession: Phrase) -> Phrase:
    """ "Anna's old house": the possession is a phrase with `the`, whose English article the owner replaces."""
    mark = "'" if owner.plural and owner.en.endswith("s") else "'s"
    thing = possession.en.removeprefix("the ")
    return replace(possession, en=f"{owner.en}{mark} {thing}", fr=f"{possession.fr} de {owner.fr}")


def part_of(whole: tuple[str, str], part: Phrase) -> Phrase:
    """ "the door of the church", "the king of Spain": `whole` is what follows "of" and, its `de` included, the French."""
    return replace(part, en=f"{part.en} of {whole[0]}", fr=f"{part.fr} {whole[1]}")


def name(dice: Dice) -> Phrase:
    chosen = dice.pick(nouns.NAMES)
    return Phrase(chosen.en, chosen.en, chosen.gender)


def two_names(dice: Dice) -> Phrase:
    one, other = dice.two(nouns.NAMES)
    gender = "f" if one.gender == other.gender == "f" else "m"
    return Phrase(f"{one.en} and {other.en}", f"{one.en} et {other.en}", gender, plural=True)


OPENERS, FOLLOWERS = ("beautiful", "pretty", "good"), ("little", "old")  # two adjectives before one French noun


def qualities(dice: Dice, noun: Noun, often: float, definite: bool = False) -> list[Adjective]:
    """None, one or two adjectives that go together beside the noun."""
    if not dice.chance(often):
        return []
    one = dice.pick(adjectives.beside(noun))
    if definite and dice.chance(0.1):
        one = adjectives.BY_ENGLISH[dice.pick(("first", "last"))]
    if dice.chance(0.65):
        return [one]
    other = dice.pick(adjectives.beside(noun))
    crowded = one.precedes and other.precedes and not (one.en in OPENERS and other.en in FOLLOWERS)
    return [one] if one.rank == other.rank or crowded else [one, other]


def some_phrase(dice: Dice, choices: Sequence[Noun], determiners: Sequence[str], often: float = 0.35) -> Phrase:
    """A phrase about one of the nouns with one of the determiners, turned into what suits a noun that is not counted.

    `number` is a number alone and `numbered` one after a definite determiner; `often` there are adjectives.
    """
    noun = dice.pick(choices)
    determiner = dice.pick(determiners)
    if not noun.counted:
        determiner = NOT_COUNTED.get(determiner, determiner)
    if "K" in noun.kinds and determiner in ("this", "that", "every"):
        determiner = dice.pick(POSSESSIVES)
    said = qualities(dice, noun, often, determiner in DEFINITE)
    if determiner in ("number", "numbered"):
        article = "" if determiner == "number" else dice.pick(DEFINITE)
        return noun_phrase(noun, article, said=said, count=some_count(dice))
    if determiner in ALWAYS_MANY:
        return noun_phrase(noun, determiner, noun.counted, said)
    many = noun.counted and determiner != "every" and dice.chance(0.35)
    return noun_phrase(noun, determiner, many, said)


def some_count(dice: Dice) -> int:
    return dice.number(2, 12) if dice.chance(0.7) else dice.number(13, 100)


PLACES_OF = (  # English, French, the kinds it goes with
    ("in", "dans", "Z"),
    ("in", "dans", "Z"),
    ("on", "sur", "S"),
    ("under", "sous", "S"),
    ("near", "près de", "LNU"),
    ("behind", "derrière", "LUV"),
    ("in front of", "devant", "LUV"),
)


def place(dice: Dice) -> tuple[str, str]:
    """Where something is."""
    if dice.chance(0.15):
        en, fr = dice.pick(nouns.CITIES)
        return f"in {en}", f"à {fr}"
    if dice.chance(0.15):
        country = dice.pick(nouns.COUNTRIES)
        return f"in {country.en}", country.inside
    en, fr, kinds = dice.pick(PLACES_OF)
    indefinite = () if fr.endswith("de") else ("a",)  # `de` swallows `des`
    where = some_phrase(dice, nouns.of_kind(*kinds), (*DEFINITE, "the", "the", "this", *indefinite), often=0.2)
    return f"{en} {where.en}", f"{fr} {where.fr}"


def destination(dice: Dice) -> tuple[str, str]:
    """Where somebody goes to."""
    if dice.chance(0.2):
        en, fr = dice.pick(nouns.CITIES)
        return f"to {en}", f"à {fr}"
    if dice.chance(0.25):
        country = dice.pick(nouns.COUNTRIES)
        return f"to {country.en}", country.inside
    where = some_phrase(dice, nouns.of_kind("C"), ("the", "the", "the", "this", "our"), often=0.2)
    return f"to {where.en}", f"à {where.fr}"


def origin(dice: Dice) -> tuple[str, str]:
    """Where somebody comes from."""
    if dice.chance(0.3):
        en, fr = dice.pick(nouns.CITIES)
        return f"from {en}", f"de {fr}"
    if dice.chance(0.5):
        country = dice.pick(nouns.COUNTRIES)
        return f"from {country.en}", country.outside
    where = some_phrase(dice, nouns.of_kind("C"), ("the", "the", "this"), often=0.2)
    return f"from {where.en}", f"de {where.fr}"
