"""A long text in pieces has the ids of the whole, and a text that cannot fit is refused by its length alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

import tiny_tokenizers as tiny
from hostile import cheap
from regard.errors import TooLong
from regard.text import long_text, tokenizer
from regard.text.chat_template import encode_chat
from regard.text.gguf_vocab import tokenizer_from_gguf
from regard.text.pretokenizers import SPLITS
from regard.text.tokenizer import Tokenizer

SPM = tiny.sentencepiece_metadata(tiny.sentencepiece_model())


def byte_level(split: str = "gpt-2", normal: Any = None, prefix: bool = False) -> Any:
    raw = tiny.byte_level()
    raw.pre_tokenizer = SPLITS[split].pre_tokenizer(add_prefix_space=prefix)
    if normal is not None:
        raw.normalizer = normal
    return raw


def spaces(stage: Any) -> Any:
    """WordPiece behind another pre-tokenizer."""
    raw = tiny.wordpiece()
    raw.pre_tokenizer = stage
    return raw


def unigram(scheme: str) -> Any:
    raw = tiny.unigram()
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return raw


def closed(raw: Any) -> Any:
    """With a token before and after every text."""
    raw.post_processor = tiny.wordpiece().post_processor
    return raw


PIPELINES: dict[str, Callable[[], Any]] = {
    **{f"byte-level {split}": partial(byte_level, split) for split in ("gpt-2", "smollm", "llama-bpe")},
    **{f"byte-level {split}": partial(byte_level, split) for split in ("tekken", "gpt-4o", "falcon", "default")},
    "byte-level NFC": lambda: byte_level("qwen2", normalizers.NFC()),
    "byte-level NFKC": lambda: byte_level("gpt-2", normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "byte-level NFKD": lambda: byte_level("llama-bpe", normalizers.NFKD(), prefix=True),
    "byte-level prefixed": lambda: byte_level("smollm", prefix=True),
    "BERT": tiny.wordpiece,
    "whitespace": lambda: spaces(pre_tokenizers.Whitespace()),
    "words": tiny.wordlevel,
    **{f"unigram {scheme}": partial(unigram, scheme) for scheme in ("always", "first", "never")},
    "SentencePiece": lambda: tokenizer_from_gguf(SPM, "spm").raw,
    "SentencePiece, bare": lambda: tokenizer_from_gguf(SPM | {"tokenizer.ggml.add_space_prefix": False}, "spm").raw,
}
# none of these may be cut: a stage is not known to split at spaces, or looks at the ends of a text
WHOLE: dict[str, Callable[[], Any]] = {
    "one word": lambda: byte_level("gpt-2", normalizers.Strip()),
    "unknown split": lambda: spaces(pre_tokenizers.Split(Regex("x"), "isolated")),
    "bytes before the split": lambda: spaces(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.ByteLevel(use_regex=False),
                pre_tokenizers.Split(Regex(next(iter(SPLITS["llama3"].regexes))), "isolated"),
            ]
        )
    ),
    "nothing splits": lambda: spaces(pre_tokenizers.Digits()),
}
ADDED = [
    AddedToken("cat sat", normalized=False),
    AddedToken("  ", normalized=False),
    AddedToken("dog", rstrip=True, normalized=False),
    AddedToken(" the", single_word=True, normalized=False),
    AddedToken("<m>", lstrip=True, normalized=False),
    AddedToken("<r>", rstrip=True, normalized=False),
    AddedToken("Cat", normalized=True),
    AddedToken("a▁b", normalized=True),
    AddedToken("on", single_word=True, normalized=True),
]
WORDS = [
    "the",
    "cat",
    "sat",
    "dog",
    "on",
    "a",
    "b",
    "A",
    "Cat",
    "don't",
    "12345",
    "é",
    "e\u0301",
    "ﷺ",
    "字",
    "й",
    "\u0301",
    "¨",
]
MARKS = [
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    "\t",
    ".",
    "!?",
    "<m>",
    "<r>",
    "▁",
    "\u3000",
    "\xa0",
    "</s>",
    "\0",
    "\x04",
]
TEXTS = st.lists(st.sampled_from([*WORDS, *MARKS, *(f" {word}" for word in WORDS[:6])]), max_size=40).map("".join)
quick = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text is long."""
    for module in (long_text, tokenizer):
        monkeypatch.setattr(module, "LONG", 4)
    monkeypatch.setattr(long_text, "WINDOW", 3)


@pytest.fixture(scope="module", params=PIPELINES)
def made(request: pytest.FixtureRequest) -> list[Tokenizer]:
    """A pipeline as it is, and with each kind of added token."""
    plain = PIPELINES[request.param]
    found = [Tokenizer(plain())]
    for token in ADDED:
        raw = plain()
        raw.add_tokens([token])
        found.append(Tokenizer(raw))
    return found


@quick
@given(text=TEXTS)
def test_the_ids_of_the_pieces_are_those_of_the_whole(made: list[Tokenizer], text: str) -> None:
    for each in made:
        assert each.encode(text) == each.plain.encode(text).ids, list(each._long.pieces(text))
        assert each.encode(text, allow_control=True) == each.raw.encode(text).ids


@quick
@given(text=TEXTS)
def test_no_text_is_refused_that_would_have_fitted(made: list[Tokenizer], text: str) -> None:
    for each in made:
        fits = len(each.plain.encode(text * 50).ids)
        assert len(each.encode(text * 50, most=fits)) == fits


def test_every_pipeline_here_is_split(made: list[Tokenizer]) -> None:
    plain = made[0]
    assert len(list(plain._long.pieces("the cat sat on the mat and the dog"))) > 2
    assert sum(not each._long.after for each in made) >= 2  # where an added token forbids it


@pytest.mark.parametrize("name", WHOLE)
def test_unknown_pipelines_are_not_split(name: str) -> None:
    made = Tokenizer(WHOLE[name]())
    text = "the cat sat on the mat and the dog"
    assert list(made._long.pieces(text)) == [text]
    assert made.encode(text) == made.raw.encode(text).ids


def test_bpe_dropout_is_not_split() -> None:
    raw = tiny.byte_level()
    raw.model.dropout = 0.5
    assert not Tokenizer(raw)._long.after


def test_encoding_stops_at_too_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tokenizer(tiny.byte_level())
    seen: list[str] = []
    pieces = made._long.pieces

    def counted(text: str) -> Any:
        for piece in pieces(text):
            seen.append(piece)
            yield piece

    monkeypatch.setattr(type(made._long), "pieces", lambda self, text: counted(text))
    text = "the cat sat on the mat and " * 100
    ids = made.encode(text)
    total, seen[:] = len(seen), []
    with pytest.raises(TooLong, match="has more than 200 tokens"):
        made.encode(text, most=200)
    assert len(seen) < total / 2
    assert made.encode(text, most=len(ids)) == ids
    with pytest.raises(TooLong):
        made.encode(text, most=len(ids) - 1)


class Recorder:
    """In the library's place: which of its methods get which texts."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.locked, self.free = raw, list[str](), list[str]()

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        self.locked.append(text)
        return self.raw.encode(text, add_special_tokens=add_special_tokens)

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> Any:
        self.free += texts
        return self.raw.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


def test_the_gil_is_held_for_short_texts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """`encode` holds the GIL, `encode_batch_fast` does not."""
    monkeypatch.undo()
    made = Tokenizer(tiny.byte_level())
    recorder: Any = Recorder(made.plain)
    for text in ("the cat " * 10_000, "?" * 100_000, "the cat"):
        assert made.encode_by(recorder, lambda: made._long, text, True, None) == made.plain.encode(text).ids
    assert recorder.locked == ["the cat"]
    assert max(map(len, recorder.free[:-1])) < long_text.LONG + 10
    assert recorder.free[-1] == "?" * 100_000


def test_a_text_that_cannot_fit_is_refused_without_encoding() -> None:
    made = Tokenizer(closed(tiny.byte_level()))
    longest = max(made.vocab, key=len)
    with cheap(seconds=0.5), pytest.raises(TooLong, match="has more than 100 tokens"):
        made.encode("a" * 20_000_000, most=100)
    assert made._long.has_more(longest * 100 + "!", 100)
    assert not made._long.has_more(longest * 100, 100)


def test_characters_without_a_token_do_not_count() -> None:
    """SmolLM2's vocabulary has no token for some control characters, and leaves them out."""
    raw = tiny.byte_level(special=[])
    vocab = {token: i for token, i in raw.get_vocab().items() if len(token) == 1 and token != "Ą"}  # byte 0x04
    bare = tokenizer_of_bytes({token: i for i, token in enumerate(vocab)})
    assert bare.raw.encode("\x04" * 1000 + "a").ids == bare.raw.encode("a").ids
    assert bare.encode("\x04" * 1000 + "a", most=1) == bare.raw.encode("a").ids
    assert bare._long.has_more("aa", 1)


def tokenizer_of_bytes(vocab: dict[str, int]) -> Tokenizer:
    raw = tiny.Tokenizer(models.BPE(vocab, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return Tokenizer(raw)


@quick
@given(text=TEXTS)
def test_a_conversation_in_pieces(text: str) -> None:
    made = Tokenizer(tiny.byte_level(), chat_templates={"default": tiny.CHATML})
    for said in (text, text + "<|im_end|>" + text):
        messages = [{"role": "user", "content": said}]
        long = encode_chat(made, messages)
        with pytest.MonkeyPatch.context() as patch:
            for module in (long_text, tokenizer):
                patch.setattr(module, "LONG", 10**6)
            assert encode_chat(made, messages) == long


def test_a_conversation_that_cannot_fit_is_refused() -> None:
    made = Tokenizer(tiny.byte_level(), chat_templates={"default": tiny.CHATML})
    for said in ("a" * 1_000_000, "the cat " * 10_000, "the cat <|im_end|> " * 1000):
        with cheap(), pytest.raises(TooLong):
            encode_chat(made, [{"role": "user", "content": said}], most=100)


def test_decoding_many_ids_is_the_same() -> None:
    made = Tokenizer(tiny.wordpiece(), clean_up_spaces=True)
    ids = made.encode("the cat, don't 🦊 the dog. " * 20)
    for skip in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokenizer, "LONG", 10**6)
            whole = made.decode(ids, skip_special=skip)
        assert made.decode(ids, skip_special=skip) == whole
