"""Character classes as the `tokenizers` library has them, for a browser whose Unicode version is another one.

In: the name of a class. Out: its code points, as ranges and packed as text. The library's parts each have tables of their
own age (Oniguruma's letters are of Unicode 16, BERT's punctuation of Unicode 8), a browser has the ones of its release, and
they disagree on some thousand characters. So the browser is given the classes that a tokenizer uses, determined here by
running the library on every character.

What the browser does take from its own Unicode tables are decompositions, compositions and lower case, which do not change
once a character exists; `NORMALIZED` says which characters the library knows to take part in them.
"""

from collections.abc import Callable, Iterable
from functools import cache

from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

Ranges = list[tuple[int, int]]  # first and last, in order

WORD, NUMERIC, PUNCTUATION = "word", "numeric", "punctuation"
CONTROL, IDEOGRAPH, NONSPACING_MARK, COMBINING_MARK = "control", "ideograph", "nonspacing mark", "combining mark"
NMT_REMOVED, NMT_SPACE, NORMALIZED = "nmt removed", "nmt space", "normalized"

APART = "⠿"  # U+283F: no class has it, nothing changes it or combines with it
LAST_CLASS = "\u0345"  # has the highest combining class, so it moves behind every other combining character


@cache
def ranges_of(name: str) -> Ranges:
    """The ranges of a class above or of a regular expression for one character (`\\p{L}`); after ^, of all others."""
    if name.startswith("^"):
        return _complement(ranges_of(name[1:]))
    return _CLASSES[name]() if name in _CLASSES else _matching(name)


def packed(name: str) -> str:
    """The ranges in base 36: for each, how many characters are skipped and, after a dash, how many more than one follow."""
    parts, end = list[str](), 0
    for first, last in ranges_of(name):
        parts.append(_base36(first - end) + (f"-{_base36(last - first)}" if last > first else ""))
        end = last + 1
    return " ".join(parts)


def _base36(n: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return digits[n] if n < 36 else _base36(n // 36) + digits[n % 36]


def _complement(ranges: Ranges) -> Ranges:
    ends = [-1, *(last for _, last in ranges)], [*(first for first, _ in ranges), 0x110000]
    return [(before + 1, after - 1) for before, after in zip(*ends, strict=True) if before + 1 < after]


def _ranges(characters: Iterable[str]) -> Ranges:
    found = list[tuple[int, int]]()
    for code in sorted(map(ord, characters)):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


@cache
def _characters() -> list[str]:
    """Every character that some library may have in a class: without surrogates, `APART` and the ten planes without any."""
    empty = {*range(0xD800, 0xE000), *range(0x40000, 0xE0000), ord(APART)}
    return [chr(code) for code in range(0x110000) if code not in empty]


def _matching(element: str) -> Ranges:
    left = normalizers.Replace(Regex(f"(?:{element})+"), "").normalize_str("".join(_characters()))
    return _ranges(set(_characters()).difference(left))


def _split_off(stage: PreTokenizer) -> Ranges:
    """The characters that a pre-tokenizer separates from others."""
    pieces = stage.pre_tokenize_str(APART + APART.join(_characters()) + APART)
    return _ranges(piece for piece, _ in pieces if APART not in piece)


def _each(normalizer: Normalizer, before: str = "") -> list[str]:
    """What a normalizer makes of each character, after `before`."""
    return normalizer.normalize_str(APART.join(before + c for c in _characters())).split(APART)


def _made_into(normalizer: Normalizer, wanted: Callable[[str], str]) -> Ranges:
    """The characters c of which a normalizer makes `wanted(c)`."""
    made = zip(_characters(), _each(normalizer), strict=True)
    return _ranges(c for c, result in made if result != c and result == wanted(c))


def _bert(**settings: bool) -> Normalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**(off | settings))


def _nonspacing_marks() -> Ranges:
    """Of the characters that are their own decomposition, those that BERT then removes."""
    each = zip(_characters(), _each(_bert(strip_accents=True)), _each(normalizers.NFD()), strict=True)
    return _ranges(c for c, result, decomposed in each if decomposed == c and not result)


def _normalized() -> Ranges:
    """The characters that take part in a normal form: they decompose, come from a decomposition, or are reordered."""
    canonical = _each(normalizers.NFD())
    found = {c for c, form in zip(_characters(), _each(normalizers.NFKD()), strict=True) if form != c}
    found |= {part for c, form in zip(_characters(), canonical, strict=True) if form != c for part in form}
    moved = _each(normalizers.NFD(), before=LAST_CLASS)
    found |= {c for c, form in zip(_characters(), moved, strict=True) if form != LAST_CLASS + c}
    return _ranges(found | {LAST_CLASS})


_CLASSES: dict[str, Callable[[], Ranges]] = {
    WORD: lambda: _split_off(pre_tokenizers.Whitespace()),
    NUMERIC: lambda: _split_off(pre_tokenizers.Digits()),
    PUNCTUATION: lambda: _split_off(pre_tokenizers.Punctuation()),
    CONTROL: lambda: _made_into(_bert(clean_text=True), lambda c: ""),
    IDEOGRAPH: lambda: _made_into(_bert(handle_chinese_chars=True), lambda c: f" {c} "),
    NONSPACING_MARK: _nonspacing_marks,
    COMBINING_MARK: lambda: _made_into(normalizers.StripAccents(), lambda c: ""),
    NMT_REMOVED: lambda: _made_into(normalizers.Nmt(), lambda c: ""),
    NMT_SPACE: lambda: _made_into(normalizers.Nmt(), lambda c: " "),
    NORMALIZED: _normalized,
}
