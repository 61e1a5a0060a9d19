"""Byte-level BPE with a cache of words, for tokenising a corpus.

In: a tokenizer. Out: a function that returns the ids `tokenizer.encode` returns, faster. Most words of a text have occurred
before, and the ids of a word do not depend on its neighbours, so they are cached; what is left is to split text into words
as GPT-2 does. This needs to know which characters are letters, so it is done for European text only; other text, and other
kinds of tokenizer, are encoded by the `tokenizers` library. (Its batch encoding is no faster where every process has one
core.)
"""

import json
import re
from collections.abc import Callable
from itertools import chain

from regard.text.tokenizer import Tokenizer

Encode = Callable[[str], list[int]]

LETTERS, NUMBERS, SPACES = "A-Za-zªµºÀ-ÖØ-öø-ɏ", "0-9²³¹¼-¾", "\t-\r \x85\xa0\u2028\u2029\u202f"
KNOWN = re.compile("[\0-\u024f\u2010-\u205e€]*")
# Radford et al. (2019): contractions; a word, a number or signs, each with a space before it; spaces, but for the last one
WORDS = re.compile(
    f"'(?:[sdmt]|ll|ve|re)| ?[{LETTERS}]+| ?[{NUMBERS}]+| ?[^{SPACES}{LETTERS}{NUMBERS}]+"
    f"|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+"
)
PIPELINE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
MAX_CACHED_WORDS, MAX_WORD_LENGTH = 1 << 16, 32  # words in the cache, and characters of one; at most some 15 MB


class WordCache(dict[str, list[int]]):
    """Word → ids, computed when first looked up."""

    def __init__(self, encode: Encode) -> None:
        super().__init__()
        self.encode = encode

    def __missing__(self, word: str) -> list[int]:
        ids = self.encode(word)
        if len(word) <= MAX_WORD_LENGTH:
            if len(self) >= MAX_CACHED_WORDS:
                self.clear()  # full: start again with the words of the current text
            self[word] = ids
        return ids


def fast_encoder(tokenizer: Tokenizer, *, add_special: bool) -> Encode:
    """`tokenizer.encode(text, add_special=add_special)` as a function of the text."""

    def slow(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=add_special)

    if not splits_like_gpt2(tokenizer):
        return slow
    before, after = frame(tokenizer) if add_special else ([], [])
    ids_of = WordCache(lambda word: tokenizer.encode(word, add_special=False)).__getitem__

    def encode(text: str) -> list[int]:
        if not KNOWN.fullmatch(text):
            return slow(text)
        return [*before, *chain.from_iterable(map(ids_of, WORDS.findall(text))), *after]

    return encode


def splits_like_gpt2(tokenizer: Tokenizer) -> bool:
    """Whether words can be encoded one by one: GPT-2's split into words, nothing else, and no token that spans words."""
    config = json.loads(tokenizer.raw.to_str())
    plain = config["normalizer"] is None and config["pre_tokenizer"] == PIPELINE and config["model"]["type"] == "BPE"
    alone = not config["model"].get("dropout") and all(token["special"] for token in config["added_tokens"])
    return plain and alone and len(tokenizer.encode("a", add_special=False)) == 1


def frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special ids before and after every text."""
    (letter,), framed = tokenizer.encode("a", add_special=False), tokenizer.encode("a")
    where = framed.index(letter)
    return framed[:where], framed[where + 1 :]
