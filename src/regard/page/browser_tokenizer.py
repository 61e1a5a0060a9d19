"""A tokenizer lowered to what a browser runs (web/offline/tokenizer/), so that any text typed there gets the same ids.

In: a `Tokenizer`. Out: plain JSON data: few kinds of steps, each with its settings written out, the character classes that
they use, the vocabulary in the order of ids, BPE merges as ids. What the browser has no step for is refused here, by name,
before anything is exported; the browser in turn refuses a step that it does not know.

    data = browser_tokenizer(model.tokenizer)      # a TokenizerError says what a browser cannot do
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from regard.errors import TokenizerError, quoted
from regard.page.browser_pattern import Pattern, Untranslatable, literal, one_of, translate
from regard.page.character_classes import (
    COMBINING_MARK,
    CONTROL,
    IDEOGRAPH,
    NMT_REMOVED,
    NMT_SPACE,
    NONSPACING_MARK,
    NORMALIZED,
    NUMERIC,
    PUNCTUATION,
    WORD,
    packed,
)
from regard.text.stream_decoder import CLEANUP
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_checks import CHILDREN

Step = dict[str, Any]
Data = dict[str, Any]

VERSION = 1
SPACE = r"\s"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # ByteLevel's own
RUST_WORDS: Pattern = ["[", WORD, "]+|[^", WORD, "", SPACE, "]+"]  # Whitespace's own


def browser_tokenizer(tokenizer: Tokenizer) -> Data:
    """The data with which a browser encodes and decodes as `tokenizer` does, or a TokenizerError."""
    try:
        return _lowered(tokenizer)
    except _Unknown as what:
        raise TokenizerError(f"A browser cannot run {tokenizer.where}: {what}.") from None


class _Unknown(Exception):
    """Something that the browser has no step for; the message names it."""


def _lowered(tokenizer: Tokenizer) -> Data:
    data = json.loads(tokenizer.raw.to_str())
    steps = {part: [step for stage in _flat(data[part], part) for step in _step(stage, part)] for part in CHILDREN}
    model = _MODELS[data["model"]["type"]](data["model"])
    hidden = [
        i
        for token, i in tokenizer.raw.get_vocab(with_added_tokens=False).items()
        if tokenizer.plain.token_to_id(token) != i  # a text that spells it is not to get it
    ]
    added = [_added(token, tokenizer) for token in data["added_tokens"]]
    patterns = [step["pattern"] for part in steps.values() for step in part if "pattern" in step]
    classes = {name for pattern in patterns for name in pattern[1::2]}
    classes |= {NORMALIZED for step in steps["normalizer"] if step["type"] == "form"}
    classes |= {WORD for token in added if token["single_word"]}
    return {
        "version": VERSION,
        "where": tokenizer.where.rsplit("/", 1)[-1],
        "classes": {name: packed(name) for name in sorted(classes)},
        "added": added,
        "model": model | {"hidden": sorted(hidden)},
        "clean_up": CLEANUP if tokenizer.cleans_up else [],
        "readable": _readable(steps["decoder"]),
    } | steps


def _readable(decoder: list[Step]) -> str:
    """How `Tokenizer.pieces` makes tokens readable."""
    kinds = {step["type"] for step in decoder}
    return "ByteLevel" if "ByteLevel" in kinds else "ByteFallback" if "ByteFallback" in kinds else "Metaspace"


def _added(token: dict[str, Any], tokenizer: Tokenizer) -> Step:
    """An added token. text: as a (normalized) text spells it and as it is decoded."""
    special = {other.content for other in tokenizer.raw.get_added_tokens_decoder().values() if other.special}
    text = tokenizer.raw.id_to_token(token["id"])
    flags = {key: token[key] for key in ("id", "special", "normalized", "single_word", "lstrip", "rstrip")}
    return flags | {"text": text, "skipped": text in special}


# ── stages → steps ──────────────────────────────────────────────────────────────────────────────────────────────────


def _flat(stage: Step | None, part: str) -> Iterator[Step]:
    if stage is None:
        return
    if stage["type"] == "Sequence":
        for child in stage[CHILDREN[part]]:
            yield from _flat(child, part)
    else:
        yield stage


def _step(stage: Step, part: str) -> list[Step]:
    lower = _STAGES[part].get(stage["type"])
    name = f"its {part.replace('_', '-')} {stage['type']}"
    if lower is None:
        raise _Unknown(f"{name} has no counterpart there")
    try:
        return lower(stage)
    except Untranslatable as why:
        raise _Unknown(f"{name} has a pattern that means something else there: {why}") from None
    except _Unknown as why:
        raise _Unknown(f"{name} {why}") from None


def _pattern(stage: Step) -> Pattern:
    pattern = stage["pattern"]
    return translate(pattern["Regex"]) if "Regex" in pattern else literal(pattern["String"])


def _substitute(pattern: Pattern, content: str) -> Step:
    return {"type": "substitute", "pattern": pattern, "content": content}


def _form(name: str) -> Step:
    return {"type": "form", "form": name}


def _bert_normalizer(stage: Step) -> list[Step]:
    steps = list[Step]()
    if stage["clean_text"]:
        steps += [_substitute(["[\\ufffd", CONTROL, "]"], ""), _substitute(one_of(SPACE), " ")]
    if stage["handle_chinese_chars"]:
        steps.append({"type": "surround", "pattern": one_of(IDEOGRAPH)})
    if stage["lowercase"] if stage["strip_accents"] is None else stage["strip_accents"]:
        steps += [_form("NFD"), _substitute(one_of(NONSPACING_MARK), "")]
    return [*steps, {"type": "lowercase"}] if stage["lowercase"] else steps


def _prepend(stage: Step) -> list[Step]:
    if not stage["prepend"]:
        raise _Unknown("prepends nothing")
    return [{"type": "prepend", "text": stage["prepend"], "unless": "", "where": "always"}]


_NORMALIZERS: dict[str, Callable[[Step], list[Step]]] = {
    **{form: lambda stage: [_form(stage["type"])] for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": lambda stage: [{"type": "lowercase"}],
    "StripAccents": lambda stage: [_substitute(one_of(COMBINING_MARK), "")],
    "BertNormalizer": _bert_normalizer,
    "Nmt": lambda stage: [_substitute(one_of(NMT_REMOVED), ""), _substitute(one_of(NMT_SPACE), " ")],
    "Replace": lambda stage: [_substitute(_pattern(stage), stage["content"])],
    "Prepend": _prepend,
    "Strip": lambda stage: [{"type": "strip", "left": stage["strip_left"], "right": stage["strip_right"]}],
    "ByteLevel": lambda stage: [{"type": "bytes"}],
}


def _split(pattern: Pattern, behavior: str, invert: bool = False) -> Step:
    return {"type": "split", "pattern": pattern, "behavior": behavior, "invert": invert}


def _byte_level(stage: Step) -> list[Step]:
    prefix = [{"type": "prepend", "text": " ", "unless": " ", "where": "always"}] if stage["add_prefix_space"] else []
    regex = [_split(translate(GPT2), "Isolated")] if stage.get("use_regex", True) else []
    return [*prefix, *regex, {"type": "bytes"}]


def _metaspace(stage: Step) -> list[Step]:
    mark, scheme = stage["replacement"], stage["prepend_scheme"]
    prepend = [{"type": "prepend", "text": mark, "unless": mark, "where": scheme}] if scheme != "never" else []
    split = [_split(literal(mark), "MergedWithNext")] if stage["split"] else []
    return [_substitute(literal(" "), mark), *prepend, *split]


_PRE_TOKENIZERS: dict[str, Callable[[Step], list[Step]]] = {
    "ByteLevel": _byte_level,
    "BertPreTokenizer": lambda stage: [_split(one_of(SPACE), "Removed"), _split(one_of(PUNCTUATION), "Isolated")],
    "Whitespace": lambda stage: [_split(RUST_WORDS, "Removed", invert=True)],
    "WhitespaceSplit": lambda stage: [_split(one_of(SPACE), "Removed")],
    "CharDelimiterSplit": lambda stage: [_split(literal(stage["delimiter"]), "Removed")],
    "Digits": lambda stage: [_split(one_of(NUMERIC), "Isolated" if stage["individual_digits"] else "Contiguous")],
    "Punctuation": lambda stage: [_split(one_of(PUNCTUATION), stage["behavior"])],
    "Metaspace": _metaspace,
    "Split": lambda stage: [_split(_pattern(stage), stage["behavior"], stage["invert"])],
}


def _template(stage: Step) -> list[Step]:
    """Special tokens before and after the text; the template of pairs is not used there."""
    ids: tuple[list[int], list[int]] = ([], [])
    texts = 0
    for piece in stage["single"]:
        if "Sequence" in piece:
            texts += 1
        else:
            ids[min(texts, 1)].extend(stage["special_tokens"][piece["SpecialToken"]["id"]]["ids"])
    if texts != 1:
        raise _Unknown(f"has the text {texts} times in its template")
    return [{"type": "around", "before": ids[0], "after": ids[1]}]


def _trim(stage: Step) -> list[Step]:
    return [{"type": "trim", "prefix_space": stage["add_prefix_space"]}] if stage["trim_offsets"] else []


_POST_PROCESSORS: dict[str, Callable[[Step], list[Step]]] = {
    "TemplateProcessing": _template,
    "BertProcessing": lambda stage: [{"type": "around", "before": [stage["cls"][1]], "after": [stage["sep"][1]]}],
    "RobertaProcessing": lambda stage: [*_trim(stage), *_POST_PROCESSORS["BertProcessing"](stage)],
    "ByteLevel": _trim,
}


def _same(*settings: str) -> Callable[[Step], list[Step]]:
    return lambda stage: [{key: stage[key] for key in ("type", *settings)}]


_DECODERS: dict[str, Callable[[Step], list[Step]]] = {
    "ByteLevel": _same(),
    "ByteFallback": _same(),
    "Fuse": _same(),
    "BPEDecoder": _same("suffix"),
    "WordPiece": _same("prefix", "cleanup"),
    "Strip": _same("content", "start", "stop"),
    "Metaspace": _same("replacement", "prepend_scheme"),
    "Replace": lambda stage: [{"type": "Replace", "pattern": _pattern(stage), "content": stage["content"]}],
}

_STAGES = {
    "normalizer": _NORMALIZERS,
    "pre_tokenizer": _PRE_TOKENIZERS,
    "post_processor": _POST_PROCESSORS,
    "decoder": _DECODERS,
}


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_id(vocab: dict[str, int]) -> list[str | None]:
    tokens: list[str | None] = [None] * (max(vocab.values(), default=-1) + 1)
    for token, i in vocab.items():
        tokens[i] = token
    return tokens


def _unknown_id(model: Step) -> int | None:
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in model["vocab"]:
        raise _Unknown(f"its unknown token {quoted(unknown)} is not in its vocabulary")
    return model["vocab"][unknown] if unknown is not None else None


def _bpe(model: Step) -> Step:
    vocab, prefix, suffix = model["vocab"], model["continuing_subword_prefix"] or "", model["end_of_word_suffix"] or ""
    if model["dropout"]:
        raise _Unknown("its BPE model has dropout, so its ids are random")
    if model["byte_fallback"] and (prefix or suffix):
        raise _Unknown("its BPE model has both byte fallback and affixes")
    bytes_ = [vocab.get(f"<0x{byte:02X}>") for byte in range(256)] if model["byte_fallback"] else None
    return {
        "type": "BPE",
        "tokens": _by_id(vocab),
        "merges": [
            i
            for left, right in model["merges"]
            for i in (vocab[left], vocab[right], vocab[left + right[len(prefix) :]])
        ],
        "unknown": _unknown_id(model),
        "fuse_unknown": model["fuse_unk"],
        "bytes": bytes_,
        "whole_words": model["ignore_merges"],
        "prefix": prefix,
        "suffix": suffix,
    }


def _wordpiece(model: Step) -> Step:
    return {
        "type": "WordPiece",
        "tokens": _by_id(model["vocab"]),
        "unknown": _unknown_id(model),
        "prefix": model["continuing_subword_prefix"],
        "longest": model["max_input_chars_per_word"],
    }


def _wordlevel(model: Step) -> Step:
    return {"type": "WordLevel", "tokens": _by_id(model["vocab"]), "unknown": _unknown_id(model)}


def _unigram(model: Step) -> Step:
    tokens, scores = [token for token, _ in model["vocab"]], [score for _, score in model["vocab"]]
    if len(set(tokens)) < len(tokens):
        raise _Unknown("its unigram model has a piece twice")
    ids = {token: i for i, token in enumerate(tokens)}
    bytes_ = [ids.get(f"<0x{byte:02X}>") for byte in range(256)] if model["byte_fallback"] else None
    return {"type": "Unigram", "tokens": tokens, "scores": scores, "unknown": model["unk_id"], "bytes": bytes_}


_MODELS: dict[str, Callable[[Step], Step]] = {
    "BPE": _bpe,
    "WordPiece": _wordpiece,
    "WordLevel": _wordlevel,
    "Unigram": _unigram,
}
