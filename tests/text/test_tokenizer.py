"""Text ⇄ ids: control spellings stay text, decoding streams, words and offsets line up."""

import json
import time
from pathlib import Path

import pytest
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Raw
from tokenizers import decoders, models, normalizers, pre_tokenizers

import tiny_tokenizers as tiny
from regard.errors import TokenizerError
from regard.text.gguf_vocab import tokenizer_from_gguf
from regard.text.tokenizer import Tokenizer, load_tokenizer

BYTES = Tokenizer(
    tiny.byte_level(added=["New York"]), specials={"bos": "<|endoftext|>", "eos": "<|im_end|>"}, where="bytes"
)
PIECES = Tokenizer(tiny.wordpiece(), specials={"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"})
CLEANED = Tokenizer(tiny.wordpiece(), clean_up_spaces=True)
UNIGRAM = Tokenizer(tiny.unigram(), specials={"eos": "</s>"})
WORDS = Tokenizer(tiny.wordlevel(), specials={"eos": "</s>"})
SPM = tokenizer_from_gguf(tiny.sentencepiece_metadata(tiny.sentencepiece_model()), "spm.gguf")
ALL = {"bytes": BYTES, "pieces": PIECES, "cleaned": CLEANED, "unigram": UNIGRAM, "words": WORDS, "spm": SPM}
EVERY = pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)


def test_encode_is_the_library_and_adds_what_the_pipeline_adds() -> None:
    assert BYTES.encode("the cat") == BYTES.raw.encode("the cat").ids
    ids = PIECES.encode("the cat")
    assert (ids[0], ids[-1]) == (PIECES.cls_id, PIECES.sep_id)
    assert ids[1:-1] == PIECES.encode("the cat", add_special=False)
    assert PIECES.encode_pair("the cat", "the dog") == (
        [*ids, *PIECES.encode("the dog", add_special=False), PIECES.sep_id],
        [0] * len(ids) + [1] * (len(PIECES.encode("the dog", add_special=False)) + 1),
    )


@EVERY
def test_a_batch_is_its_texts(tokenizer: Tokenizer) -> None:
    texts = ["the cat", "", "don't </s> [SEP] <|im_end|>", "🦊 naïve"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    allowed = tokenizer.encode_batch(texts, add_special=False, allow_control=True)
    assert allowed == [tokenizer.encode(text, add_special=False, allow_control=True) for text in texts]


@EVERY
def test_text_that_spells_a_control_token_is_text(tokenizer: Tokenizer) -> None:
    control = tokenizer.special_ids - {tokenizer.vocab.get("[UNK]"), tokenizer.vocab.get("<unk>")}
    assert control
    for i in control:
        spelling = tokenizer.token(i)
        for text in (spelling, f"the {spelling} cat", f"a{spelling}", f"{spelling}{spelling}"):
            assert not control.intersection(tokenizer.encode(text, add_special=False)), text
        assert tokenizer.encode(spelling, add_special=False, allow_control=True) == [i]


def test_added_words_that_are_not_control_tokens_always_match() -> None:
    new_york = BYTES.vocab["New York"]
    assert new_york not in BYTES.special_ids
    assert BYTES.encode("to New York<|im_end|>").count(new_york) == 1
    assert BYTES.encode("to New York<|im_end|>", allow_control=True)[-1] == BYTES.eos_id


def test_special_ids_and_missing_roles() -> None:
    assert BYTES.bos_id == 0
    assert BYTES.eos_id == 2
    assert (BYTES.pad_id, BYTES.mask_id, BYTES.cls_id, BYTES.sep_id, BYTES.unk_id) == (None,) * 5
    assert BYTES.special_ids == {0, 1, 2}
    assert PIECES.special_ids == {0, 1, 2, 3, 4}
    assert [t.kind for t in (BYTES, PIECES, UNIGRAM, WORDS, SPM)] == ["bpe", "wordpiece", "unigram", "wordlevel", "bpe"]
    assert BYTES.n_vocab == len(BYTES.vocab) == BYTES.vocab["New York"] + 1


def test_decode_and_readable_pieces() -> None:
    ids = BYTES.encode("the <|im_end|>🦊", allow_control=True)
    assert BYTES.decode(ids) == "the 🦊"
    assert BYTES.decode(ids, skip_special=False) == "the <|im_end|>🦊"
    assert BYTES.pieces(BYTES.encode("the café")) == ["the", " caf", "é"]
    assert BYTES.pieces(BYTES.encode("🦊")) == ["\\xf0", "\\x9f", "\\xa6", "\\x8a"]
    assert SPM.pieces(SPM.encode("the\n", add_special=False))[-1] == "\n"
    assert BYTES.token(BYTES.encode(" the")[0]) == "Ġthe"
    assert PIECES.decode(PIECES.encode("The CAT")) == "the cat"


@EVERY
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_stream_adds_up_to_the_whole(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.n_vocab - 1), max_size=40))
    skip = data.draw(st.booleans())
    stream = tokenizer.stream(skip_special=skip)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.flush() == tokenizer.decode(ids, skip_special=skip)
    assert stream.flush() == ""


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=30))
@example("👨‍👩‍👧‍👦 é \u0000 \U0010ffff")
def test_bytes_round_trip_and_no_half_character_is_shown(text: str) -> None:
    ids = BYTES.encode(text)
    assert BYTES.decode(ids) == text
    stream = BYTES.stream()
    shown = [stream.push(i) for i in ids]
    assert "".join(shown) == text
    stream = SPM.stream()
    assert "".join(stream.push(i) for i in SPM.encode(text)) + stream.flush() == SPM.decode(SPM.encode(text))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["n", "'", "t", "m", "s", "v", "re", ".", "!", ",", "it", "don"]), max_size=30))
@example(["don", "'", "t"])
@example(["'", "'", "n", "'", "t"])
def test_a_stream_removes_the_spaces_that_clean_up_removes(words: list[str]) -> None:
    ids = CLEANED.encode(" ".join(words), add_special=False)
    stream = CLEANED.stream()
    assert "".join(stream.push(i) for i in ids) + stream.flush() == CLEANED.decode(ids)


def test_clean_up_is_the_reference_librarys(tmp_path: Path) -> None:
    CLEANED.save(tmp_path)
    tiny.write_json(tmp_path / "config.json", {"model_type": "bert"})
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("it's here. don't!", "we've , a b .", "' n ' t 're"):
        ids = CLEANED.encode(text)
        assert CLEANED.decode(ids) == reference.decode(ids, skip_special_tokens=True)


def test_streaming_costs_the_same_per_token_however_long() -> None:
    ids = SPM.encode("the cat sat " * 4000, add_special=False)

    def seconds(n: int) -> float:
        stream, start = SPM.stream(), time.thread_time()
        for i in ids[:n]:
            stream.push(i)
        return time.thread_time() - start

    assert seconds(len(ids)) < 40 * seconds(len(ids) // 10) + 0.1  # quadratic would be a hundredfold


def test_a_stream_with_an_unknown_decoder_returns_all_text_at_the_end() -> None:
    raw = tiny.byte_level()
    raw.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("the", "The")])
    tokenizer = Tokenizer(raw)
    ids = tokenizer.encode("the cat")
    stream = tokenizer.stream()
    assert [stream.push(i) for i in ids] == [""] * len(ids)
    assert stream.flush() == tokenizer.decode(ids) == "The cat"


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES, SPM], ids=["bytes", "pieces", "spm"])
def test_encode_words_maps_tokens_to_words(tokenizer: Tokenizer) -> None:
    words = ["the", "believing", "cat", ",", "naïve"]
    ids, index = tokenizer.encode_words(words)
    for n, word in enumerate(words):
        own = [i for i, w in zip(ids, index, strict=True) if w == n]
        assert tokenizer.decode(own).strip().replace("##", "") == word.replace("ï", "i" if tokenizer is PIECES else "ï")
    assert [w for w in index if w is not None] == sorted(w for w in index if w is not None)
    naive = "naive" if tokenizer is PIECES else "naïve"  # which takes accents off
    assert tokenizer.decode(ids).replace(" ,", ",") == f"the believing cat, {naive}"
    assert tokenizer.words("the cat's 🦊, yes") == [
        ("the", 0, 3), ("cat", 4, 7), ("'", 7, 8), ("s", 8, 9), ("🦊", 10, 11), (",", 11, 12), ("yes", 13, 16)
    ]  # fmt: skip


def test_offsets_are_characters_of_the_text() -> None:
    text = "🦊 the cafés"
    ids, offsets = PIECES.encode_with_offsets(text)
    assert offsets[0] == offsets[-1] == (0, 0)
    assert [text[a:b] for a, b in offsets[1:3]] == ["🦊", "the"]
    assert len(ids) == len(offsets)


def test_unigram_and_word_models_stay_exact_on_ordinary_text() -> None:
    for tokenizer in (UNIGRAM, WORDS):
        for text in (*tiny.CORPUS[:5], "unseen words here"):
            assert tokenizer.encode(text) == tokenizer.raw.encode(text).ids


def test_ids_with_gaps() -> None:
    raw = Raw(models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    raw.add_special_tokens(["</s>"])
    tokenizer = Tokenizer(raw, specials={"eos": "</s>"})
    assert tokenizer.n_vocab == 8
    assert tokenizer.encode("b") == [7]
    assert tokenizer.decode([7]) == "b"
    assert tokenizer.without_token(9) == (1, 3, 4, 5, 6, 8)  # the library gives </s> the id 2
    assert BYTES.without_token(BYTES.n_vocab) == ()
    with pytest.raises(TokenizerError, match="has no token 5; its ids go from 0 to 7"):
        tokenizer.decode([5])
    for beyond in (-1, 8, 1 << 40):
        with pytest.raises(TokenizerError, match="has no token"):
            tokenizer.decode([beyond])


@pytest.mark.parametrize("name", ["bytes", "pieces", "unigram", "words", "spm"])
def test_saved_opens_here_and_in_the_reference_library(tmp_path: Path, name: str) -> None:
    tokenizer = ALL[name]
    tokenizer.chat_templates = {"default": tiny.CHATML}
    tokenizer.save(tmp_path)
    tiny.write_json(tmp_path / "config.json", {"model_type": "gpt2"})
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    back = load_tokenizer(tmp_path)
    for text in (*tiny.CORPUS[:5], "<|im_start|>a</s> [SEP]", "🦊\n\n x"):
        assert reference(text)["input_ids"] == tokenizer.encode(text, allow_control=True)
        assert back.encode(text) == tokenizer.encode(text)
    assert back.chat_template == reference.chat_template == tiny.CHATML
    assert (reference.bos_token_id, reference.eos_token_id) == (back.bos_id, back.eos_id)
    assert back.specials == tokenizer.specials
    assert ("token_type_ids" in reference("a")) == (name == "pieces")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "tokenizer.json", "tokenizer_config.json"]
    tokenizer.chat_templates = {}


def test_padding_and_truncation_in_the_file_do_not_change_ids(tmp_path: Path) -> None:
    raw = tiny.wordpiece()
    raw.enable_truncation(4)
    raw.enable_padding(length=16)
    raw.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode("the cat sat on the mat") == PIECES.encode("the cat sat on the mat")


def test_a_word_start_in_the_middle_of_a_text() -> None:
    """A Metaspace that marks only the very first word, as newer Llama files have it."""
    raw = Raw(models.BPE({"▁": 0, "a": 1, "▁a": 2, "</s>": 3}, [("▁", "a")]))
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    raw.add_special_tokens(["</s>"])
    tokenizer = Tokenizer(raw)
    assert tokenizer.encode("a</s>a a", allow_control=True) == [2, 3, 1, 2]


def test_normalised_text_is_plain_text(tmp_path: Path) -> None:
    raw = tiny.byte_level()
    raw.normalizer = normalizers.NFC()
    raw.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("café")
    assert json.loads(tokenizer.raw.to_str())["normalizer"] == {"type": "NFC"}
