"""Training a tokenizer on a run's texts: BPE, WordPiece, Unigram or characters.

In: texts, the kind of tokenizer, its vocabulary size, and the special tokens. Out: a `Tokenizer` that saves to Hugging
Face's files. The same texts in the same order give the same tokenizer, which the `tokenizers` library guarantees for
byte-level BPE only; what depends on its hash tables in the other kinds is sorted here.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.errors import ConfigError, DataError
from regard.text.reading import guarded
from regard.text.tokenizer import Tokenizer

KINDS = ("bpe", "wordpiece", "unigram", "characters")
MAX_ALPHABET = 1000  # characters a WordPiece vocabulary covers; rarer ones become the unknown token


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens by role, in the order of their ids from 0, and the templates for a text and a pair of texts.

    The templates are those of the library: `$A` and `$B` are the texts, `:1` gives the token type 1.
    """

    tokens: tuple[tuple[str, str], ...]  # (role, spelling)
    single: str = "$A"
    pair: str = "$A $B"

    @property
    def roles(self) -> dict[str, str]:
        return dict(self.tokens)

    @property
    def spellings(self) -> list[str]:
        return list(dict.fromkeys(self.roles.values()))  # one token may have two roles

    def with_unknown(self) -> "SpecialTokens":
        """With an unknown token, which only byte-level tokenizers do not need."""
        known = "unk" in self.roles
        return self if known else SpecialTokens((*self.tokens, ("unk", "<unk>")), self.single, self.pair)


LM = SpecialTokens((("bos", "<|endoftext|>"), ("eos", "<|endoftext|>")))
BERT = SpecialTokens(
    (("pad", "[PAD]"), ("unk", "[UNK]"), ("cls", "[CLS]"), ("sep", "[SEP]"), ("mask", "[MASK]")),
    "[CLS] $A [SEP]",
    "[CLS] $A [SEP] $B:1 [SEP]:1",
)
TRANSLATE = SpecialTokens(
    (("bos", "<s>"), ("pad", "<pad>"), ("eos", "</s>"), ("unk", "<unk>")),
    "$A </s>",
    "$A </s> $B </s>",
)
SPECIALS = {"lm": LM, "chat": LM, "mlm": BERT, "classify": BERT, "tag": BERT, "translate": TRANSLATE}  # by task


def train_tokenizer(
    kind: str, texts: Iterable[str], vocab_size: int, specials: SpecialTokens, *, lowercase: bool = False
) -> Tokenizer:
    """A tokenizer of at most `vocab_size` tokens for texts like these.

    `bpe` works on bytes and can encode any text; `wordpiece` splits words as BERT does, `unigram` text as SentencePiece
    does; `characters` has a token for every character.
    """
    if kind not in KINDS:
        raise ConfigError(f"There is no tokenizer of kind {kind!r}; there are {', '.join(KINDS)}.")
    if kind != "bpe":
        specials = specials.with_unknown()
    train = {"bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram, "characters": _characters}[kind]
    lowered = (text.lower() for text in texts) if lowercase else texts
    raw = guarded("The text", lambda: train(_not_empty(lowered), vocab_size, specials))
    if lowercase:
        steps = [normalizers.Lowercase(), *([raw.normalizer] if raw.normalizer is not None else [])]
        raw.normalizer = normalizers.Sequence(steps)
    raw.add_special_tokens(specials.spellings)
    if specials.single != "$A":
        ids = [(token, raw.token_to_id(token)) for token in specials.spellings]
        raw.post_processor = processors.TemplateProcessing(specials.single, specials.pair, ids)
    return Tokenizer(raw, specials=specials.roles, where="the trained tokenizer")


def _not_empty(texts: Iterable[str]) -> Iterator[str]:
    seen = False
    for text in texts:
        seen = seen or bool(text.strip())
        yield text
    if not seen:
        raise DataError("There is no text to train a tokenizer on.")


def _check_size(vocab_size: int, needed: int, what: str) -> None:
    if vocab_size < needed:
        raise ConfigError(f"A vocabulary of {vocab_size} tokens is too small: {what} take {needed}; ask for more.")


def _bpe(texts: Iterator[str], vocab_size: int, specials: SpecialTokens) -> tokenizers.Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_size(vocab_size, len(alphabet) + len(specials.spellings), "the 256 bytes and the special tokens")
    raw = tokenizers.Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials.spellings,
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    return raw


def _wordpiece(texts: Iterator[str], vocab_size: int, specials: SpecialTokens) -> tokenizers.Tokenizer:
    """BERT's pipeline.

    The library numbers the pieces `##x` in the order of a hash table, on which ties between merges then depend. Passing
    them as if they were special tokens, sorted, makes the result deterministic.
    """
    normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    splitter = pre_tokenizers.BertPreTokenizer()
    words = _word_counts(texts, normalizer, splitter)
    letters = Counter[str]()
    for word, n in words.items():
        letters.update({letter: n * word.count(letter) for letter in set(word)})
    alphabet = {letter for letter, _ in sorted(letters.items(), key=lambda item: (-item[1], item[0]))[:MAX_ALPHABET]}
    inside = sorted({letter for word in words for letter in word[1:]} & alphabet)
    given = specials.spellings + [f"##{letter}" for letter in inside]
    _check_size(vocab_size, len(given) + len(alphabet), "the characters and the special tokens")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=given,
        initial_alphabet=sorted(alphabet),
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    unknown = specials.roles["unk"]
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token=unknown))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator(_repeated(words), trainer)
    raw = tokenizers.Tokenizer(models.WordPiece(trained.get_vocab(), unk_token=unknown))
    raw.normalizer, raw.pre_tokenizer, raw.decoder = normalizer, splitter, decoders.WordPiece(cleanup=False)
    return raw


def _word_counts(
    texts: Iterator[str], normalizer: normalizers.Normalizer, splitter: pre_tokenizers.PreTokenizer
) -> Counter[str]:
    """How often each word occurs; each string between spaces is split into words once only."""
    spellings, words = Counter[str](), Counter[str]()
    for text in texts:
        spellings.update(text.split())
    for spelling, n in spellings.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(spelling)):
            words[word] += n
    return words


def _repeated(words: Counter[str], at_once: int = 1000) -> Iterator[str]:
    """Text in which each word occurs as often as its count: the library accepts counts in no other form."""
    for word, n in words.items():
        for start in range(0, n, at_once):
            yield " ".join([word] * min(at_once, n - start))


def _unigram(texts: Iterator[str], vocab_size: int, specials: SpecialTokens) -> tokenizers.Tokenizer:
    """SentencePiece's pipeline without its normalisation: a space is written ▁ and belongs to the word after it.

    SentencePiece encodes a line at a time; here a line end is a word of its own.
    """
    unknown = specials.roles["unk"]
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(r"\n+"), "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
        ]
    )
    trained = tokenizers.Tokenizer(models.Unigram())
    trained.pre_tokenizer = splitter
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=specials.spellings, unk_token=unknown, show_progress=False
    )
    seen = {"▁"}
    try:
        trained.train_from_iterator(_noting_characters(texts, seen), trainer)
    finally:  # this error rather than the library's
        _check_size(vocab_size, len(seen - {" "}) + len(specials.spellings), "the characters and the special tokens")
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    found = [(p, s) for p, s in pieces if p not in specials.spellings]
    vocab = [(token, 0.0) for token in specials.spellings] + _in_order(found)
    raw = tokenizers.Tokenizer(models.Unigram(vocab, specials.spellings.index(unknown), byte_fallback=False))
    raw.pre_tokenizer, raw.decoder = splitter, decoders.Metaspace(prepend_scheme="first")
    return raw


def _noting_characters(texts: Iterator[str], seen: set[str]) -> Iterator[str]:
    for text in texts:
        seen.update(text)
        yield text


def _in_order(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Pieces by descending score, independent of the library's order.

    Characters that are in the vocabulary only so that every text can be encoded get the lowest scores, 0.0001 apart, in the
    order of a hash table: here all of them get the lowest.
    """
    lowest = min(score for _, score in pieces)
    characters = sum(len(piece) == 1 for piece, _ in pieces)
    spread = lowest + 1e-4 * characters
    scores = {p: round(lowest if len(p) == 1 and s <= spread else s, 6) for p, s in pieces}
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _characters(texts: Iterator[str], vocab_size: int, specials: SpecialTokens) -> tokenizers.Tokenizer:
    """BPE without merges, over the most frequent characters."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    by_number = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    capacity = vocab_size - len(specials.spellings)
    _check_size(vocab_size, len(specials.spellings) + 1, "a character and the special tokens")
    kept = sorted(character for character, _ in by_number[:capacity])
    vocab: dict[str, Any] = {token: i for i, token in enumerate([*specials.spellings, *kept])}
    raw = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token=specials.roles["unk"], fuse_unk=False))
    raw.decoder = decoders.Fuse()
    return raw
