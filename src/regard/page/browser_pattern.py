"""Regular expressions of a tokenizer (Oniguruma, Ruby's syntax) → the same expressions for a browser.

In: the pattern of a Split or Replace stage. Out: parts of a JavaScript regular expression with the flag `u`: every second
part is the name of a character class (`character_classes`), whose ranges the browser inserts. What could mean something
else there is refused by name: `^` and `\\b`, lazy and possessive repetitions, classes within classes, patterns that may
match nothing. Case-insensitive groups hold plain ASCII text: each letter becomes the class of the characters that the
library takes for it, such as ſ (long s) for s.
"""

import re
from functools import cache

from regard.text.regex_safety import UnsafePattern, may_match_nothing

Pattern = list[str]  # source, class, source, class, …, source

NOT_NEWLINE = r"[^\n]"
_ESCAPED = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}
_GROUPS = {"(": "(?:", "(?:": "(?:", "(?=": "(?=", "(?!": "(?!", "(?<=": "(?<=", "(?<!": "(?<!", "(?i:": "(?:"}
_GROUP = re.compile(r"\((?:\?(?:[=!:]|<[=!]|i:))?(?!\?)")
_CLASS = re.compile(r"\\(?:([pP])\{(\^?)([A-Za-z_]+)\}|([sSdDwWhH]))")
_CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]{1,6})\}|x([0-7][0-9a-fA-F]))")
_LITERAL = re.compile(r"\\(?:([rntfv])|([^\w\s]))")
_QUANTIFIER = re.compile(r"[?*+]|\{(\d+)?(,)?(\d+)?\}")
_ANCHORS = {"$": r"(?!" + NOT_NEWLINE + ")", r"\A": "(?<![^])", r"\z": "(?![^])"}


class Untranslatable(Exception):
    """A pattern that a browser could read as another one; the message says which part."""


def literal(text: str) -> Pattern:
    """The pattern of a text."""
    if not text:
        raise Untranslatable("it matches the empty text")
    return ["".join(map(_literal, text))]


def one_of(name: str) -> Pattern:
    """The pattern of one character of a class."""
    return ["[", name, "]"]


def translate(pattern: str) -> Pattern:
    try:
        if may_match_nothing(pattern):
            raise Untranslatable("it may match the empty text")
    except UnsafePattern as reason:
        raise Untranslatable(str(reason)) from None
    return _Translator(pattern).whole()


@cache
def _foldings() -> frozenset[str]:
    """Texts of several letters that a single character equals if case does not count: ß for ss."""
    return frozenset(folded for code in range(0x110000) if len(folded := chr(code).casefold()) > 1)


def _literal(character: str) -> str:
    return (
        character
        if character.isascii() and (character.isalnum() or character in " ',")
        else f"\\u{{{ord(character):x}}}"
    )


class _Translator:
    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.parts = [""]
        self.folds = list[bool]()  # of each open group: whether case counts for nothing in it

    def whole(self) -> Pattern:
        while self.at < len(self.text):
            self.next()
        return self.parts

    def write(self, source: str) -> None:
        self.parts[-1] += source

    def write_class(self, name: str) -> None:
        self.parts += [name, ""]

    def taken(self, kind: re.Pattern[str]) -> re.Match[str] | None:
        """The match of a kind of element here, which is then passed."""
        if found := kind.match(self.text, self.at):
            self.at = found.end()
        return found

    def next(self) -> None:
        letter = self.text[self.at]
        if letter == "[":
            self.character_class()
        elif name := self.class_name():
            self.write("[")
            self.write_class(name)
            self.write("]")
        elif found := next((each for each in _ANCHORS if self.text.startswith(each, self.at)), None):
            self.at += len(found)
            self.write(_ANCHORS[found])
        elif letter == "(":
            self.group()
        elif letter in ")|":
            self.at += 1
            self.write(letter)
            if letter == ")":
                self.folds.pop()
        elif self.quantifier():
            pass
        elif letter == ".":
            self.at += 1
            self.write(NOT_NEWLINE)
        elif letter in "^{":
            raise Untranslatable(f"it has a {letter}")
        else:
            self.character()

    def group(self) -> None:
        found = self.taken(_GROUP)
        if found is None:
            raise Untranslatable(f"it has a group that begins with {self.text[self.at : self.at + 4]}")
        folds = found[0] == "(?i:" or any(self.folds)
        if found[0] == "(?i:":
            inside = self.text[self.at :].split(")")[0]
            if not re.fullmatch(r"[a-zA-Z' |]*", inside):
                raise Untranslatable("it ignores the case of something else than ASCII text")
            if several := next((each for each in _foldings() if each in inside.lower()), None):
                raise Untranslatable(f"it ignores the case of {several}")
        self.folds.append(folds)
        self.write(_GROUPS[found[0]])

    def quantifier(self) -> bool:
        found = self.taken(_QUANTIFIER)
        if found is None or found[0] in ("{}", "{,}"):
            return False
        if self.text[self.at : self.at + 1] in ("?", "+", "*"):
            raise Untranslatable(f"it has the repetition {found[0]}{self.text[self.at]}")
        self.write(f"{{0,{found[3]}}}" if found[0].startswith("{,") else found[0])
        return True

    def character(self) -> None:
        character = self.code()
        if any(self.folds) and character.isalpha():
            self.write("[")
            self.write_class(f"(?i:{character.lower()})")
            self.write("]")
        else:
            self.write(_literal(character))

    def class_name(self) -> str | None:
        r"""The class of an escape, `\p{L}` or `\S`."""
        found = self.taken(_CLASS)
        if found is None:
            return None
        kind, caret, name, short = found.groups()
        negated = (kind == "P") != (caret == "^") if kind else short.isupper()
        return "^" * negated + (rf"\p{{{name}}}" if kind else f"\\{short.lower()}")

    def code(self) -> str:
        """One character, perhaps escaped."""
        if found := self.taken(_CODE):
            return chr(int(found[1] or found[2] or found[3], 16))
        if found := self.taken(_LITERAL):
            return _ESCAPED[found[1]] if found[1] else found[2]
        character = self.text[self.at]
        if character == "\\":
            raise Untranslatable(f"it has the escape {self.text[self.at : self.at + 2]}")
        self.at += 1
        return character

    def character_class(self) -> None:
        self.at += 1
        self.write("[")
        if self.text.startswith("^", self.at):
            self.at += 1
            self.write("^")
        while self.text[self.at : self.at + 1] != "]":
            if self.at >= len(self.text) or self.text[self.at] == "[" or self.text.startswith("&&", self.at):
                raise Untranslatable("it has a class within a class")
            if name := self.class_name():
                self.write_class(name)
                continue
            self.write(_literal(self.code()))
            if re.compile(r"-[^\]]").match(self.text, self.at):
                if _CLASS.match(self.text, self.at + 1):
                    raise Untranslatable("it has a range that ends in a class")
                self.at += 1
                self.write("-" + _literal(self.code()))
        self.at += 1
        self.write("]")
