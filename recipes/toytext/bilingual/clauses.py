"""A clause, English and French: tense, negation, adverbs, pronouns before the French verb, agreement of participles.

In comes who does what and when; out go the two sentences as rows of words. English helps itself with `do` and `be`;
French turns the past into `avoir` or `être` with a participle and asks with `est-ce que`.
"""

from dataclasses import dataclass

from toytext.bilingual.french import agree
from toytext.bilingual.phrases import Phrase
from toytext.bilingual.verbs import Verb, conjugate

MODALS = {"can": "pouvoir", "must": "devoir", "want": "vouloir"}
NEGATIONS = {"": "", "not": "pas", "never": "jamais"}
BE = {
    "now": ("am", "is", "are", "are", "are"),
    "past": ("was", "was", "were", "were", "were"),
}
BE_IN_FRENCH = {
    "now": conjugate("être")[:5],
    "past": ("étais", "était", "étions", "étiez", "étaient"),
}


@dataclass(frozen=True)
class Clause:
    """`tense` is now, ongoing, past, soon, can, must or want; `rest` is what follows the verb, in both languages."""

    subject: Phrase
    verb: Verb
    tense: str
    negation: str = ""
    adverb: tuple[str, str] = ("", "")
    rest: tuple[str, str] = ("", "")
    pronoun: Phrase | None = None  # the object, when it is one: him, her, it, them
    named_before: Phrase | None = None  # the object, when it comes before: "the house that he bought"

    def say(self) -> tuple[str, str]:
        auxiliary, main = self._english(helped=self.negation == "not")
        en = _row(self.subject.en, auxiliary, self.negation, self.adverb[0], main, self._object(), self.rest[0])
        return en, self._french()

    def ask(self, word: tuple[str, str] = ("", "")) -> tuple[str, str]:
        """A question, to be answered by yes or no or as the word (where, `où`) says."""
        auxiliary, main = self._english(helped=True)
        en = _row(word[0], auxiliary, self.subject.en, self.adverb[0], main, self._object(), self.rest[0])
        return en, _row(word[1], "est-ce que", self._french())

    def _object(self) -> str:
        return self.pronoun.en if self.pronoun else ""

    def _english(self, helped: bool) -> tuple[str, str]:
        """The auxiliary, if any, and the main verb; `helped` when there must be one."""
        auxiliary, main = self._group(helped)
        return auxiliary, _row(main, self.verb.particle)

    def _group(self, helped: bool) -> tuple[str, str]:
        verb, form = self.verb, self.subject.form
        if self.tense in ("can", "must"):
            return self.tense, verb.base
        if self.tense == "ongoing":
            return BE["now"][form], verb.ing
        if self.tense == "soon":
            return BE["now"][form], f"going to {verb.base}"
        if self.tense == "past":
            return ("did", verb.base) if helped else ("", verb.past)
        base, third = (
            (verb.base, verb.third) if self.tense == "now" else (f"want to {verb.base}", f"wants to {verb.base}")
        )
        does, does_it = ("does", third) if form == 1 else ("do", base)
        return (does, base) if helped else ("", does_it)

    def _french(self) -> str:
        finite, dependent = self._verbs()
        before = self.pronoun.fr if self.pronoun else ""
        climbs = self.tense in ("now", "ongoing", "past")  # the pronoun stands before the verb that has the object
        return _row(
            self.subject.fr,
            "ne" if self.negation else "",
            before if climbs else "",
            finite,
            NEGATIONS[self.negation],
            self.adverb[1],
            "" if climbs else before,
            dependent,
            self.rest[1],
        )

    def _verbs(self) -> tuple[str, str]:
        """The verb that agrees with the subject, and the participle or infinitive that depends on it."""
        form, verb = self.subject.form, self.verb
        if self.tense in ("now", "ongoing"):
            return verb.present[form], ""
        if self.tense == "past":
            being = "be" in verb.notes
            agrees = self.subject if being else self.pronoun or self.named_before
            participle = agree(verb.participle, agrees.gender, agrees.plural) if agrees else verb.participle
            return conjugate("être" if being else "avoir")[form], participle
        return conjugate("aller" if self.tense == "soon" else MODALS[self.tense])[form], verb.infinitive


@dataclass(frozen=True)
class Being:
    """The subject is, or was, something or somewhere: `rest`, in both languages, already agreeing."""

    subject: Phrase
    rest: tuple[str, str]
    tense: str = "now"
    negation: str = ""

    def say(self) -> tuple[str, str]:
        form = self.subject.form
        en = _row(self.subject.en, BE[self.tense][form], self.negation, self.rest[0])
        ne, pas = ("ne", NEGATIONS[self.negation]) if self.negation else ("", "")
        return en, _row(self.subject.fr, ne, BE_IN_FRENCH[self.tense][form], pas, self.rest[1])

    def ask(self) -> tuple[str, str]:
        en = _row(BE[self.tense][self.subject.form], self.subject.en, self.rest[0])
        return en, _row("est-ce que", self.say()[1])


def _row(*words: str) -> str:
    return " ".join(word for word in words if word)
