"""Lower bounds on the number of tokens of a text, from its bytes alone, so that a text that cannot fit is never encoded.

In: a `tokenizers.Tokenizer`. Out: sets of weights for the 256 byte values, each with the largest weight of one token. A
text that weighs more than `n` times that has more than `n` tokens, because every byte with a weight ends up in some token
and the weight of a text is the sum over its tokens. One set counts all bytes; it is loose where a vocabulary has a token of
128 spaces. So others count one kind of byte each: no token has many letters, digits or first bytes of ideographs. The
largest of the bounds is used.

Three kinds of pipeline have such bounds:

- *Byte-level BPE* (GPT-2, Llama 3, Qwen). BPE drops bytes that it has no token for, so these have weight 0.
- *BPE on characters with byte fallback* (Llama's SentencePiece), where a `▁` may be a space or a `▁` in the text.
- *WordPiece* (BERT). A word of any length may be one unknown token, so letters have weight 0; but every ASCII punctuation
  mark and, if the normalizer puts spaces around them, every ideograph is a word, which has at least one token.

With a normalizer before BPE, text and tokens have different weights, since the text is weighed before normalization.
Unicode's normal forms and lower case leave U+4000 to U+9FFF and ASCII unchanged (letters stay letters), except that an
ASCII character may be composed with a following combining mark: so each character beyond ASCII cancels one letter. A
composed character consists of at most four.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from regard.text.stream_decoder import BYTE_OF, piece_bytes

Weights = npt.NDArray[np.int64]

CHUNK = 1 << 16  # bytes counted at a time: numpy converts each to eight
PIECES = 1 << 12  # tokens weighed at a time
MARK = "▁"
WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGITS = b"0123456789"
SIGNS = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
CONTROLS = bytes([*range(0x20), 0x7F])
ASCII = (b" ", CONTROLS, DIGITS, LETTERS, SIGNS)
LEADS = bytes(range(0xC2, 0xF5))  # the first bytes of characters beyond ASCII
IDEOGRAPHS = bytes(range(0xE4, 0xEA))  # U+4000 to U+9FFF
SCRIPTS = (
    bytes(range(0xC2, 0xE0)),  # two bytes: Latin, Greek, Cyrillic, Hebrew, Arabic
    bytes(range(0xE0, 0xE2)),  # Indic scripts, Thai, Georgian, Khmer
    b"\xe2",  # punctuation and symbols
    b"\xe3",  # kana
    IDEOGRAPHS,
    bytes(range(0xEA, 0xEE)),  # Hangul
    bytes(range(0xEE, 0xF0)),
    bytes(range(0xF0, 0xF5)),  # emoji
    bytes(range(0x80, 0x100)),
)
EVERY = bytes(range(256))
MAX_PARTS = 4  # of a character that Unicode composes
# Characters before normalisation for each one after it, at most
SHRINKING = {"NFC": MAX_PARTS, "NFKC": MAX_PARTS, "NFD": 1, "NFKD": 1, "Lowercase": 1}
SPELLED_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


@dataclass(frozen=True, eq=False)
class Bound:
    """No token weighs more than `most` by `of_token`, nor does the text that it encodes by `of_text`."""

    of_text: Weights
    of_token: Weights
    most: int

    def with_spelled(self, spellings: Iterable[str]) -> "Bound":
        """The same bound, with added tokens that a text may spell."""
        written = [text for spelling in spellings for text in {spelling, spelling.replace(MARK, " ")}]
        return replace(self, most=max([self.most, *_heaviest([text.encode() for text in written], [self.of_token])]))

    def counts_whitespace(self) -> bool:
        return any(self.of_text[list(each.encode())].sum() > 0 for each in WHITESPACE)


def have_more(bounds: Sequence[Bound], text: str, tokens: int) -> bool:
    """Whether a text certainly has more than so many tokens, by one of the bounds."""
    if not bounds:
        return False
    data = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)
    counts = np.zeros(256, np.int64)
    for begin in range(0, len(data), CHUNK):
        counts += np.bincount(data[begin : begin + CHUNK], minlength=256)
    return any(int(each.of_text @ counts) > tokens * each.most for each in bounds)


def bounds_of(
    raw: tokenizers.Tokenizer, normal: list[dict[str, Any]], before: list[dict[str, Any]]
) -> tuple[Bound, ...]:
    """The bounds that hold for a tokenizer with these steps of normalisation and pre-tokenisation."""
    kinds, model = [stage["type"] for stage in normal], raw.model
    if isinstance(model, tokenizers.models.WordPiece):
        return _of_words(normal) if [stage["type"] for stage in before] == ["BertPreTokenizer"] else ()
    if not isinstance(model, tokenizers.models.BPE) or model.dropout:
        return ()
    vocab = raw.get_vocab(with_added_tokens=False)
    # a twin that encodes control tokens as text has them under other names
    control = {token.content for token in raw.get_added_tokens_decoder().values() if token.special}
    if not before and marks_spaces(normal):
        if not model.byte_fallback or not vocab.keys() >= SPELLED_BYTES or not SPELLED_BYTES.isdisjoint(control):
            return ()
        spellings = (spelling.encode() for token in vocab for spelling in {token, token.replace(MARK, " ")})
        return _of_bytes(chain(spellings, (bytes([byte]) for byte in range(256))), EVERY)
    # with an affix, a byte has another token
    affixes = model.continuing_subword_prefix or model.end_of_word_suffix
    if affixes or not set(kinds) <= SHRINKING.keys() or not _keeps_all(before):
        return ()
    known = bytes(byte for letter, byte in BYTE_OF.items() if letter in vocab and letter not in control)
    pieces = map(piece_bytes, vocab)
    return _of_normalised(pieces, known, max(SHRINKING[kind] for kind in kinds)) if kinds else _of_bytes(pieces, known)


def marks_spaces(normal: list[dict[str, Any]]) -> bool:
    """Whether the normalizer only replaces every space by `▁` and perhaps prepends one."""
    marks = bool(normal) and normal[-1] == {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    return marks and normal[:-1] in ([], [{"type": "Prepend", "prepend": MARK}])


def _of_bytes(pieces: Iterable[bytes], known: bytes) -> tuple[Bound, ...]:
    each = [_ones(kind, known) for kind in (*ASCII, *SCRIPTS, EVERY)]
    return tuple(Bound(of, of, most) for of, most in zip(each, _heaviest(pieces, each), strict=True))


def _of_normalised(pieces: Iterable[bytes], known: bytes, parts: int) -> tuple[Bound, ...]:
    if not set(known) >= {*b" ", *DIGITS, *LETTERS, *SIGNS, *range(0x80, 0xC0)}:
        return ()  # normalization may turn a character with known bytes into one without
    kept = [_ones(kind, known) for kind in (*ASCII, IDEOGRAPHS)]
    of_token = [*kept, parts * _ones(EVERY)]
    of_text = [*(of - _ones(LEADS) for of in kept[:-1]), kept[-1], _ones(LEADS) + sum(kept[:-1])]
    return tuple(map(Bound, of_text, of_token, _heaviest(pieces, of_token)))


def _of_words(normal: list[dict[str, Any]]) -> tuple[Bound, ...]:
    if [stage["type"] for stage in normal] not in ([], ["BertNormalizer"]):
        return ()
    kinds = [SIGNS]
    if normal and normal[0]["handle_chinese_chars"]:
        kinds.append(IDEOGRAPHS[1:])  # U+4DC0 to U+4DFF are none
    return tuple(Bound(of, of, 1) for of in map(_ones, kinds))


def _ones(kind: bytes, known: bytes = EVERY) -> Weights:
    return np.isin(np.arange(256), [byte for byte in kind if byte in known]).astype(np.int64)


def _heaviest(pieces: Iterable[bytes], weights: Sequence[Weights]) -> list[int]:
    """The largest weight of a piece, for each set of weights; a few thousand pieces at a time, to save memory."""
    most, left = [0] * len(weights), (piece for piece in pieces if piece)
    while batch := list(islice(left, PIECES)):
        letters, begins = np.frombuffer(b"".join(batch), np.uint8), np.cumsum([0, *map(len, batch[:-1])])
        heavy = (int(np.add.reduceat(of[letters], begins).max()) for of in weights)
        most = [max(pair) for pair in zip(most, heavy, strict=True)]
    return most


def _keeps_all(stages: list[dict[str, Any]]) -> bool:
    """Whether the pre-tokenizer passes every byte of a text to the model."""
    *before, last = stages or [{"type": None}]
    return last["type"] == "ByteLevel" and all(
        each["type"] == "Digits" or (each["type"] == "Split" and each["behavior"] != "Removed") for each in before
    )
