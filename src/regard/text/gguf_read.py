"""The tokenizer metadata of a GGUF file, validated, and the `tokenizers` pipelines it describes.

In: the `tokenizer.*` metadata. Out: a `Vocabulary`, and a `tokenizers.Tokenizer` with llama.cpp's ids. Three kinds
exist: "gpt2" (byte-level BPE with merges), "llama" (SentencePiece BPE, whose BPE merges follow from the scores of its
pieces) and "bert" (WordPiece).
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import TokenizerError, quoted
from regard.text.legacy_vocab import bert_post_processor, bos_eos_post_processor
from regard.text.pretokenizers import SPLITS, Split
from regard.text.tokenizer_checks import check_lengths

MAX_SPLITS = 100_000_000  # characters in all ways to cut all pieces in two; real vocabularies have up to 20 million
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "▁"  # SentencePiece's visible space; in WordPiece vocabularies the mark of a word's start

# role → stem of its `…_token_id` key (one of them misspelled since the format's first day)
ID_KEYS = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "pad": "padding",
    "sep": "seperator",
    "cls": "cls",
    "mask": "mask",
}
# llama.cpp's defaults where a file has no such key
_DEFAULT_IDS: dict[str, dict[str, int]] = {
    "gpt2": {},
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"cls": 101, "sep": 102, "unk": 100, "pad": 0, "mask": 103},
}


class Keys:
    """Typed access to untrusted metadata."""

    def __init__(self, metadata: Mapping[str, Any], where: str):
        self.metadata = metadata
        self.where = where

    def text(self, key: str) -> str | None:
        return self._scalar(key, str)

    def flag(self, key: str) -> bool | None:
        return self._scalar(key, bool)

    def _scalar(self, key: str, kind: type) -> Any:
        value = self.metadata.get(key)
        if value is not None and type(value) is not kind:
            raise self.damaged(key, f"{kind.__name__} was expected")
        return value

    def index(self, key: str, size: int) -> int | None:
        value = self.metadata.get(key)
        if value is None:
            return None
        try:
            i = operator.index(value)
        except TypeError:
            raise self.damaged(key, "a whole number was expected") from None
        if not 0 <= i < size:
            raise self.damaged(key, f"{i} is beyond its {size} tokens")
        return i

    def array(self, key: str, kind: type, size: int | None = None) -> list[Any]:
        try:
            values = list(self.metadata.get(key, ()))
            if kind is not str and set(map(type, values)) - {kind}:
                values = list(map(kind, values))
        except (TypeError, ValueError, OverflowError):
            raise self.damaged(key, f"a list of {kind.__name__} was expected") from None
        if set(map(type, values)) - {kind}:
            raise self.damaged(key, f"a list of {kind.__name__} was expected")
        if size is not None and values and len(values) != size:
            raise self.damaged(key, f"it has {len(values)} entries for {size} tokens")
        return values

    def damaged(self, key: str, why: str) -> TokenizerError:
        return TokenizerError(f"{self.where} has a damaged {key}: {why}.")


@dataclass
class Vocabulary:
    """The tokenizer of one file, checked; `tokens` are spelled as the `tokenizers` library spells them."""

    where: str
    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: "Merges"
    ids: dict[str, int]
    flags: dict[str, bool]

    @cached_property
    def table(self) -> dict[str, int]:
        return dict(zip(self.tokens, range(len(self.tokens)), strict=True))

    @property
    def split(self) -> Split:
        if self.pre not in SPLITS:
            raise TokenizerError(
                f"{self.where} splits text by the rule {quoted(self.pre)} (tokenizer.ggml.pre), which is not known here; "
                "use the model's original directory instead."
            )
        return SPLITS[self.pre]

    def special(self, role: str) -> tuple[str, int]:
        """The special token with this role, and its id."""
        if role not in self.ids:
            raise TokenizerError(f"{self.where} adds a {role} token to every text but does not say which one it is.")
        return self.tokens[self.ids[role]], self.ids[role]


def read(keys: Keys) -> Vocabulary:
    model = keys.text("tokenizer.ggml.model")
    if model not in _DEFAULT_IDS:
        raise TokenizerError(
            f"{keys.where} has a tokenizer of the kind {quoted(model)}; {', '.join(_DEFAULT_IDS)} can be read."
        )
    tokens = keys.array("tokenizer.ggml.tokens", str)
    if not tokens:
        raise keys.damaged("tokenizer.ggml.tokens", "there are no tokens in it")
    check_lengths(tokens, keys.where)
    types = keys.array("tokenizer.ggml.token_type", int, len(tokens)) or [NORMAL] * len(tokens)
    if model == "bert":
        tokens = [_from_phantom(token, kind) for token, kind in zip(tokens, types, strict=True)]
    ids = {role: i for role, i in _DEFAULT_IDS[model].items() if i < len(tokens)}
    for role, stem in ID_KEYS.items():
        if (i := keys.index(f"tokenizer.ggml.{stem}_token_id", len(tokens))) is not None:
            ids[role] = i
    if model == "bert":  # newer files give CLS, with which BERT's texts start, as BOS
        bos = ids.pop("bos", ids.get("cls"))
        if "tokenizer.ggml.cls_token_id" not in keys.metadata and bos is not None:
            ids["cls"] = bos
    flags = {}
    for key in (
        "add_bos_token",
        "add_eos_token",
        "add_space_prefix",
        "normalizer.lowercase",
        "normalizer.strip_accents",
    ):
        if (flag := keys.flag(f"tokenizer.ggml.{key}")) is not None:
            flags[key] = flag
    vocab = Vocabulary(
        keys.where,
        model,
        keys.text("tokenizer.ggml.pre") or "default",
        tokens,
        types,
        keys.array("tokenizer.ggml.scores", float, len(tokens)),
        Merges(keys),
        ids,
        flags,
    )
    if len(vocab.table) < len(tokens):  # duplicates: the table has the last id of each
        twice = next(token for i, token in enumerate(tokens) if vocab.table[token] != i)
        raise keys.damaged("tokenizer.ggml.tokens", f"the token {quoted(twice)} is in it twice")
    return vocab


class Merges(Sequence[tuple[str, str]]):
    """BPE merges as pairs of tokens, made lazily: all of them at once would fragment many megabytes of memory."""

    def __init__(self, keys: Keys) -> None:
        self.spelled: list[str] = keys.array("tokenizer.ggml.merges", str)
        joined = f" {' '.join(self.spelled)} " if self.spelled else ""
        if set(map(str.count, self.spelled, repeat(" "))) - {1} or "  " in joined:
            wrong = next(text for text in self.spelled if text.count(" ") != 1 or "" in text.split(" "))
            raise keys.damaged("tokenizer.ggml.merges", f"{quoted(wrong)} is not two tokens with a space between")

    def __len__(self) -> int:
        return len(self.spelled)

    def __getitem__(self, i: Any) -> Any:
        return tuple(self.spelled[i].split(" "))

    def __iter__(self) -> Iterator[Any]:
        return (tuple(text.split(" ")) for text in self.spelled)


# ── the three kinds ─────────────────────────────────────────────────────────────────────────────────────────────────


def _byte_level(vocab: Vocabulary) -> tokenizers.Tokenizer:
    table = vocab.table
    try:
        model = models.BPE(table, vocab.merges, ignore_merges=vocab.split.whole_words)
    except Exception:
        check_merges(vocab.merges, table, vocab.where)  # raises a TokenizerError that says which
        raise
    raw = tokenizers.Tokenizer(model)
    if vocab.split.nfc:
        raw.normalizer = normalizers.NFC()
    raw.pre_tokenizer = vocab.split.pre_tokenizer()
    raw.decoder = decoders.ByteLevel()
    return raw


def check_merges(merges: Iterable[tuple[str, str]], table: Mapping[str, int], where: str) -> None:
    for left, right in merges:
        for token in (left, right, left + right):
            if token not in table:
                raise TokenizerError(
                    f"{where} merges {quoted(left)} and {quoted(right)}, but has no token {quoted(token)}."
                )


def _sentencepiece(vocab: Vocabulary) -> tokenizers.Tokenizer:
    if not vocab.scores:
        raise TokenizerError(f"{vocab.where} has a SentencePiece vocabulary without scores (tokenizer.ggml.scores).")
    unknown = vocab.tokens[vocab.ids["unk"]] if "unk" in vocab.ids else None
    raw = tokenizers.Tokenizer(
        models.BPE(vocab.table, merges_by_score(vocab), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = vocab.flags.get("add_space_prefix", True)
    visible = [normalizers.Prepend(SPACE)] if prefix else []
    raw.normalizer = normalizers.Sequence([*visible, normalizers.Replace(" ", SPACE)])
    hidden = [decoders.Strip(" ", 1, 0)] if prefix else []
    raw.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *hidden])
    return raw


def merges_by_score(vocab: Vocabulary) -> list[tuple[str, str]]:
    """BPE merges from SentencePiece scores: every pair of pieces that forms a piece, the best score first.

    SentencePiece always joins the neighbours whose union scores best, the leftmost on a tie. Among the merges that form one
    piece the longest left half is first, which is equivalent to the leftmost.
    """
    pieces = {
        token: score
        for token, kind, score in zip(vocab.tokens, vocab.types, vocab.scores, strict=True)
        if kind in (NORMAL, USER_DEFINED, UNUSED)  # control and byte tokens are never formed by merges
    }
    if sum(len(piece) ** 2 for piece in pieces) > MAX_SPLITS:
        raise TokenizerError(
            f"{vocab.where} has pieces so long that there are too many ways to split them, as no real vocabulary has."
        )
    same = dict(zip(pieces, pieces, strict=True))  # the pieces themselves instead of new slices, to save memory
    ranked = [
        (-score, -cut, -len(piece), left, right)
        for piece, score in pieces.items()
        for cut in range(1, len(piece))
        if (left := same.get(piece[:cut])) is not None and (right := same.get(piece[cut:])) is not None
    ]
    ranked.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in ranked]


def _wordpiece(vocab: Vocabulary) -> tokenizers.Tokenizer:
    raw = tokenizers.Tokenizer(models.WordPiece(vocab.table, unk_token=vocab.special("unk")[0]))
    lowercase = vocab.flags.get("normalizer.lowercase", True)
    raw.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=vocab.flags.get("normalizer.strip_accents", lowercase)
    )
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix="##")
    return raw


def _from_phantom(token: str, kind: int) -> str:
    """GGUF marks the start of a word (`▁ing`), WordPiece its continuation (`##ing`); names in brackets are bare."""
    if token.startswith(SPACE):
        return token[len(SPACE) :]
    bare = kind != NORMAL or (token.startswith("[") and token.endswith("]") and len(token) > 2)
    return token if bare else f"##{token}"


BUILDERS = {"gpt2": _byte_level, "llama": _sentencepiece, "bert": _wordpiece}


def post_processor(vocab: Vocabulary) -> processors.PostProcessor:
    """The post-processor, which adds special tokens around a text."""
    if vocab.model == "bert":
        return bert_post_processor(vocab.special("cls"), vocab.special("sep"))
    if vocab.pre == "roberta-bpe":
        return processors.RobertaProcessing(vocab.special("eos"), vocab.special("bos"), add_prefix_space=False)
    default = vocab.model == "llama" or vocab.split.adds_bos
    bos = vocab.special("bos") if vocab.flags.get("add_bos_token", default) else None
    eos = vocab.special("eos") if vocab.flags.get("add_eos_token", False) else None
    return bos_eos_post_processor(bos, eos)
