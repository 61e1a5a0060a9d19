"""The toy translations: what can be said, one French for every English, and French as French people write it."""

import re
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toytext import translate
from toytext.bilingual import adjectives, nouns, numbers, phrases, sentences, verbs
from toytext.bilingual.clauses import Being, Clause
from toytext.bilingual.dates import MINUTES, Date, clock
from toytext.bilingual.french import spell
from toytext.bilingual.phrases import HE, HER, SHE, THEM, THEY, WE, YOU, I, Phrase, noun_phrase
from toytext.draw import Dice

from regard.errors import DataError


@cache
def many_pairs() -> list[translate.Pair]:
    return [translate.example(0, "train", i) for i in range(20_000)]


def test_the_lecture_s_phrase_can_be_made() -> None:
    found = {pair for pair in (translate.institution(Dice(str(i))) for i in range(30_000)) if "Economic" in pair.source}
    assert translate.Pair("the European Economic Area", "la zone économique européenne") in found
    assert translate.Pair("The European Economic Area", "La zone économique européenne") in found
    lower = {translate.Pair(pair.source.lower(), pair.target.lower()) for pair in found}
    assert translate.Pair("the european economic area", "la zone économique européenne") in lower


def test_every_source_has_one_target() -> None:
    targets: dict[str, str] = {}
    for pair in many_pairs():
        assert targets.setdefault(pair.source, pair.target) == pair.target
        assert targets.setdefault(pair.source.lower(), pair.target.lower()) == pair.target.lower()


def test_vocabularies_and_lengths_of_translations_stay_small() -> None:
    pairs = many_pairs()
    english, french = ({w for p in pairs for w in re.findall(r"[^\W\d_]+", side(p).lower())} for side in SIDES)
    assert 750 < len(english) <= 1000
    assert 1000 < len(french) <= 1250
    lengths = [len(pair.target.split()) for pair in pairs]
    assert sum(3 <= n <= 20 for n in lengths) > 0.95 * len(lengths)
    assert max(lengths) <= 30
    assert sum(len(p.source.split()) != len(p.target.split()) for p in pairs) > 0.4 * len(pairs)


SIDES: tuple[Callable[[translate.Pair], str], ...] = (lambda pair: pair.source, lambda pair: pair.target)


def test_french_is_spelled_as_french() -> None:
    unspelled = re.compile(
        r"\b(?:de (?:le|les|des|du|de)|à (?:le|les)) "
        r"|\b(?:le|la|de|je|ne|que|ma|sa|ce) (?:[aeiouéèêîœ]|h(?!éros|ibou|aut|uit))"
        r"|\b(?:cet|bel|vieil|nouvel) [^aeiouéèêîœh]| {2}|'[^aeiouyéèêîœhâ]"
    )
    for pair in many_pairs():
        assert not unspelled.search(pair.target.lower().replace("onze", "11")), pair
        assert not re.search(r"\ba (?!uni|use|eu|one)[aeiou]|\ban [^aeiou]| {2}", pair.source.lower()), pair


NUMBERS = {
    0: "zéro",
    16: "seize",
    17: "dix-sept",
    21: "vingt et un",
    61: "soixante et un",
    70: "soixante-dix",
    71: "soixante et onze",
    77: "soixante-dix-sept",
    80: "quatre-vingts",
    81: "quatre-vingt-un",
    90: "quatre-vingt-dix",
    91: "quatre-vingt-onze",
    99: "quatre-vingt-dix-neuf",
    100: "cent",
    101: "cent un",
    180: "cent quatre-vingts",
    200: "deux cents",
    203: "deux cent trois",
    1000: "mille",
    1001: "mille un",
    1800: "mille huit cents",
    2000: "deux mille",
    21_000: "vingt et un mille",
    80_000: "quatre-vingt mille",
    80_080: "quatre-vingt mille quatre-vingts",
    200_000: "deux cent mille",
    300_200: "trois cent mille deux cents",
    999_999: "neuf cent quatre-vingt-dix-neuf mille neuf cent quatre-vingt-dix-neuf",
}


def test_numbers_in_french_words() -> None:
    assert {n: numbers.french(n) for n in NUMBERS} == NUMBERS
    assert numbers.french(21, feminine=True) == "vingt et une"
    assert numbers.french(81, feminine=True) == "quatre-vingt-une"
    assert numbers.french(21_001, feminine=True) == "vingt et un mille une"


def test_numbers_in_english_words() -> None:
    assert numbers.english(105) == "one hundred and five"
    assert numbers.english(40_012) == "forty thousand and twelve"
    assert numbers.english(999_999) == "nine hundred and ninety-nine thousand nine hundred and ninety-nine"


@given(st.integers(0, numbers.LAST), st.integers(0, numbers.LAST))
@settings(max_examples=50, deadline=None)
def test_different_numbers_have_different_words(n: int, m: int) -> None:
    assert (numbers.english(n) == numbers.english(m)) == (n == m)
    assert (numbers.french(n) == numbers.french(m)) == (n == m)


def test_numbers_out_of_reach_are_refused() -> None:
    with pytest.raises(DataError, match="1000000"):
        numbers.french(1_000_000)


@pytest.mark.parametrize(
    ("date", "en", "fr"),
    [
        (Date(3, 2, 2024, weekday=1), "Tuesday, 3 March 2024", "le mardi 3 mars 2024"),
        (Date(3, 2, 2024, american=True), "March 3, 2024", "le 3 mars 2024"),
        (Date(3, 2, 2024, 1, american=True), "Tuesday, March 3, 2024", "le mardi 3 mars 2024"),
        (Date(1, 4), "1 May", "le 1er mai"),
        (Date(1, 4, american=True), "May 1", "le 1er mai"),
        (Date(29, 1, 1912, weekday=6), "Sunday, 29 February 1912", "le dimanche 29 février 1912"),
        (Date(11, 7), "11 August", "le 11 août"),
    ],
)
def test_dates(date: Date, en: str, fr: str) -> None:
    assert (date.en, date.fr) == (en, fr)


@pytest.mark.parametrize(
    ("hour", "minutes", "en", "fr"),
    [
        (1, None, "one o'clock", "une heure"),
        (3, "ten", "ten past three", "trois heures dix"),
        (3, "a quarter", "a quarter past three", "trois heures et quart"),
        (11, "half", "half past eleven", "onze heures et demie"),
        (12, None, "noon", "midi"),
        (0, None, "midnight", "minuit"),
    ],
)
def test_hours(hour: int, minutes: str | None, en: str, fr: str) -> None:
    row = next((i for i, row in enumerate(MINUTES) if row[1] == minutes), None)
    assert clock(hour, row) == (en, fr)


def test_an_hour_that_comes_is_subtracted_from_in_french() -> None:
    assert clock(5, len(MINUTES) - 4) == ("twenty to five", "cinq heures moins vingt")
    assert clock(5, len(MINUTES) - 3) == ("a quarter to five", "cinq heures moins le quart")


def np(words: str, determiner: str = "the", many: bool = False, count: int = 0) -> Phrase:
    """A phrase from its English adjectives and singular noun."""
    *said, noun = words.split()
    return noun_phrase(nouns.BY_ENGLISH[noun], determiner, many, [adjectives.BY_ENGLISH[a] for a in said], count)


ANNA, PAUL = Phrase("Anna", "Anna", "f"), Phrase("Paul", "Paul")


@pytest.mark.parametrize(
    ("phrase", "en", "fr"),
    [
        (np("European common market"), "the European common market", "le marché commun européen"),
        (np("European central bank"), "the European central bank", "la banque centrale européenne"),
        (np("international monetary fund"), "the international monetary fund", "le fonds monétaire international"),
        (np("big red car", "a"), "a big red car", "une grande voiture rouge"),
        (np("white house"), "the white house", "la maison blanche"),
        (np("white shoe", "her", many=True), "her white shoes", "ses chaussures blanches"),
        (np("beautiful man", "a"), "a beautiful man", "un bel homme"),
        (np("beautiful tree", "a", many=True), "some beautiful trees", "de beaux arbres"),
        (np("beautiful hero", "this"), "this beautiful hero", "ce beau héros"),
        (np("new hotel", "this"), "this new hotel", "ce nouvel hôtel"),
        (np("new school", "my"), "my new school", "ma nouvelle école"),
        (np("old friend", "a"), "an old friend", "un vieil ami"),
        (np("old friend", "my", many=True), "my old friends", "mes vieux amis"),
        (np("old church"), "the old church", "la vieille église"),
        (np("school", "my"), "my school", "mon école"),
        (np("African elephant", "that"), "that African elephant", "cet éléphant africain"),
        (np("idea", "a", many=True), "some ideas", "des idées"),
        (np("expensive watch", "his"), "his expensive watch", "sa montre chère"),
        (np("owl"), "the owl", "le hibou"),
        (np("owl", many=True), "the owls", "les hiboux"),
        (np("animal", "all", many=True), "all the animals", "tous les animaux"),
        (np("national newspaper", "several", many=True), "several national newspapers", "plusieurs journaux nationaux"),
        (np("egg", "many", many=True), "many eggs", "beaucoup d'œufs"),
        (np("fresh water", "part"), "some fresh water", "de l'eau fraîche"),
        (np("French bread", "part"), "some French bread", "du pain français"),
        (np("car", "", count=21), "twenty-one cars", "vingt et une voitures"),
        (np("horse", "the", count=80), "the eighty horses", "les quatre-vingts chevaux"),
        (np("pretty little girl", "a"), "a pretty little girl", "une jolie petite fille"),
        (np("red Italian dress", "a"), "a red Italian dress", "une robe italienne rouge"),
        (np("wooden table", "a"), "a wooden table", "une table en bois"),
        (np("last potato"), "the last potato", "la dernière pomme de terre"),
        (np("public university", "a"), "a public university", "une université publique"),
        (phrases.owned(ANNA, np("old dog")), "Anna's old dog", "le vieux chien d'Anna"),
        (phrases.owned(np("teacher", many=True), np("car")), "the teachers' car", "la voiture des professeurs"),
        (phrases.owned(np("king"), np("daughter", many=True)), "the king's daughters", "les filles du roi"),
        (phrases.owned(np("child", many=True), np("ball")), "the children's ball", "la balle des enfants"),
        (phrases.part_of(("Spain", nouns.COUNTRIES[1].outside), np("king")), "the king of Spain", "le roi d'Espagne"),
        (phrases.part_of(("Japan", nouns.COUNTRIES[7].outside), np("law")), "the law of Japan", "la loi du Japon"),
    ],
)
def test_noun_phrases(phrase: Phrase, en: str, fr: str) -> None:
    assert (phrase.en, spell(phrase.fr)) == (en, fr)


def test_adjectives_that_would_make_another_word_stay_away() -> None:
    beside = {noun: {a.en for a in adjectives.beside(nouns.BY_ENGLISH[noun])} for noun in ("brother", "man", "girl")}
    assert "beautiful" not in beside["brother"]  # beau-frère, brother-in-law
    assert "beautiful" in beside["man"]
    assert "old" not in beside["girl"]  # vieille fille, spinster


def do(base: str) -> verbs.Verb:
    """A verb by its infinitive in French, which tells "leave" from "leave"."""
    return next(verb for verb in (*verbs.VERBS, sentences.GO, sentences.COME) if verb.infinitive == base)


def rest(*parts: Phrase | tuple[str, str]) -> tuple[str, str]:
    return sentences.joined(*((part.en, part.fr) if isinstance(part, Phrase) else part for part in parts))


APPLES = np("apple", "none", many=True)
TO_TEACHER = ("to the teacher", "à le professeur")


@pytest.mark.parametrize(
    ("said", "en", "fr"),
    [
        (Clause(I, do("aimer"), "now", rest=rest(np("cat", "kind", True))), "I like cats", "j'aime les chats"),
        (Clause(SHE, do("boire"), "now", rest=rest(np("water", "stuff"))), "she drinks water", "elle boit de l'eau"),
        (
            Clause(PAUL, do("manger"), "now", "not", rest=rest(APPLES)),
            "Paul does not eat any apples",
            "Paul ne mange pas de pommes",
        ),
        (
            Clause(PAUL, do("manger"), "past", "never", rest=rest(APPLES)),
            "Paul never ate any apples",
            "Paul n'a jamais mangé de pommes",
        ),
        (
            Clause(WE, do("manger"), "ongoing", rest=rest(np("soup"))),
            "we are eating the soup",
            "nous mangeons la soupe",
        ),
        (Clause(I, do("voir"), "past", pronoun=HER), "I saw her", "je l'ai vue"),
        (
            Clause(THEY, do("attendre"), "past", "not", pronoun=THEM),
            "they did not wait for them",
            "ils ne les ont pas attendus",
        ),
        (Clause(YOU, do("chercher"), "soon", pronoun=HER), "you are going to look for her", "vous allez la chercher"),
        (Clause(SHE, do("aider"), "can", "not", pronoun=THEM), "she can not help them", "elle ne peut pas les aider"),
        (Clause(HE, do("nager"), "want"), "he wants to swim", "il veut nager"),
        (
            Clause(ANNA, sentences.GO, "past", rest=("to Japan", "à le Japon")),
            "Anna went to Japan",
            "Anna est allée au Japon",
        ),
        (Clause(SHE, do("partir"), "past", "not"), "she did not leave", "elle n'est pas partie"),
        (
            Clause(np("queen", many=True), do("arriver"), "past"),
            "the queens arrived",
            "les reines sont arrivées",
        ),
        (
            Clause(ANNA, do("donner"), "past", rest=rest(np("book", "a"), TO_TEACHER)),
            "Anna gave a book to the teacher",
            "Anna a donné un livre au professeur",
        ),
        (
            Clause(PAUL, do("manger"), "now", adverb=("often", "souvent"), rest=rest(np("bread", "stuff"))),
            "Paul often eats bread",
            "Paul mange souvent du pain",
        ),
        (Being(np("house", many=True), ("white", "blanches")), "the houses are white", "les maisons sont blanches"),
        (Being(I, ("tired", "fatigué"), "past", "not"), "I was not tired", "je n'étais pas fatigué"),
    ],
)
def test_clauses(said: Clause | Being, en: str, fr: str) -> None:
    english, french = said.say()
    assert (english, spell(french)) == (en, fr)


@pytest.mark.parametrize(
    ("asked", "en", "fr"),
    [
        (Clause(HE, do("dormir"), "now").ask(), "does he sleep", "est-ce qu'il dort"),
        (Clause(ANNA, do("habiter"), "now").ask(("where", "où")), "where does Anna live", "où est-ce qu'Anna habite"),
        (Clause(YOU, do("acheter"), "past").ask(("what", "que")), "what did you buy", "qu'est-ce que vous avez acheté"),
        (Being(np("door"), ("open", "ouverte")).ask(), "is the door open", "est-ce que la porte est ouverte"),
    ],
)
def test_questions(asked: tuple[str, str], en: str, fr: str) -> None:
    assert (asked[0], spell(asked[1])) == (en, fr)


def test_a_participle_agrees_with_an_object_named_before_it() -> None:
    house = np("house", many=True)
    _, french = Clause(PAUL, do("acheter"), "past", named_before=house).say()
    assert spell(f"{house.fr} que {french}") == "les maisons que Paul a achetées"
    it = np("key").object_pronoun()
    assert (it.en, spell(Clause(SHE, do("perdre"), "past", pronoun=it).say()[1])) == ("it", "elle l'a perdue")


@pytest.mark.parametrize(
    ("row", "fr"),
    [
        ("il ne y a pas de eau près de les écoles", "il n'y a pas d'eau près des écoles"),
        ("je viens de le hôpital", "je viens de l'hôpital"),
        ("parce que on va à les États-Unis", "parce qu'on va aux États-Unis"),
        ("le héros de la histoire", "le héros de l'histoire"),
        ("plus de onze amis", "plus de onze amis"),
    ],
)
def test_spelling(row: str, fr: str) -> None:
    assert spell(row) == fr
