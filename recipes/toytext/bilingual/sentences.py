"""Sentences, English and French, each kind a function of the dice.

Out goes a row of English words, a row of French ones, and the mark they end with. Kinds differ in what French does
differently: word order, agreement, articles, pronouns, negation, prepositions.
"""

from collections.abc import Sequence

from toytext.bilingual import adjectives, dates, nouns, phrases, verbs
from toytext.bilingual.adjectives import Adjective
from toytext.bilingual.clauses import Being, Clause
from toytext.bilingual.phrases import POSSESSIVES, PRONOUNS, Phrase, noun_phrase, some_phrase
from toytext.bilingual.verbs import Verb
from toytext.draw import Dice

Row = tuple[str, str, str]  # English, French, the mark at the end

ADVERBS = (("often", "souvent"), ("always", "toujours"), ("sometimes", "parfois"))
DEGREES = (("very", "très"), ("too", "trop"), ("quite", "assez"))
WORDS_THAT_ASK = (("where", "où"), ("when", "quand"), ("why", "pourquoi"))
NOWADAYS = (("every day", "tous les jours"), ("today", "aujourd'hui"), ("in the morning", "le matin"))
LATER = (("tomorrow", "demain"), ("tonight", "ce soir"), ("next week", "la semaine prochaine"))
GO, COME = (verbs.make(row) for row in ("go went | aller | PA | | be", "come came | venir | PA | | be"))

SUBJECT_DETERMINERS = (
    ("the",) * 7 + POSSESSIVES + ("this", "that", "a", "every", "all", "several", "number", "numbered")
)
KNOWN = ("the",) * 6 + POSSESSIVES + ("this", "that")  # determiners of what is spoken about


def subject(dice: Dice, kinds: str, negation: str = "") -> Phrase:
    """Who does something, or does not: a pronoun, a name, two names, or a phrase about something of the kinds."""
    who = dice.weigh((("pronoun", 30), ("name", 18), ("names", 4), ("owned", 6), ("phrase", 42)))
    if who == "pronoun":
        return dice.pick(PRONOUNS)
    if who == "name":
        return phrases.name(dice)
    if who == "names":
        return phrases.two_names(dice)
    if who == "owned":
        return owned_phrase(dice, "KA" if "A" in kinds else "K")
    return some_phrase(dice, nouns.of_kind(*kinds), KNOWN if negation else SUBJECT_DETERMINERS, often=0.25)


def owned_phrase(dice: Dice, kinds: str) -> Phrase:
    """ "Anna's brother", "my teacher's old car"."""
    owner = phrases.name(dice)
    if dice.chance(0.5):
        owner = some_phrase(dice, nouns.of_kind("P"), ("the", *POSSESSIVES), often=0)
    return phrases.owned(owner, some_phrase(dice, nouns.of_kind(*kinds), ("the",), often=0.3))


HEADS = tuple(nouns.BY_ENGLISH[word] for word in "king queen government parliament language law city".split())
PARTS = tuple(nouns.BY_ENGLISH[word] for word in "door window wall roof".split())


def part_phrase(dice: Dice) -> Phrase:
    """ "the roofs of the old house", "the king of Spain"."""
    if dice.chance(0.4):
        country = dice.pick(nouns.COUNTRIES)
        return phrases.part_of((country.en, country.outside), some_phrase(dice, HEADS, ("the",), often=0.3))
    whole = some_phrase(dice, nouns.of_kind("Q"), KNOWN, often=0.3)
    return phrases.part_of((whole.en, f"de {whole.fr}"), some_phrase(dice, PARTS, ("the",), often=0.2))


def object_of(dice: Dice, verb: Verb, negated: bool) -> Phrase:
    """What it is done to: French has `de` for "a", "some" and "any" where it is not done."""
    if "all" in verb.notes and dice.chance(0.5):
        return some_phrase(dice, [n for n in nouns.of_kind(*verb.objects) if "K" not in n.kinds], ("kind",), often=0.15)
    if dice.chance(0.1) and verb.base != "have":
        return owned_phrase(dice, verb.objects)
    indefinite = ("none",) if negated else ("a", "a", "bare", "number", "many", "several")
    determiners = KNOWN if "all" in verb.notes else (*KNOWN, *indefinite * 2)
    if verb.base == "have":
        determiners = indefinite
    return some_phrase(dice, nouns.of_kind(*verb.objects), determiners)


def tense_of(dice: Dice, verb: Verb) -> str:
    if "now" in verb.notes:
        return "now"
    if "state" in verb.notes:
        return dice.pick(("now", "past"))
    return dice.weigh((("now", 30), ("past", 36), ("ongoing", 12), ("soon", 8), ("can", 5), ("must", 5), ("want", 4)))


def negation_of(dice: Dice, tense: str) -> str:
    if dice.chance(0.75):
        return ""
    return "never" if tense in ("now", "past") and dice.chance(0.3) else "not"


def time_of(dice: Dice, tense: str, verb: Verb) -> tuple[str, str]:
    lasting = tense == "now" and verb.notes & {"now", "state"}  # not "he likes it today"
    if lasting or tense == "ongoing" or not dice.chance(0.2):
        return "", ""
    if tense == "past":
        return dates.moment(dice)
    return dice.pick(LATER if tense in ("soon", "can", "must", "want") else NOWADAYS)


def joined(*parts: tuple[str, str]) -> tuple[str, str]:
    """Pieces of a sentence one after the other, empty ones left out."""
    return " ".join(en for en, _ in parts if en), " ".join(fr for _, fr in parts if fr)


def said_or_asked(dice: Dice, clause: Clause | Being) -> Row:
    if clause.negation or not dice.chance(0.15):
        return (*clause.say(), ".")
    return (*clause.ask(), "?")


def clause_of(dice: Dice, verb: Verb, rest: tuple[str, str], negation: str, tense: str, who: Phrase) -> Clause:
    often = tense == "now" and not negation and dice.chance(0.2)
    return Clause(who, verb, tense, negation, dice.pick(ADVERBS) if often else ("", ""), rest)


def action(dice: Dice) -> Row:
    """Somebody does something to something."""
    verb = dice.pick([v for v in verbs.TRANSITIVE if "to" not in v.notes])
    tense = tense_of(dice, verb)
    negation = negation_of(dice, tense)
    what = object_of(dice, verb, bool(negation))
    time = time_of(dice, tense, verb)
    who = subject(dice, verb.subjects, negation)
    clause = clause_of(dice, verb, joined((what.en, what.fr), time), negation, tense, who)
    return said_or_asked(dice, clause)


def action_on_pronoun(dice: Dice) -> Row:
    """The object is him, her or them, which French puts before the verb."""
    verb = dice.pick([v for v in verbs.TRANSITIVE if "P" in v.objects])
    tense = tense_of(dice, verb)
    negation = negation_of(dice, tense)
    who, whom = subject(dice, verb.subjects, negation), dice.pick((phrases.HIM, phrases.HER, phrases.THEM))
    clause = Clause(who, verb, tense, negation, rest=time_of(dice, tense, verb), pronoun=whom)
    return said_or_asked(dice, clause)


def happening(dice: Dice) -> Row:
    """Somebody does something somewhere."""
    verb = dice.pick(verbs.INTRANSITIVE)
    tense = tense_of(dice, verb)
    somewhere = "place" in verb.notes or ("away" not in verb.notes and dice.chance(0.5))
    where = phrases.place(dice) if somewhere else ("", "")
    return going_on(dice, verb, tense, where)


def going_on(dice: Dice, verb: Verb, tense: str, where: tuple[str, str]) -> Row:
    negation = negation_of(dice, tense)
    who = subject(dice, verb.subjects, negation)
    return said_or_asked(dice, clause_of(dice, verb, joined(where, time_of(dice, tense, verb)), negation, tense, who))


def motion(dice: Dice) -> Row:
    verb, whither = dice.pick(((GO, phrases.destination), (COME, phrases.origin)))
    tense = tense_of(dice, verb)
    return going_on(dice, verb, tense, whither(dice))


def giving(dice: Dice) -> Row:
    """Something is given to somebody."""
    verb = dice.pick(verbs.GIVING)
    tense = tense_of(dice, verb)
    negation = negation_of(dice, tense)
    what = some_phrase(dice, nouns.of_kind(*verb.objects), (*KNOWN, *["none" if negation else "a"] * 8))
    whom = phrases.name(dice) if dice.chance(0.3) else some_phrase(dice, nouns.of_kind("P"), (*KNOWN, "a"), often=0.15)
    rest = joined((what.en, what.fr), (f"to {whom.en}", f"à {whom.fr}"))
    return said_or_asked(dice, clause_of(dice, verb, rest, negation, tense, subject(dice, "P", negation)))


def quality(dice: Dice) -> Row:
    """Something is, or was, so."""
    who, choices = spoken_about(dice)
    adjective = dice.pick(choices)
    tense = "past" if dice.chance(0.3) else "now"
    rest = agreed(dice, who, adjective)
    return said_or_asked(dice, Being(who, rest, tense, denial(dice, who)))


def denial(dice: Dice, who: Phrase) -> str:
    """Now and then `not`, though never of "all the …": it would mean two things."""
    return "not" if dice.chance(0.2) and not who.en.startswith("all ") else ""


def spoken_about(dice: Dice) -> tuple[Phrase, Sequence[Adjective]]:
    """A subject, and the adjectives that can be said of it."""
    people = adjectives.said_of(nouns.BY_ENGLISH["man"])
    kind = dice.weigh((("pronoun", 20), ("name", 12), ("institution", 5), ("phrase", 63)))
    if kind == "pronoun":
        return dice.pick(PRONOUNS), people
    if kind == "name":
        return (phrases.two_names(dice) if dice.chance(0.2) else phrases.name(dice)), people
    if kind == "institution":
        return institution(dice), (adjectives.BY_ENGLISH["important"], adjectives.BY_ENGLISH["modern"])
    noun = dice.pick(nouns.NOUNS)
    determiners = (*KNOWN, *KNOWN, "all", "numbered") if noun.counted else KNOWN
    return some_phrase(dice, [noun], determiners, often=0.15), adjectives.said_of(noun)


def agreed(dice: Dice, who: Phrase, adjective: Adjective) -> tuple[str, str]:
    """An adjective that agrees with whom it is said of, perhaps with a degree."""
    said = adjective.en, adjective.agreed(who.gender, who.plural)
    return joined(dice.pick(DEGREES), said) if adjective.gradable and dice.chance(0.4) else said


def institution(dice: Dice) -> Phrase:
    """ "the European Economic Area": two adjectives that French puts after the noun, the other way round."""
    noun = dice.pick(nouns.of_kind("I"))
    said = [dice.pick(adjectives.ORIGINS), dice.pick(adjectives.DOMAINS)]
    if dice.chance(0.3):
        said.pop(dice.below(2))
    phrase = noun_phrase(noun, "the", said=said)
    if dice.chance(0.35):
        return phrase
    return Phrase(_titled(phrase.en), phrase.fr, phrase.gender, kinds=phrase.kinds)


def _titled(text: str) -> str:
    return " ".join(word if word == "the" else word[0].upper() + word[1:] for word in text.split())


def comparison(dice: Dice) -> Row:
    """More, less or as much so as another."""
    if dice.chance(0.5):
        one, other = dice.two(nouns.NAMES)
        who, whom = Phrase(one.en, one.en, one.gender), Phrase(other.en, other.en, other.gender)
        choices: Sequence[Adjective] = adjectives.said_of(nouns.BY_ENGLISH["man"])
    else:
        noun, another = dice.two(nouns.of_kind(dice.pick("PATWVLX")))
        who, whom = (some_phrase(dice, [n], KNOWN, often=0.1) for n in (noun, another))
        choices = [a for a in adjectives.said_of(noun) if a in adjectives.said_of(another)]
    adjective = dice.pick([a for a in choices if a.comparable])
    fr = adjective.agreed(who.gender, who.plural)
    en, fr = dice.pick(
        (
            (f"{adjective.comparative} than {whom.en}", f"plus {fr} que {whom.fr}"),
            (f"as {adjective.en} as {whom.en}", f"aussi {fr} que {whom.fr}"),
            (f"less {adjective.en} than {whom.en}", f"moins {fr} que {whom.fr}"),
        )
    )
    return said_or_asked(dice, Being(who, (en, fr)))


def whereabouts(dice: Dice) -> Row:
    who = some_phrase(dice, nouns.of_kind(*"PATW"), (*KNOWN, "all", "numbered"), often=0.2)
    tense = "past" if dice.chance(0.25) else "now"
    return said_or_asked(dice, Being(who, phrases.place(dice), tense, denial(dice, who)))


def existence(dice: Dice) -> Row:
    """There is something somewhere, or there is none of it."""
    negated = dice.chance(0.25)
    determiners = ("no",) if negated else ("a", "a", "a", "number", "many", "several")
    what = some_phrase(dice, nouns.of_kind(*"PATFMDWV"), determiners)
    where = phrases.place(dice)
    be = "are" if what.plural else "is"
    if not negated and dice.chance(0.2):
        return (*joined((f"{be} there", "est-ce que il y a"), (what.en, what.fr), where), "?")
    there = (f"there {be}", "il ne y a pas" if negated else "il y a")
    return (*joined(there, (what.en, what.fr), where), ".")


POINTING = {  # by number and whether it is denied
    (False, False): ("this is", "c'est"),
    (False, True): ("this is not", "ce ne est pas"),
    (True, False): ("these are", "ce sont"),
    (True, True): ("these are not", "ce ne sont pas"),
}


def pointing(dice: Dice) -> Row:
    """This is something, these are some."""
    what = some_phrase(dice, nouns.of_kind(*"PATWVLX"), (*POSSESSIVES, "the", "a", "a", "a"), often=0.6)
    return (*joined(POINTING[what.plural, dice.chance(0.25)], (what.en, what.fr)), ".")


def question(dice: Dice) -> Row:
    """Where, when or why somebody does something."""
    verb = dice.pick((*verbs.INTRANSITIVE, GO, *verbs.TRANSITIVE))
    tense = tense_of(dice, verb)
    what = object_of(dice, verb, negated=False) if verb.objects else None
    rest = (what.en, what.fr) if what else ("", "")
    word = WORDS_THAT_ASK[0] if verb is GO or "place" in verb.notes else dice.pick(WORDS_THAT_ASK)
    return (*Clause(subject(dice, verb.subjects), verb, tense, rest=rest).ask(word), "?")


def question_what(dice: Dice) -> Row:
    verb = dice.pick([v for v in verbs.TRANSITIVE if "to" not in v.notes and not set("PQO") & set(v.objects)])
    clause = Clause(subject(dice, verb.subjects), verb, tense_of(dice, verb))
    return (*clause.ask(("what", "que")), "?")


def question_who(dice: Dice) -> Row:
    verb = dice.pick([v for v in verbs.TRANSITIVE if "P" in v.subjects and "to" not in v.notes])
    what = object_of(dice, verb, negated=False)
    return (*Clause(Phrase("who", "qui"), verb, tense_of(dice, verb), rest=(what.en, what.fr)).say(), "?")
