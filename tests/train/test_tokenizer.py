"""Trained tokenizers: deterministic, with the ids that a model family expects, and the same in `transformers`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, DataError
from regard.text.tokenizer import Tokenizer, load_tokenizer
from regard.train.tokenizer import BERT, KINDS, LM, SPECIALS, TRANSLATE, SpecialTokens, train_tokenizer

TEXTS = [
    "the european economic area was signed in August 1992",
    "la zone économique européenne a été signée en août 1992",
    "The pizza came out of the oven,\n  and it tasted good!",
    "an area, a zone; the ovens, the pizzas: tasted, signed",
]
SIZE = 330
TYPED = [*TEXTS, "", " a  b\n\nc ", "日本 🦊", "the <unk> [MASK] </s> <|endoftext|> area", "SIGNED"]


def trained(kind: str, specials: SpecialTokens) -> Tokenizer:
    return train_tokenizer(kind, iter(TEXTS), SIZE, specials)


@pytest.mark.parametrize("specials", [LM, BERT, TRANSLATE], ids=["lm", "bert", "translate"])
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_same_ids(tmp_path: Path, kind: str, specials: SpecialTokens) -> None:
    tokenizer = trained(kind, specials)
    tokenizer.save(tmp_path)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    assert ours.vocab == tokenizer.vocab == theirs.get_vocab()
    assert ours.specials == tokenizer.specials
    for text in TYPED:
        ids = theirs(text)["input_ids"]
        assert tokenizer.encode(text, allow_control=True) == ours.encode(text, allow_control=True) == ids
        assert tokenizer.encode_pair(text, "area", allow_control=True)[0] == theirs(text, "area")["input_ids"]
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_ids_of_special_tokens() -> None:
    lm, bert, translate = trained("bpe", LM), trained("wordpiece", BERT), trained("unigram", TRANSLATE)
    assert (lm.bos_id, lm.eos_id, lm.unk_id, lm.pad_id) == (0, 0, None, None)
    assert (bert.pad_id, bert.unk_id, bert.cls_id, bert.sep_id, bert.mask_id) == (0, 1, 2, 3, 4)
    assert (translate.bos_id, translate.pad_id, translate.eos_id, translate.unk_id) == (0, 1, 2, 3)
    area = bert.encode("area", add_special=False)
    assert bert.encode("area") == [2, *area, 3]
    assert bert.encode_pair("area", "area") == ([2, *area, 3, *area, 3], [0] * (len(area) + 2) + [1] * (len(area) + 1))
    assert translate.encode("area") == [*translate.encode("area", add_special=False), 2]
    assert lm.encode("area") == lm.encode("area", add_special=False)


def test_tokenizers_that_are_not_byte_level_have_an_unknown_token() -> None:
    for kind in ("wordpiece", "unigram", "characters"):
        tokenizer = trained(kind, LM)
        assert tokenizer.specials["unk"] == "<unk>"
        assert tokenizer.unk_id in tokenizer.encode("日")
    assert trained("bpe", LM).decode(trained("bpe", LM).encode("日")) == "日"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_byte_level_bpe_encodes_any_text(text: str) -> None:
    tokenizer = trained("bpe", TRANSLATE)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("".join(TEXTS)), max_size=40))
def test_a_character_tokenizer_encodes_any_text_of_its_characters(text: str) -> None:
    tokenizer = trained("characters", TRANSLATE)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text) + 1


def test_sizes() -> None:
    assert trained("bpe", LM).n_vocab == SIZE
    assert trained("characters", LM).n_vocab == len(set("".join(TEXTS))) + 2
    most_frequent = train_tokenizer("characters", iter(["aaab", "bc", "cd"]), 4, LM)
    assert most_frequent.vocab == {"<|endoftext|>": 0, "<unk>": 1, "a": 2, "b": 3}
    for kind in ("wordpiece", "unigram"):
        assert 60 < trained(kind, BERT).n_vocab <= SIZE
        assert train_tokenizer(kind, iter(TEXTS), 70, BERT).n_vocab <= 70


def test_words_seen_often_are_one_token() -> None:
    for kind in ("bpe", "wordpiece"):
        tokenizer = train_tokenizer(kind, iter([*TEXTS, *["the oven"] * 50]), SIZE, BERT)
        assert len(tokenizer.encode("the oven", add_special=False)) == 2
    tokenizer = trained("unigram", BERT)
    assert len(tokenizer.encode(TEXTS[3], add_special=False)) < 0.9 * len(TEXTS[3])


def test_lowercase() -> None:
    for kind in KINDS:
        tokenizer = train_tokenizer(kind, iter(TEXTS), SIZE, BERT, lowercase=True)
        assert tokenizer.encode("The AREA") == tokenizer.encode("the area")
        words = tokenizer.pieces(sorted(set(tokenizer.vocab.values()) - tokenizer.special_ids))
        seen = "".join(words) if kind != "bpe" else "".join(word for word in words if len(word) > 1)
        assert seen.replace("\\xE", "") == seen.lower()


def test_the_same_text_gives_the_same_tokenizer(tmp_path: Path) -> None:
    """In other processes, with and without threads: hash tables have another order there."""
    program = (
        "import hashlib; from regard.train.tokenizer import *\n"
        f"texts = {TEXTS!r} + [f'w{{i % 7}}x{{i * i % 31}} y{{i % 5}}' for i in range(200)]\n"
        "for kind in KINDS:\n"
        "    for specials in (LM, BERT, TRANSLATE):\n"
        f"        raw = train_tokenizer(kind, iter(texts), {SIZE}, specials).raw\n"
        "        print(kind, hashlib.sha256(raw.to_str().encode()).hexdigest())"
    )
    said = set()
    for threads in ("false", "true", "false"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={"TOKENIZERS_PARALLELISM": threads, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(run.stdout)
    assert len(said) == 1
    assert len(said.pop().splitlines()) == 12


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ConfigError, match="no tokenizer of kind 'morse'; there are bpe, wordpiece"):
        train_tokenizer("morse", iter(TEXTS), SIZE, LM)
    for kind in KINDS:
        with pytest.raises(DataError, match="no text to train a tokenizer on"):
            train_tokenizer(kind, iter(["", "\n"]), SIZE, LM)
    letters = set("".join(TEXTS)) - set(" \n")
    inside = {letter for word in re.findall(r"\w+", " ".join(TEXTS)) for letter in word[1:]}
    sizes = {"bpe": 256 + 5, "wordpiece": len(letters) + len(inside) + 5, "unigram": len(letters) + len(" \n") + 5}
    for kind, needed in sizes.items():
        with pytest.raises(ConfigError, match=rf"vocabulary of 6 tokens is too small: .* take {needed}"):
            train_tokenizer(kind, iter(TEXTS), 6, BERT)


def test_a_bad_row_stops_the_training_with_its_own_message() -> None:
    def rows():
        yield TEXTS[0]
        raise DataError("pairs.tsv:7: the label is empty.")

    for kind in KINDS:
        with pytest.raises(DataError, match=r"pairs\.tsv:7: the label is empty"):
            train_tokenizer(kind, rows(), SIZE, LM)


def test_every_task_has_its_specials() -> None:
    assert set(SPECIALS) == {"lm", "chat", "mlm", "classify", "tag", "translate"}
