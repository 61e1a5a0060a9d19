"""Validation of a tokenizer's definition, before the `tokenizers` library parses it.

In: the parsed parts of a tokenizer.json (or of the older files). Out: nothing, or a `TokenizerError` naming the file. The
library trusts its input more than it should: some contradictions make it panic, which prints to stderr and is no
`Exception`; and a small file can make it use unbounded memory or time. The limits here are far beyond what any known
tokenizer needs.
"""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import TokenizerError, quoted
from regard.text.regex_safety import LINEAR, may_match_nothing, why_slow

MAX_ADDED = 1 << 17  # added tokens
MAX_TOKEN = 4096  # characters of a token
MAX_ADDED_TOKEN = 1024  # characters of an added token
MAX_AFFIX = 64  # characters of a prefix, suffix or replacement of a stage
MAX_GROWTH = 16  # characters that a normalizer can make of one
MAX_STAGES = 64
MAX_DEPTH = 8  # of sequences of stages
MAX_SPECIAL = 64  # special tokens that a post-processor adds to a text
MAX_WORD = 1000  # characters of a word that WordPiece looks up, in quadratic time
MAX_IDS = 1 << 22  # the library counts from 0 to the last one
ADD_SPECIAL = ("TemplateProcessing", "RobertaProcessing", "BertProcessing")
# The stages of each part, and the key of a sequence's children. The library does not refuse an unknown type: it takes the
# first stage with matching fields.
STAGES = {
    "normalizer": "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit",
    "decoder": "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece",
    "post_processor": "BertProcessing ByteLevel RobertaProcessing TemplateProcessing",
}
CHILDREN = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}


# ── vocabulary ──────────────────────────────────────────────────────────────────────────────────────────────────────


def check_model(model: Any, file: Path) -> None:
    """Refuse a vocabulary with duplicate ids or oversized tokens, and BPE merges with missing tokens."""
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, dict | list):
        raise TokenizerError(f"{file} has no model with a vocabulary.")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        _check_length(model.get(name), MAX_AFFIX if name != "unk_token" else MAX_ADDED_TOKEN, name, file)
    word = model.get("max_input_chars_per_word")
    if isinstance(word, int) and not 0 <= word <= MAX_WORD:
        raise TokenizerError(f"{file} has max_input_chars_per_word {word}; it can be up to {MAX_WORD}.")
    if isinstance(vocab, list):  # a unigram model: pieces with scores, in the order of ids
        for entry in vocab:
            if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
                raise TokenizerError(
                    f"{file} has a vocabulary entry that is not a piece with a score: {quoted(entry)}."
                )
        check_lengths((entry[0] for entry in vocab), file)
        return
    _check_ids(vocab, file)
    check_lengths(vocab, file)
    _check_merges(model, vocab, file)


def check_lengths(tokens: Any, file: Path | str, most: int = MAX_TOKEN) -> None:
    longest = max(tokens, key=len, default="")
    if len(longest) > most:
        raise TokenizerError(
            f"{file} has a token of {len(longest):,} characters, {quoted(longest, 20)}; {most:,} are allowed."
        )


def _check_ids(vocab: dict[str, Any], file: Path) -> None:
    seen: dict[int, str] = {}
    for token, i in vocab.items():
        if type(i) is not int or not 0 <= i < MAX_IDS:
            raise TokenizerError(
                f"{file} gives the token {quoted(token)} the id {quoted(i)}; "
                f"ids are whole numbers from 0 to {MAX_IDS - 1:,}."
            )
        if i in seen:
            raise TokenizerError(f"{file} gives the id {i} to both {quoted(seen[i])} and {quoted(token)}.")
        seen[i] = token


def _check_merges(model: dict[str, Any], vocab: dict[str, Any], file: Path) -> None:
    prefix = model.get("continuing_subword_prefix")
    prefix = prefix if isinstance(prefix, str) else ""
    merges = model.get("merges", [])
    for merge in merges if isinstance(merges, list) else []:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise TokenizerError(f"{file} has a merge that is not a pair of tokens: {quoted(merge)}.")
        left, right = pair
        if prefix and not right.startswith(prefix):  # the library removes that many characters without a check
            raise TokenizerError(
                f"{file} merges {quoted(left)} and {quoted(right)}, which does not begin with {prefix!r}."
            )
        for token in (left, right, left + right[len(prefix) :]):
            if token not in vocab:
                raise TokenizerError(
                    f"{file} merges {quoted(left)} and {quoted(right)}, but has no token {quoted(token)}."
                )


def check_added(tokens: Any, file: Path | str) -> None:
    """Refuse too many added tokens, or one that is too long; each is its spelling or an object with one."""
    if not isinstance(tokens, list):
        return
    if len(tokens) > MAX_ADDED:
        raise TokenizerError(f"{file} has {len(tokens):,} added tokens; {MAX_ADDED:,} are allowed.")
    spelled = [token.get("content") if isinstance(token, dict) else token for token in tokens]
    check_lengths((text for text in spelled if isinstance(text, str)), file, MAX_ADDED_TOKEN)


# ── stages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_stages(data: dict[str, Any], file: Path) -> bool:
    """Refuse stages that panic, take more than linear time or multiply a text.

    A pattern of a known model with a linear-time equivalent is replaced by it; returns whether any was.
    """
    growth, changed = 1, False
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        for stage in _stages(data, part, file):
            changed |= _check_stage(stage, part, file)
            if part == "normalizer":
                growth *= _growth(stage)
    if growth > MAX_GROWTH:
        raise TokenizerError(
            f"{file} has a normalizer that makes up to {growth:,} characters of one; {MAX_GROWTH} are allowed."
        )
    return changed


def _check_stage(stage: dict[str, Any], part: str, file: Path) -> bool:
    kind = stage["type"]
    if kind == "Precompiled" and not _is_charsmap(stage.get("precompiled_charsmap")):
        raise TokenizerError(f"{file} has a damaged precompiled_charsmap.")
    if kind == "Strip" and part == "decoder" and stage.get("stop"):
        raise TokenizerError(f"{file} has a decoder that strips the end of each token, which fails on short ones.")
    if kind == "FixedLength" and stage.get("length") == 0:
        raise TokenizerError(f"{file} has a pre_tokenizer that cuts text into pieces of length 0.")
    for name, value in stage.items():
        if name != "precompiled_charsmap":
            _check_length(value, MAX_AFFIX, f"{part}.{name}", file)
    pattern = stage.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else pattern
    if kind == "Replace" and text == "":
        raise TokenizerError(f"{file} has a {part} that replaces the empty text.")
    _check_length(text, MAX_AFFIX, f"{part}.pattern", file)
    return isinstance(pattern, dict) and _check_regex(pattern, kind, part, file)


def _check_regex(pattern: dict[str, Any], kind: Any, part: str, file: Path) -> bool:
    regex = pattern.get("Regex")
    if not isinstance(regex, str):
        return False
    if regex in LINEAR:
        pattern["Regex"] = LINEAR[regex]
        return True
    why = why_slow(regex)
    if why is None and kind == "Replace" and may_match_nothing(regex):
        why = "it replaces the empty text"
    if why is not None:
        raise TokenizerError(
            f"{file} has a {part} with the regular expression {quoted(regex)}, which is not accepted, because {why}."
        )
    return False


def _growth(stage: dict[str, Any]) -> int:
    """How many characters a rule of the file can make of one."""
    content, prepend = stage.get("content"), stage.get("prepend")
    if stage["type"] == "Replace" and isinstance(content, str):
        return max(1, len(content))
    return 1 + len(prepend) if stage["type"] == "Prepend" and isinstance(prepend, str) else 1


def _is_charsmap(text: Any) -> bool:
    """A SentencePiece character map: the size of a trie in 4 bytes, the trie (a double array), then its strings.

    Every step from a node must stay in the array, and every value must be the start of a character in the strings.
    """
    try:
        blob = base64.b64decode(text, validate=True)
        size = int.from_bytes(blob[:4], "little")
        blob[4 + size :].decode()
    except (TypeError, ValueError, binascii.Error):
        return False
    if size == 0 or size % 4 or 4 + size > len(blob):
        return False
    strings, trie = blob[4 + size :], np.frombuffer(blob, "<u4", size // 4, 4).astype(np.int64)
    node = trie >> 31 == 0  # the others hold values
    target = np.arange(len(trie)) ^ (trie >> 10 << ((trie & 1 << 9) >> 6))
    leaf = node & (trie >> 8 & 1 == 1)
    if (target[node] | 0xFF).max(initial=0) >= len(trie):
        return False
    begins = np.append((np.frombuffer(strings, np.uint8) & 0xC0) != 0x80, True)
    values = trie[target[leaf]] & 0x7FFFFFFF
    if values.max(initial=0) >= len(begins) or not begins[values].all():
        return False
    return max(map(len, strings.split(b"\0")), default=0) <= MAX_AFFIX


def _check_length(value: Any, most: int, name: str, file: Path) -> None:
    if isinstance(value, str) and len(value) > most:
        raise TokenizerError(f"{file} has a {name} of {len(value):,} characters; {most} are allowed.")


def _stages(data: dict[str, Any], part: str, file: Path) -> Iterator[dict[str, Any]]:
    """The serialised stages of a part of a pipeline; sequences are flattened."""
    level, n_stages = [data[part]] if data.get(part) is not None else [], 0
    for _ in range(MAX_DEPTH):
        n_stages += len(level)
        if n_stages > MAX_STAGES:
            raise TokenizerError(f"{file} has more than {MAX_STAGES} stages in its {part}.")
        inside: list[Any] = []
        for stage in level:
            kind = stage.get("type") if isinstance(stage, dict) else None
            if kind == "Sequence" and isinstance(stage.get(CHILDREN[part]), list):
                inside += stage[CHILDREN[part]]
            elif kind in STAGES[part].split():
                yield stage
            else:
                raise TokenizerError(f"{file} has a {part} of the type {quoted(kind)}, which is not known.")
        level = inside
    if level:
        raise TokenizerError(f"{file} has a {part} nested more than {MAX_DEPTH} deep.")


# ── post-processor ───────────────────────────────────────────────────────────────────────────────────────────────────


def check_post_processor(data: dict[str, Any], file: Path) -> None:
    """Refuse a template with unknown or too many special tokens, or with the text more than once."""
    adding = [stage for stage in _stages(data, "post_processor", file) if stage["type"] in ADD_SPECIAL]
    if len(adding) > 1:
        raise TokenizerError(f"{file} has more than one post_processor that puts tokens around a text.")
    for stage in adding:
        if stage["type"] == "TemplateProcessing":
            for name, texts in (("single", {"A"}), ("pair", {"A", "B"})):
                _check_template(stage, name, texts, file)


def _check_template(stage: dict[str, Any], name: str, texts: set[str], file: Path) -> None:
    pieces, known = stage.get(name), stage.get("special_tokens")
    if not isinstance(pieces, list) or not isinstance(known, dict):
        return  # the library's error says what is wrong
    found, size = list[str](), 0
    for piece in pieces:
        token = piece.get("SpecialToken") if isinstance(piece, dict) else None
        text = piece.get("Sequence") if isinstance(piece, dict) else None
        if isinstance(text, dict):
            found.append(str(text.get("id")))
        if isinstance(token, dict):
            entry = known.get(token["id"]) if isinstance(token.get("id"), str) else None
            if not isinstance(entry, dict) or not isinstance(entry.get("ids"), list):
                raise TokenizerError(
                    f"{file} puts {quoted(token.get('id'))} around texts without saying which token that is."
                )
            size += len(entry["ids"])
    if len(pieces) > MAX_SPECIAL or size > MAX_SPECIAL:
        raise TokenizerError(f"{file} puts more than {MAX_SPECIAL} tokens around a text.")
    if len(set(found)) < len(found) or set(found) - texts:
        raise TokenizerError(f"{file} has a template {name!r} in which a text occurs twice, or one that is not there.")
