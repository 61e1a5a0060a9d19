"""Sentences with two clauses, where French agreement reaches further back.

A pronoun takes the gender of what it stands for ("the car is old but it is fast"), and a participle agrees with an
object named before it (`la maison que Paul a achetée`, `il l'a mangée`).
"""

from toytext.bilingual import adjectives, nouns, phrases, verbs
from toytext.bilingual.clauses import Being, Clause
from toytext.bilingual.phrases import POSSESSIVES, Phrase, some_phrase
from toytext.bilingual.sentences import KNOWN, POINTING, Row, agreed, joined, object_of, subject, tense_of
from toytext.draw import Dice

LINKS = (("but", "mais"), ("and", "et"))
FEELINGS = tuple(adjectives.BY_ENGLISH[word] for word in "happy sad tired nervous".split())


def contrast(dice: Dice) -> Row:
    """ "The house is old but it is beautiful." """
    noun = dice.pick([n for n in nouns.NOUNS if "I" not in n.kinds])
    who = some_phrase(dice, [noun], KNOWN, often=0)
    one, other = dice.two(adjectives.said_of(noun))
    while not adjectives.compatible(one, other):
        one, other = dice.two(adjectives.said_of(noun))
    tense = "past" if dice.chance(0.3) else "now"
    first = Being(who, agreed(dice, who, one), tense).say()
    second = Being(who.pronoun(), agreed(dice, who, other), tense).say()
    return (*joined(first, dice.pick(LINKS), second), ".")


def reason(dice: Dice) -> Row:
    """ "Paul is tired because he worked." """
    who = subject(dice, "P")
    verb = dice.pick([v for v in verbs.VERBS if "to" not in v.notes and "now" not in v.notes])
    tense = dice.pick(("past", "past", "soon", "must")) if "state" not in verb.notes else "past"
    negation = "not" if dice.chance(0.25) else ""
    rest = ("", "")
    if verb.objects:
        what = object_of(dice, verb, bool(negation))
        rest = (what.en, what.fr)
    elif "place" in verb.notes:
        rest = phrases.place(dice)
    feeling = Being(who, agreed(dice, who, dice.pick(FEELINGS))).say()
    because = Clause(who.pronoun(), verb, tense, negation, rest=rest).say()
    return (*joined(feeling, ("because", "parce que"), because), ".")


def sequel(dice: Dice) -> Row:
    """ "Anna bought an apple and she ate it." """
    kind = dice.pick("TWVF")
    first, then = dice.two([v for v in verbs.doing_to(kind) if not v.notes])
    who = subject(dice, "P")
    what = some_phrase(dice, nouns.of_kind(kind), ("a", "a", "the", *POSSESSIVES), often=0.3)
    done = Clause(who, first, "past", rest=(what.en, what.fr)).say()
    next_done = Clause(who.pronoun(), then, "past", pronoun=what.object_pronoun()).say()
    return (*joined(done, dice.pick(LINKS), next_done), ".")


def with_subject_clause(dice: Dice) -> Phrase:
    """ "the man who wrote the letter" """
    head = some_phrase(dice, nouns.of_kind("P"), ("the", "the", "this", "that"), often=0.15)
    verb = dice.pick([v for v in verbs.VERBS if "to" not in v.notes and "place" not in v.notes])
    what = object_of(dice, verb, negated=False) if verb.objects else None
    who = Phrase("who", "qui", head.gender, head.plural)
    clause = Clause(who, verb, tense_of(dice, verb), rest=(what.en, what.fr) if what else ("", "")).say()
    return _extended(head, clause)


def with_object_clause(dice: Dice) -> Phrase:
    """ "the house that Paul bought" """
    kind = dice.pick("TWVF")
    head = some_phrase(dice, nouns.of_kind(kind), ("the",), often=0.2)
    verb = dice.pick([v for v in verbs.doing_to(kind) if not v.notes])
    clause = Clause(subject(dice, "P"), verb, "past", named_before=head).say()
    return _extended(head, joined(("that", "que"), clause))


def _extended(head: Phrase, clause: tuple[str, str]) -> Phrase:
    en, fr = joined((head.en, head.fr), clause)
    return Phrase(en, fr, head.gender, head.plural, kinds=head.kinds)


def relative(dice: Dice) -> Row:
    """ "The man who wrote the letter is tired.", "The house that Paul bought is old." """
    who = dice.pick((with_subject_clause, with_object_clause))(dice)
    choices = [a for a in adjectives.ADJECTIVES if a.kinds & who.kinds and a.place in ("pre", "post")]
    return (*Being(who, agreed(dice, who, dice.pick(choices)), "past" if dice.chance(0.3) else "now").say(), ".")


def pointing_at(dice: Dice) -> Row:
    """ "This is the book that Anna wrote." """
    what = with_object_clause(dice)
    return (*joined(POINTING[what.plural, False], (what.en, what.fr)), ".")
