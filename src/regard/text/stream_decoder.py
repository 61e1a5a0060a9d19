"""Streaming decode: ids → text, one id at a time.

In: ids as a model generates them. Out: the text each one adds, so that the pieces joined equal decoding all ids at once. A
character whose bytes are spread over several tokens is buffered until it is complete, and so is a space that a later token
may still remove. Each strategy below does a bounded amount of work per id.
"""

import codecs
import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tokenizers

# Spaces that detokenisation removes, in the order the reference library replaces them.
CLEANUP = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def clean_up(text: str) -> str:
    """Remove the spaces WordPiece decoding leaves before punctuation and contractions."""
    for old, new in CLEANUP:
        text = text.replace(old, new)
    return text


class StreamDecoder:
    """Decodes ids incrementally: `push` returns the text that is now certain, `flush` what is still buffered."""

    def __init__(self, raw: tokenizers.Tokenizer, check: Callable[[int], int], skip: Iterable[int], clean: bool):
        self._check = check
        self._skip = frozenset(skip)
        self._decoder = _strategy(raw)
        self._cleaners = [_Replacer(old, new) for old, new in CLEANUP] if clean else []

    def push(self, token_id: int) -> str:
        token_id = self._check(token_id)
        if token_id in self._skip:
            return ""
        text = self._decoder.push(token_id)
        for cleaner in self._cleaners:
            text = cleaner.push(text)
        return text

    def flush(self) -> str:
        text = self._decoder.flush()
        for cleaner in self._cleaners:
            text = cleaner.push(text) + cleaner.flush()
        return text


class _Decoder(Protocol):
    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


def _strategy(raw: tokenizers.Tokenizer) -> _Decoder:
    steps = decoder_steps(raw)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _ByteLevel(raw)
    if "Fuse" in kinds and not _only_strips_left(steps[kinds.index("Fuse") + 1 :]):
        return _Whole(raw)
    if set(kinds) <= {"WordPiece", "Metaspace", "BPEDecoder", "Replace", "ByteFallback", "Fuse", "Strip"}:
        return _Window(raw, byte_fallback="ByteFallback" in kinds)
    return _Whole(raw)


def decoder_steps(raw: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder as a flat list of its serialised steps, empty if there is none."""
    if raw.decoder is None:
        return []
    state = json.loads(raw.decoder.__getstate__())
    return list(state["decoders"]) if state["type"] == "Sequence" else [state]


def _only_strips_left(steps: list[dict[str, Any]]) -> bool:
    return all(step["type"] == "Strip" and step["stop"] == 0 for step in steps)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character for every byte (Radford et al. 2019): itself if visible, else from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}


BYTE_OF = _byte_alphabet()


def piece_bytes(piece: str) -> bytes:
    """The bytes of a byte-level piece; a piece outside the byte alphabet is plain text."""
    try:
        return bytes(BYTE_OF[c] for c in piece)
    except KeyError:
        return piece.encode()


class _ByteLevel:
    """For byte-level BPE: incremental UTF-8 decoding."""

    def __init__(self, raw: tokenizers.Tokenizer):
        self._piece = raw.id_to_token
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        return self._utf8.decode(piece_bytes(self._piece(token_id) or ""))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _Window:
    """For decoders in which a token's text depends only on the token before it.

    A run of byte tokens (`<0xE2>`) is one unit: the library decodes it as a whole or not at all.
    """

    def __init__(self, raw: tokenizers.Tokenizer, byte_fallback: bool):
        self._raw = raw
        self._byte_fallback = byte_fallback
        self._before: list[int] = []
        self._run: list[int] = []

    def push(self, token_id: int) -> str:
        if self._byte_fallback and is_byte_piece(self._raw.id_to_token(token_id) or ""):
            self._run.append(token_id)
            return ""
        return self.flush() + self._added([token_id])

    def flush(self) -> str:
        run, self._run = self._run, []
        return self._added(run) if run else ""

    def _added(self, unit: list[int]) -> str:
        known = len(self._raw.decode(self._before, skip_special_tokens=False))
        text = self._raw.decode(self._before + unit, skip_special_tokens=False)
        self._before = unit
        return text[known:]


def is_byte_piece(piece: str) -> bool:
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


class _Whole:
    """For decoders this module does not know: all text at the end, which is always correct."""

    def __init__(self, raw: tokenizers.Tokenizer):
        self._raw = raw
        self._ids: list[int] = []

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        return ""

    def flush(self) -> str:
        ids, self._ids = self._ids, []
        return self._raw.decode(ids, skip_special_tokens=False)


class _Replacer:
    """`str.replace` on a stream: buffers at most a proper prefix of `old`."""

    def __init__(self, old: str, new: str):
        self._old, self._new, self._held = old, new, ""

    def push(self, text: str) -> str:
        *done, rest = (self._held + text).split(self._old)
        keep = next(n for n in range(min(len(self._old) - 1, len(rest)), -1, -1) if rest.endswith(self._old[:n]))
        self._held = rest[len(rest) - keep :]
        return "".join(part + self._new for part in done) + rest[: len(rest) - keep]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held
