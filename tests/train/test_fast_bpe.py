"""The cached byte-level BPE gives the ids of the library for every text."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, pre_tokenizers

from regard.text.tokenizer import Tokenizer
from regard.train import fast_bpe as module
from regard.train.fast_bpe import KNOWN, WORDS, WordCache, fast_encoder, splits_like_gpt2
from regard.train.preprocess import PackedTokenizer
from regard.train.tokenizer import SPECIALS, train_tokenizer

TEXTS = [
    "the cat's hat, the hats of 12 cats",
    "l’été à la plage : 3½ € et puis…",
    "  two  spaces\n\tand\u202f! tabs",
] * 3
BPE = {task: train_tokenizer("bpe", TEXTS, 300, SPECIALS[task]) for task in ("lm", "translate", "classify")}
ALPHABET = "abcé'stldmrev  \t\n\x0b\x1c\x85\xa0\u2028\u202f\u2060°12½²_-–…’.,€\0中\u3000ß😀"


def test_character_classes_are_those_of_the_library():
    library = pre_tokenizers.ByteLevel(add_prefix_space=False)
    known = [chr(i) for i in range(0x3100) if KNOWN.fullmatch(chr(i))]
    assert len(known) == 672
    for c in known:
        text = f"a{c}a 1{c}1 .{c}. {c}{c} {c}a {c}1 {c}."
        assert WORDS.findall(text) == [text[a:b] for _, (a, b) in library.pre_tokenize_str(text)], hex(ord(c))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(ALPHABET, max_size=30) | st.text(max_size=10), max_size=5), st.sampled_from(sorted(BPE)))
def test_ids_are_those_of_the_library(texts, task):
    tokenizer = BPE[task]
    for add_special in (True, False):
        encode = fast_encoder(tokenizer, add_special=add_special)
        for text in [*texts, *texts]:  # the second time from memory
            assert encode(text) == tokenizer.encode(text, add_special=add_special)
        assert [encode(text) for text in texts] == tokenizer.encode_batch(texts, add_special=add_special)


def test_a_special_token_in_a_text_is_encoded_as_text():
    tokenizer = BPE["translate"]
    text = "</s> is not the end, nor is <pad>"
    ids = fast_encoder(tokenizer, add_special=True)(text)
    assert ids == tokenizer.encode(text)
    assert tokenizer.eos_id is not None
    assert ids.count(tokenizer.eos_id) == 1


def test_the_cache_is_used_only_where_words_are_encoded_one_by_one():
    assert splits_like_gpt2(BPE["lm"])
    for kind in ("wordpiece", "unigram", "characters"):
        other = train_tokenizer(kind, TEXTS, 100, SPECIALS["lm"])
        assert not splits_like_gpt2(other)
        assert fast_encoder(other, add_special=False)("the cat") == other.encode("the cat", add_special=False)
    raw = pickle.loads(pickle.dumps(BPE["lm"].raw))
    raw.add_tokens([AddedToken("cat's hat")])  # spans two words
    assert not splits_like_gpt2(Tokenizer(raw))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_CACHED_WORDS", 8)
    asked = list[str]()

    def ask(word: str) -> list[int]:
        asked.append(word)
        return [len(word)]

    remembered = WordCache(ask)
    for i in range(100):
        assert remembered[f"w{i}"] == [len(f"w{i}")]
        assert len(remembered) <= 8
    assert remembered["w99"] == [3]
    assert asked.count("w99") == 1
    assert remembered["x" * 33] == [33]
    assert "x" * 33 not in remembered


def test_the_word_cache_is_not_pickled():
    packed = PackedTokenizer(BPE["lm"])
    ids = packed.encode_bare("the cat")
    arrived = pickle.loads(pickle.dumps(packed))
    assert set(vars(arrived)) == {"_json", "_specials", "_templates", "_where", "sha256"}
    assert arrived.encode_bare("the cat") == ids
