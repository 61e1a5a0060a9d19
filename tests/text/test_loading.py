"""Every kind of tokenizer directory gives the ids `transformers` gives for it."""

import random
from pathlib import Path
from typing import Any

import pytest
import transformers

import tiny_tokenizers as tiny
from regard.text.tokenizer import Tokenizer, load_tokenizer

ROBERTA_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LSTRIP_MASK = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


def some_texts() -> list[str]:
    letters = "the quick fox.,'!?<>[]|é日🦊1 2\n\t"
    rng = random.Random(0)
    typed = [
        "",
        "  the  cat ",
        "<s> a</s>",
        "the <mask> x <mask>",
        "<|endoftext|>hi",
        "[MASK] [SEP]",
        "ÜNÏ",
        "一二 the",
    ]
    return typed + ["".join(rng.choice(letters) for _ in range(30)) for _ in range(40)]


def assert_same(folder: Path) -> Tokenizer:
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    ours = load_tokenizer(folder)
    for text in some_texts():
        ids = reference(text)["input_ids"]
        assert ours.encode(text, allow_control=True) == ids
        assert ours.encode_pair(text, "the cat", allow_control=True)[0] == reference(text, "the cat")["input_ids"]
        assert ours.decode(ids) == reference.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special=False) == reference.decode(ids)
    assert {role: getattr(ours, f"{role}_id") for role in ROLES} == {
        role: getattr(reference, f"{role}_token_id") for role in ROLES
    }
    return ours


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("gpt2", None),
        ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 64}),
        ("gpt2", {"add_prefix_space": True, "pad_token": "<|endoftext|>"}),
        ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}),
        ("gpt2", {"tokenizer_class": "GPT2TokenizerFast", "pad_token": "<new>"}),
    ],
)
def test_gpt2_files(tmp_path: Path, model_type: str, config: dict[str, Any] | None) -> None:
    tiny.write_vocab_and_merges(tmp_path, tiny.byte_level(["<|endoftext|>"]))
    tiny.write_json(tmp_path / "config.json", {"model_type": model_type})
    if config is not None:
        tiny.write_json(tmp_path / "tokenizer_config.json", config)
    tokenizer = assert_same(tmp_path)
    assert tokenizer.model_max_length == (config or {}).get("model_max_length")


def test_gpt2_under_its_first_names(tmp_path: Path) -> None:
    raw = tiny.byte_level(["<|endoftext|>"])
    tiny.write_vocab_and_merges(tmp_path, raw, ("encoder.json", "vocab.bpe"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("the quick 🦊") == raw.encode("the quick 🦊").ids
    assert tokenizer.eos_id == raw.token_to_id("<|endoftext|>")


@pytest.mark.parametrize("model_type", ["roberta", "bart"])
@pytest.mark.parametrize(
    "files",
    [
        {},
        {"tokenizer_config.json": {"add_prefix_space": True}},
        {"special_tokens_map.json": {"mask_token": LSTRIP_MASK, "bos_token": "<s>"}},
        {"tokenizer_config.json": {"added_tokens_decoder": {"4": {**LSTRIP_MASK, "special": True}}}},
    ],
    ids=["bare", "prefix space", "special tokens map", "added tokens decoder"],
)
def test_roberta_and_bart_files(tmp_path: Path, model_type: str, files: dict[str, Any]) -> None:
    tiny.write_vocab_and_merges(tmp_path, tiny.byte_level(ROBERTA_TOKENS))
    tiny.write_json(tmp_path / "config.json", {"model_type": model_type})
    for name, content in files.items():
        tiny.write_json(tmp_path / name, content)
    tokenizer = assert_same(tmp_path)
    assert tokenizer.encode("a")[0] == 0
    assert tokenizer.encode("a")[-1] == 2
    if "tokenizer_config.json" not in files:
        (tmp_path / "config.json").unlink()
        assert load_tokenizer(tmp_path).specials == tokenizer.specials  # recognised by its vocabulary alone


def test_tokens_added_beside_the_vocabulary(tmp_path: Path) -> None:
    raw = tiny.byte_level(ROBERTA_TOKENS)
    tiny.write_vocab_and_merges(tmp_path, raw)
    tiny.write_json(tmp_path / "config.json", {"model_type": "roberta"})
    tiny.write_json(tmp_path / "added_tokens.json", {"<new>": raw.get_vocab_size()})
    tokenizer = assert_same(tmp_path)
    assert tokenizer.encode("a<new>b", add_special=False)[1] == raw.get_vocab_size()


@pytest.mark.parametrize(
    "config",
    [
        None,
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False, "clean_up_tokenization_spaces": True},
        {"tokenizer_class": "DistilBertTokenizer"},
    ],
)
def test_bert_vocab_txt(tmp_path: Path, config: dict[str, Any] | None) -> None:
    tiny.write_vocab_txt(tmp_path, tiny.wordpiece())
    tiny.write_json(tmp_path / "config.json", {"model_type": "bert"})
    if config is not None:
        tiny.write_json(tmp_path / "tokenizer_config.json", config)
    tokenizer = assert_same(tmp_path)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pair = reference("the cat", "a dog", return_token_type_ids=True)
    assert tokenizer.encode_pair("the cat", "a dog") == (pair["input_ids"], pair["token_type_ids"])


def test_what_transformers_saves(tmp_path: Path) -> None:
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny.byte_level(),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="[PAD]",
        additional_special_tokens=["<|im_start|>", "<tool>"],
        chat_template=tiny.CHATML,
    )
    made.add_tokens(["New York"])
    made.save_pretrained(tmp_path)
    tiny.write_json(tmp_path / "config.json", {"model_type": "llama"})
    tokenizer = assert_same(tmp_path)
    assert tokenizer.chat_template == tiny.CHATML
    assert tokenizer.model_max_length is None
    assert {tokenizer.token(i) for i in tokenizer.special_ids} == {*tiny.CHAT_TOKENS, "[PAD]", "<tool>"}


def test_chat_templates_by_name_and_in_files(tmp_path: Path) -> None:
    tiny.byte_level().save(str(tmp_path / "tokenizer.json"))
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    tiny.write_json(tmp_path / "tokenizer_config.json", {"chat_template": named})
    assert load_tokenizer(tmp_path).chat_templates == {"default": "d", "tool_use": "t"}
    load_tokenizer(tmp_path).save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").chat_templates == {"default": "d", "tool_use": "t"}
    (tmp_path / "chat_template.jinja").write_text("file\n")
    assert load_tokenizer(tmp_path).chat_template == "file\n"
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).chat_template == "file\n"


def test_a_role_set_to_null_is_unset(tmp_path: Path) -> None:
    tiny.write_vocab_and_merges(tmp_path, tiny.byte_level(["<|endoftext|>"]))
    tiny.write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "bos_token": None})
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (None, 0)
