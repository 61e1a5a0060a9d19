"""A text never has fewer tokens than its bytes say, and long texts without spaces are refused unread."""

import base64
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

import regard
import tiny_tokenizers as tiny
from hostile import cheap
from regard.errors import TooLong
from regard.store.hub import INSTALLABLE, installed
from regard.text import token_bounds
from regard.text.gguf_vocab import tokenizer_from_gguf
from regard.text.stream_decoder import BYTE_OF
from regard.text.tokenizer import Tokenizer

LETTER_OF = {byte: letter for letter, byte in BYTE_OF.items()}
NORMALISERS: list[Callable[[], Any]] = [
    *(normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase),
    lambda: normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.NFC()]),
    lambda: normalizers.Sequence([normalizers.Lowercase(), normalizers.NFKC()]),
]
# What composes, decomposes, changes case or script, is left out, or is one of many in a token
TRICKY = [
    *(
        "a",
        "K",
        "ﬀ",
        "!",
        "<",
        "=",
        ";",
        "0",
        " ",
        "  ",
        "\n",
        "\t",
        "\0",
        "\x04",
        "\x7f",
        "\x85",
        "\xa0",
        "\u3000",
        "▁",
    ),
    *("\u0338", "\u0301", "\u0323", "\u0344", "\u0340", "\u212a", "\u212b", "\u037e", "\u1fef", "\u2126", "\u0345"),
    *(
        "İ",
        "é",
        "ǖ",
        "ᾧ",
        "Å",
        "Ａ",
        "𝐀",
        "１",
        "²",
        "¨",
        "ﷺ",
        "\ufdfa",
        "℃",
        "ᄀ",
        "ᅡ",
        "ᆨ",
        "가",
        "각",
        "ㄱ",
        "か",
        "\u3099",
    ),
    *(
        "字",
        "龥",
        "䷀",
        "\u4dff",
        "\u9fff",
        "\u4000",
        "豈",
        "\U0002f800",
        "ก",
        "ำ",
        "🦊",
        "👍🏽",
        "—",
        "─",
        "\u200d",
        "\ufffd",
    ),
    *("\U00011099", "\U000110ba", "the ", "don't", "<0xE5>", "[UNK]", "</s>", "\u0130", "ẞ", "\u1e9b", "Ⓐ", "\ua7aa"),
]
TEXTS = st.lists(
    st.tuples(st.one_of(st.sampled_from(TRICKY), st.text(max_size=4)), st.integers(1, 12)), max_size=20
).map(lambda parts: "".join(text * times for text, times in parts))
many = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def byte_level(seed: int, *, holes: bool = True) -> Any:
    """Byte-level BPE with random merges, and without tokens for some bytes."""
    draw = random.Random(seed)
    missing = {0x04, 0xC0, 0xF5, *(draw.sample(range(256), 4) if holes else ())}
    words = [LETTER_OF[byte] for byte in range(256) if byte not in missing]
    usual = [LETTER_OF[byte] for byte in b" a!0\n\xe5\xad\x97\xf0\x9f\xcc\x81" if byte not in missing]
    merges = list[tuple[str, str]]()
    for _ in range(60):
        pair = draw.choice([*usual, *words[-20:]]), draw.choice([*usual, *words[-20:]])
        if "".join(pair) not in words:
            merges.append(pair)
            words.append("".join(pair))
    raw = tiny.Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=draw.random() < 0.3, use_regex=draw.random() < 0.5)
    raw.decoder = decoders.ByteLevel()
    return raw


def bert(**given: Any) -> Any:
    raw = tiny.wordpiece()
    raw.normalizer = normalizers.BertNormalizer(**given)
    return raw


def sentencepiece(**given: Any) -> Any:
    metadata = tiny.sentencepiece_metadata(tiny.sentencepiece_model())
    return tokenizer_from_gguf(metadata | {f"tokenizer.ggml.{key}": value for key, value in given.items()}, "spm").raw


def normalised(raw: Any, normaliser: Callable[[], Any]) -> Any:
    raw.normalizer = normaliser()
    return raw


def normal_bytes(n: int, **given: Any) -> Any:
    return normalised(byte_level(n, **given), NORMALISERS[n])


MADE: dict[str, Callable[[], Any]] = {
    **{f"bytes {n}": partial(byte_level, n) for n in range(4)},
    **{f"normal {n}": partial(normal_bytes, n, holes=False) for n in range(7)},
    **{f"normal, holes {n}": partial(normal_bytes, n) for n in range(7)},
    "GPT-2": tiny.byte_level,
    "SentencePiece": sentencepiece,
    "SentencePiece, bare": lambda: sentencepiece(add_space_prefix=False),
    "BERT": tiny.wordpiece,
    "BERT, cased": lambda: bert(lowercase=False, strip_accents=False),
    "BERT, ideographs joined": lambda: bert(handle_chinese_chars=False),
    "BERT, nothing removed": lambda: bert(clean_text=False),
}
ADDED = [
    AddedToken("字字字字!!aaaa", normalized=False),
    AddedToken("ﷺK é", normalized=True),
    AddedToken(" a▁0", normalized=True),
    AddedToken("🦊", lstrip=True, rstrip=True, normalized=False),
]


@pytest.fixture(scope="module", params=MADE)
def made(request: pytest.FixtureRequest) -> list[Tokenizer]:
    """A tokenizer as it is, and with each kind of added token."""
    found = [MADE[request.param]() for _ in range(1 + len(ADDED))]
    for raw, token in zip(found[1:], ADDED, strict=True):
        raw.add_tokens([token])
    return [Tokenizer(raw) for raw in found]


def check(tokenizer: Tokenizer, text: str) -> None:
    for encoder, pipeline in ((tokenizer.plain, tokenizer._long), (tokenizer.raw, tokenizer._long_with_control)):
        ids = encoder.encode(text, add_special_tokens=False).ids
        assert not pipeline.has_more(text, len(ids)), (text, ids)


@many
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_its_bytes_say(made: list[Tokenizer], text: str) -> None:
    for each in made:
        check(each, text)


@pytest.fixture(scope="module", params=["toy-gpt", "toy-bert", "toy-translate", "smollm2", "minilm"])
def published(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param in INSTALLABLE and installed(INSTALLABLE[request.param]) is None:
        pytest.skip(f"{request.param} is not installed (regard pull {request.param})")
    return regard.load(request.param).tokenizer


@many
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_with_published_tokenizers(published: Tokenizer, text: str) -> None:
    assert published._long.bounds
    check(published, text)


@pytest.mark.parametrize("name", [name for name in MADE if "holes" not in name])
def test_every_kind_of_tokenizer_here_has_bounds(name: str) -> None:
    assert Tokenizer(MADE[name]())._long.bounds


def test_what_normalization_leaves_unchanged() -> None:
    """The facts of Unicode that `bounds` relies on, by the library's own tables."""
    ideographs = "".join(chr(code) for code in range(0x4000, 0xA000))
    beyond = [chr(code) for code in range(0x80, 0x30000) if not 0xD800 <= code < 0xE000]
    for make in NORMALISERS[:5]:
        normal = make().normalize_str
        assert normal("\u0301".join(ideographs)) == "\u0301".join(ideographs)
        for kind in token_bounds.ASCII:
            after = normal(kind.decode()).encode()
            assert set(after) <= set(kind)
            assert len(after) == len(kind)
        # nothing takes more of ASCII with it than what is before it, or becomes a control character
        assert normal("".join(each + "a;0" for each in beyond)).count("a;0") == len(beyond)
        assert not set(normal("".join(beyond)).encode()) & set(token_bounds.CONTROLS)


def test_an_ideograph_is_a_word_to_bert() -> None:
    raw = tiny.wordpiece()
    text = "".join(chr(code) for code in range(0x5000, 0xA000))
    assert len(raw.encode(text, add_special_tokens=False).ids) == len(text)


def merged(*words: str, missing: bytes = b"", **model: Any) -> Any:
    """Byte-level BPE with just these tokens of more than one byte."""
    vocab = [LETTER_OF[byte] for byte in range(256) if byte not in missing]
    merges = list[tuple[str, str]]()

    def learn(word: str) -> None:
        if word not in vocab:
            left, right = word[: len(word) // 2], word[len(word) // 2 :]
            learn(left)
            learn(right)
            merges.append((left, right))
            vocab.append(word)

    for word in words:
        learn("".join(LETTER_OF[byte] for byte in word.encode()))
    raw = tiny.Tokenizer(models.BPE({word: i for i, word in enumerate(vocab)}, merges, **model))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    return raw


def added(raw: Any, token: AddedToken) -> Any:
    raw.add_tokens([token])
    return raw


# Tokenizers and texts that have as few tokens as can be
FEWEST: dict[str, tuple[Any, str, int]] = {
    "composed letters": (normalised(merged("éé"), normalizers.NFC), "e\u0301" * 100, 50),
    "four in one": (normalised(merged("ᾧ"), normalizers.NFC), "ω\u0314\u0342\u0345" * 100, 100),
    "one letter for three bytes": (normalised(merged(), normalizers.NFKC), "\u212a" * 100, 100),
    "lower case without a token": (normalised(merged(missing=b"a"), normalizers.Lowercase), "A" * 100, 0),
    "nothing has a token": (merged(missing="字".encode()), "字" * 100, 0),
    "whitespace beside a token": (
        added(merged(), AddedToken("🦊", lstrip=True, normalized=False)),
        " " * 100 + "🦊",
        1,
    ),
    "the other whitespace": (
        added(merged(), AddedToken("🦊", rstrip=True, normalized=False)),
        "🦊" + "\u3000" * 100,
        1,
    ),
    "a token of spaces": (added(sentencepiece(), AddedToken("▁" * 30 + "a", normalized=True)), " " * 30 + "a", 1),
    "a normalised token": (
        added(normalised(merged(), normalizers.NFKC), AddedToken("ﷺ")),
        normalizers.NFKC().normalize_str("ﷺ"),
        1,
    ),
    "a byte that needs an affix": (merged(continuing_subword_prefix="##"), "aaaa", 1),
    "a word of any length": (tiny.wordpiece(), "a" * 1000, 1),
    "hexagrams, which are no ideographs": (tiny.wordpiece(), "䷀" * 1000, 1),
    "marks for spaces": (sentencepiece(add_space_prefix=False), " " * 400, 100),
}


@pytest.mark.parametrize("case", FEWEST)
def test_the_fewest_tokens_that_a_text_can_have(case: str) -> None:
    raw, text, count = FEWEST[case]
    made = Tokenizer(raw)
    assert len(made.plain.encode(text, add_special_tokens=False).ids) == count
    check(made, text)


# ── refused unread ──────────────────────────────────────────────────────────────────────────────────────────────────


class Unread:
    """In the library's place."""

    def encode_batch_fast(self, *given: Any, **more: Any) -> Any:
        raise AssertionError("the text is tokenised")


DRAW = random.Random(0)
NO_SPACES = {
    "Chinese": "很久以前有一位老国王" * 35_000,
    "Thai": "กาลครั้งหนึ่ง" * 30_000,
    "emoji": "🦊👍🏽" * 60_000,
    "one letter": "a" * 1_000_000,
    "digits": "0123456789" * 100_000,
    "base64": base64.b64encode(DRAW.randbytes(750_000)).decode(),
    "newlines": "\n" * 1_000_000,
    "signs": "!?" * 500_000,
}


@pytest.mark.parametrize("kind", NO_SPACES)
@pytest.mark.parametrize("normaliser", [None, normalizers.NFC], ids=["bare", "NFC"])
def test_long_texts_without_spaces_are_refused_without_encoding(kind: str, normaliser: Any) -> None:
    spacious, unread = merged(" " * 128), Unread()  # many vocabularies have such a token
    made = Tokenizer(normalised(spacious, normaliser) if normaliser else spacious)
    most = len(NO_SPACES[kind]) // 60  # one of 128 spaces for every sixty characters would fit
    if normaliser is not None and kind in ("Thai", "emoji"):
        most //= 16  # characters that might be composed are judged by their number alone
    with cheap(), pytest.raises(TooLong):
        made.encode_by(unread, lambda: made._long, NO_SPACES[kind], True, most)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["Chinese", "signs", "base64"])
def test_words_that_bert_finds_without_spaces_are_counted(kind: str) -> None:
    made, unread = Tokenizer(tiny.wordpiece()), Unread()
    with cheap(), pytest.raises(TooLong):
        made.encode_by(unread, lambda: made._long, NO_SPACES[kind], True, 512)  # type: ignore[arg-type]


def test_text_is_split_at_newlines_like_at_spaces() -> None:
    made = Tokenizer(tiny.wordpiece())
    with cheap(), pytest.raises(TooLong):
        made.encode("cat\n12\n" * 300_000, most=512)
