"""A GGUF file's metadata ⇄ a tokenizer.

In: the `tokenizer.*` keys of a GGUF file. Out: the tokenizer they describe; and the inverse, for writing. GGUF names a
pre-tokenizer instead of describing one and stores SentencePiece scores instead of BPE merges, so it cannot express every
tokenizer: metadata to be written is parsed again first, and refused if that gives another tokenizer.
"""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken

from regard.errors import TokenizerError
from regard.text.gguf_read import (
    BUILDERS,
    BYTE,
    CONTROL,
    ID_KEYS,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Keys,
    Vocabulary,
    post_processor,
    read,
)
from regard.text.pretokenizers import SPLITS
from regard.text.reading import guarded
from regard.text.stream_decoder import is_byte_piece
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_checks import check_added

Stage = dict[str, Any] | None


def tokenizer_from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """The tokenizer a GGUF file describes; `where` is the file's name for messages."""
    keys = Keys(metadata, where)
    raw, n, roles = pipeline(read(keys))
    template = keys.text("tokenizer.chat_template")
    return Tokenizer(
        raw,
        ids=range(n),
        specials={role: raw.id_to_token(i) or "" for role, i in roles.items()},
        chat_templates={"default": template} if template else {},
        where=where,
    )


def pipeline(vocab: Vocabulary) -> tuple[tokenizers.Tokenizer, int, dict[str, int]]:
    """The library's tokenizer, its number of tokens, and the ids of special tokens by role.

    A function of its own, so that the vocabulary's many small strings are freed before anything else is allocated.
    """
    raw = guarded(vocab.where, lambda: BUILDERS[vocab.model](vocab))
    added = [
        (token, kind)
        for token, kind in zip(vocab.tokens, vocab.types, strict=True)
        if kind != NORMAL and kind in (UNKNOWN, CONTROL, USER_DEFINED)  # most are normal
    ]
    check_added([token for token, _ in added], vocab.where)
    raw.add_tokens([AddedToken(token, special=kind != USER_DEFINED, normalized=False) for token, kind in added])
    raw.post_processor = guarded(vocab.where, lambda: post_processor(vocab))
    return raw, len(vocab.tokens), vocab.ids


def gguf_vocab(tokenizer: Tokenizer, n_rows: int | None = None) -> dict[str, Any]:
    """The `tokenizer.*` metadata of a GGUF file, for a model whose embedding has `n_rows` rows.

    Lists of int are arrays of int32, lists of float of float32, single ints uint32.
    """
    data = json.loads(tokenizer.raw.to_str())
    model, pre = _kind(data, tokenizer)
    tokens, types = _tokens(tokenizer, data, max(n_rows or 0, tokenizer.n_vocab))
    metadata: dict[str, Any] = {"tokenizer.ggml.model": model, "tokenizer.ggml.pre": pre}
    if model == "bert":
        metadata["tokenizer.ggml.token_type_count"] = 2
        metadata |= _wordpiece_flags(data["normalizer"])
        tokens = [_to_phantom(token, kind) for token, kind in zip(tokens, types, strict=True)]
    metadata["tokenizer.ggml.tokens"] = tokens
    metadata["tokenizer.ggml.token_type"] = types
    if model == "llama":
        metadata["tokenizer.ggml.scores"] = _scores(tokens, data["model"]["merges"])
        metadata["tokenizer.ggml.add_space_prefix"] = '"Prepend"' in json.dumps(data["normalizer"])
    if model == "gpt2":
        metadata["tokenizer.ggml.merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    for role, stem in ID_KEYS.items():
        if role in tokenizer.specials:
            metadata[f"tokenizer.ggml.{stem}_token_id"] = tokenizer.raw.token_to_id(tokenizer.specials[role])
    if model == "bert" and tokenizer.cls_id is not None:
        metadata["tokenizer.ggml.bos_token_id"] = tokenizer.cls_id  # the key that llama.cpp reads
    else:
        metadata |= _ends(tokenizer)
    if tokenizer.chat_template is not None:
        metadata["tokenizer.chat_template"] = tokenizer.chat_template
    _read_back(metadata, tokenizer, data)
    return metadata


def _kind(data: dict[str, Any], tokenizer: Tokenizer) -> tuple[str, str]:
    """`tokenizer.ggml.model` and `.pre`."""
    model, pre = data["model"], data["pre_tokenizer"]
    if tokenizer.kind == "wordpiece" and pre == {"type": "BertPreTokenizer"}:
        return "bert", "default"
    if tokenizer.kind == "bpe" and model["byte_fallback"] and pre is None:
        return "llama", "default"
    if tokenizer.kind == "bpe":
        if (data["post_processor"] or {}).get("type") == "RobertaProcessing":
            return "gpt2", "roberta-bpe"
        for name, split in SPLITS.items():
            same_split = _essence(pre) == _essence(json.loads(split.pre_tokenizer().__getstate__()))
            same_norm = _essence(data["normalizer"]) == ({"type": "NFC"} if split.nfc else None)
            if same_split and same_norm and split.whole_words == model["ignore_merges"]:
                return "gpt2", name
    raise _refusal(tokenizer, f"a {tokenizer.kind} tokenizer with its way of splitting text has no name in GGUF")


def _essence(stage: Stage) -> Stage:
    """A stage without the settings that do not affect ids."""
    if stage is None or stage == {"type": "Sequence", "normalizers": []}:
        return None
    stage = {key: value for key, value in stage.items() if key not in ("trim_offsets", "invert")}
    if stage["type"] == "BertNormalizer" and stage["strip_accents"] is None:
        stage["strip_accents"] = stage["lowercase"]
    for key in ("pretokenizers", "normalizers", "decoders"):
        if key in stage:
            stage[key] = [_essence(child) for child in stage[key]]
    return stage


def _tokens(tokenizer: Tokenizer, data: dict[str, Any], n_rows: int) -> tuple[list[str], list[int]]:
    """Spelling and type of every row; rows without a token are marked unused."""
    tokens = [f"[PAD{i}]" for i in range(n_rows)]
    types = [UNUSED] * n_rows
    byte_fallback = data["model"].get("byte_fallback", False)
    for token, i in tokenizer.vocab.items():
        tokens[i] = token
        types[i] = BYTE if byte_fallback and is_byte_piece(token) else NORMAL
    for i, added in tokenizer.raw.get_added_tokens_decoder().items():
        types[i] = CONTROL if added.special else USER_DEFINED
    if byte_fallback and tokenizer.unk_id is not None:
        types[tokenizer.unk_id] = UNKNOWN
    return tokens, types


def _scores(tokens: list[str], merges: list[list[str]]) -> list[float]:
    """Scores that order pieces as their merges; a piece that no merge forms gets the lowest score.

    Pieces whose merges alternate had the same score.
    """
    spans: dict[str, tuple[int, int]] = {}  # first and last merge
    for n, (left, right) in enumerate(merges):
        spans[left + right] = (spans.get(left + right, (n, n))[0], n)
    score, rank, end = {}, 0, -1
    for piece, (first, last) in spans.items():
        if first > end:
            rank = first
        score[piece], end = -float(rank), max(end, last)
    return [score.get(token, -float(len(merges))) for token in tokens]


def _wordpiece_flags(normalizer: Stage) -> dict[str, bool]:
    """The normalizer's flags, only where they differ from llama.cpp's defaults (lowercase, strip accents)."""
    lowercase = (normalizer or {}).get("lowercase") is True
    strip = (normalizer or {}).get("strip_accents")
    strip = lowercase if strip is None else strip
    flags = {"lowercase": lowercase, "strip_accents": strip}
    return {} if lowercase and strip else {f"tokenizer.ggml.normalizer.{key}": flag for key, flag in flags.items()}


def _to_phantom(token: str, kind: int) -> str:
    if kind != NORMAL or (token.startswith("[") and token.endswith("]") and len(token) > 2):
        return token
    return token[2:] if token.startswith("##") else SPACE + token


def _ends(tokenizer: Tokenizer) -> dict[str, bool]:
    """Whether BOS and EOS are added to texts, determined by encoding one."""
    bare = tokenizer.encode("a", add_special=False)
    framed = tokenizer.encode("a")
    for bos in (False, True):
        for eos in (False, True):
            start = [tokenizer.bos_id] if bos else []
            if framed == [*start, *bare, *([tokenizer.eos_id] if eos else [])]:
                return {"tokenizer.ggml.add_bos_token": bos, "tokenizer.ggml.add_eos_token": eos}
    raise _refusal(tokenizer, "it puts tokens around a text that are not its BOS and EOS")


def _read_back(metadata: dict[str, Any], tokenizer: Tokenizer, data: dict[str, Any]) -> None:
    """Check that the metadata, parsed again, gives the same tokenizer; otherwise refuse."""
    reread = tokenizer_from_gguf(metadata, tokenizer.where)
    if reread.encode("a") != tokenizer.encode("a"):
        raise _refusal(tokenizer, "GGUF cannot express what it puts around a text")
    back = json.loads(reread.raw.to_str())
    for part, what in (
        ("normalizer", "normalises text"),
        ("pre_tokenizer", "splits text"),
        ("added_tokens", "matches added tokens"),
    ):
        if _plain(back[part]) != _plain(data[part]):
            raise _refusal(tokenizer, f"GGUF cannot express how it {what}")
    vocab = {token: i for token, i in back["model"]["vocab"].items() if i < tokenizer.n_vocab}
    if back["model"].get("merges") != data["model"].get("merges") or vocab != tokenizer.vocab:
        raise _refusal(tokenizer, "GGUF cannot express its vocabulary or the order of its merges")


def _plain(part: Any) -> Any:
    if isinstance(part, list):  # added tokens: GGUF does not store their `normalized` flag
        return [{"id": t["id"], "content": t["content"], "special": t["special"]} for t in part]
    return _essence(part)


def _refusal(tokenizer: Tokenizer, why: str) -> TokenizerError:
    return TokenizerError(
        f"{tokenizer.where} cannot be written into a GGUF file: {why}; save it as a directory instead."
    )
