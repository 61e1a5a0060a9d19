"""How French words change beside each other and by gender and number.

In come French words as the grammar puts them in a row ("de le ami"); out comes what is written ("de l'ami").
"""

ELIDED = frozenset("le la de je ne que".split())  # before a vowel the last letter becomes an apostrophe
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
VOWELS = frozenset("aeiouàâéèêîôûœ")
UNELIDED = frozenset("huit onze héros hibou hiboux haut haute hauts hautes".split())  # aspirated h, and two numbers


def opens_with_vowel(text: str) -> bool:
    """Whether the first word is heard with a vowel first, as `homme` is and `héros` is not."""
    word = text.split()[0].lower()
    return word not in UNELIDED and (word[0] in VOWELS or word[0] == "h" or word == "y")


def spell(text: str) -> str:
    """The words of a row as they are written: elided before vowels, and prepositions joined with articles."""
    written: list[str] = []  # from the last word to the first: whether `le` elides decides whether `de` contracts
    for word in reversed(text.split()):
        if not written:
            written.append(word)
        elif word in ELIDED and opens_with_vowel(written[-1]):
            written[-1] = f"{word[:-1]}'{written[-1]}"
        elif (word, written[-1]) in CONTRACTED:
            written[-1] = CONTRACTED[word, written[-1]]
        else:
            written.append(word)
    return " ".join(reversed(written))


def plural(word: str) -> str:
    """The regular plural of a noun or a masculine adjective."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word.removesuffix("al") + "aux"
    return word + ("x" if word.endswith(("eau", "jeu")) else "s")


FEMININE_ENDINGS = (("er", "ère"), ("eux", "euse"), ("en", "enne"), ("on", "onne"), ("el", "elle"), ("e", "e"))


def feminine(word: str) -> str:
    """The regular feminine of an adjective."""
    for ending, becomes in FEMININE_ENDINGS:
        if word.endswith(ending):
            return word.removesuffix(ending) + becomes
    return word + "e"


def agree(participle: str, gender: str, many: bool) -> str:
    """A past participle made to agree: `vu`, `vue`, `vus`, `vues`."""
    word = participle + ("e" if gender == "f" else "")
    return plural(word) if many else word
