"""Damaged tokenizer files are refused by name; hostile text gets the reference library's ids or a clear refusal."""

import base64
import copy
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import tiny_tokenizers as tiny
from hostile import cheap
from regard.errors import TokenizerError
from regard.text.gguf_vocab import gguf_vocab, tokenizer_from_gguf
from regard.text.tokenizer import Tokenizer, load_tokenizer

BYTES = Tokenizer(tiny.byte_level(), where="bytes")
PIECES = Tokenizer(tiny.wordpiece(), where="pieces")
SPM_METADATA = tiny.sentencepiece_metadata(tiny.sentencepiece_model())
SPM = tokenizer_from_gguf(SPM_METADATA, "spm.gguf")
KINDS = {"bytes": BYTES, "pieces": PIECES, "spm": SPM}
GOOD: dict[str, Any] = json.loads(BYTES.raw.to_str())


def edited(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    change(data)
    return data


def replacing(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def nested(depth: int) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [nested(depth - 1)] if depth else []}


def text(id: str) -> dict[str, Any]:
    return {"Sequence": {"id": id, "type_id": 0}}


def special(id: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": id, "type_id": 0}}


def framed(single: list[dict[str, Any]], **known: list[int]) -> dict[str, Any]:
    tokens = {id: {"id": id, "ids": ids, "tokens": ["a"] * len(ids)} for id, ids in known.items()}
    pair = [text("A"), text("B")]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


DAMAGED: dict[str, Any] = {
    "empty": "",
    "cut": json.dumps(GOOD)[:1000],
    "a list": [],
    "no model": {},
    "vocabulary missing": edited(lambda d: d["model"].pop("vocab")),
    "vocabulary a number": edited(lambda d: d["model"].update(vocab=3)),
    "merge of a missing token": edited(lambda d: d["model"]["merges"].append(["the", "zebra"])),
    "merge into a missing token": edited(lambda d: d["model"]["merges"].append(["!", "!"])),
    "merge of three": edited(lambda d: d["model"]["merges"].append(["a", "b", "c"])),
    "merge a number": edited(lambda d: d["model"]["merges"].append(7)),
    "one id twice": edited(lambda d: d["model"]["vocab"].update(again=5)),
    "a negative id": edited(lambda d: d["model"]["vocab"].update(again=-1)),
    "an id in words": edited(lambda d: d["model"]["vocab"].update(again="5")),
    "an id of 2⁴⁰": edited(lambda d: d["model"]["vocab"].update(again=2**40)),
    "an added token with another id": edited(lambda d: d["added_tokens"][0].update(id=9999)),
    "an unknown kind": edited(lambda d: d["model"].update(type="Sorcery")),
    "a broken split": edited(
        lambda d: d.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})
    ),
    "a frame of unknown tokens": edited(
        lambda d: d.update(
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            }
        )
    ),
    "a broken character map": edited(
        lambda d: d.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})
    ),
    "deep nesting": "[" * 100_000,
    # each of these made the library panic, grow without bound or take very long
    "a text replaced by a thousand": edited(lambda d: d.update(normalizer=replacing("a", "a" * 1000))),
    "replaced again and again": edited(
        lambda d: d.update(normalizer={"type": "Sequence", "normalizers": [replacing("a", "aaa")] * 4})
    ),
    "a long beginning": edited(lambda d: d.update(normalizer={"type": "Prepend", "prepend": "a" * 10**6})),
    "the empty text replaced": edited(lambda d: d.update(normalizer=replacing("", "a"))),
    "nothing replaced": edited(lambda d: d.update(normalizer=replacing("", "a") | {"pattern": {"Regex": "x*"}})),
    "a long replacement in a decoder": edited(lambda d: d.update(decoder=replacing("a", "b" * 1000))),
    "a decoder that strips ends": edited(
        lambda d: d.update(decoder={"type": "Strip", "content": " ", "start": 0, "stop": 1})
    ),
    "pieces of length 0": edited(lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0})),
    "a stage without a type": edited(lambda d: d.update(normalizer={"pattern": {"String": ""}, "content": "a"})),
    "a stage of an unknown type": edited(
        lambda d: d.update(decoder={"type": "x", "content": " ", "start": 0, "stop": 1})
    ),
    "a stage that is a word": edited(lambda d: d.update(normalizer={"type": "Sequence", "normalizers": ["NFC"]})),
    "a sequence without stages": edited(lambda d: d.update(normalizer={"type": "Sequence"})),
    "an id of 2³¹": edited(lambda d: d["model"]["vocab"].update(again=2**31)),
    "many stages": edited(
        lambda d: d.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 100})
    ),
    "stages in stages": edited(lambda d: d.update(normalizer=nested(20))),
    "a long affix": edited(lambda d: d["model"].update(end_of_word_suffix="x" * 1000)),
    "a merge without its prefix": edited(lambda d: d["model"].update(continuing_subword_prefix="##")),
    "a long token": edited(lambda d: d["model"]["vocab"].update({"a" * 400_000: 10_000})),
    "a long piece": edited(lambda d: d.update(model={"type": "Unigram", "unk_id": 0, "vocab": [["a" * 400_000, 0.0]]})),
    "a piece without a name": edited(lambda d: d.update(model={"type": "Unigram", "unk_id": 0, "vocab": [5]})),
    "a long added token": edited(lambda d: d["added_tokens"][0].update(content="a" * 400_000)),
    "too many added tokens": edited(
        lambda d: d.update(added_tokens=[{"id": i, "content": "x"} for i in range(200_000)])
    ),
    "words as long as a book": edited(
        lambda d: d.update(model={"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**9})
    ),
    "a frame with copies of the text": edited(lambda d: d.update(post_processor=framed([text("A")] * 100))),
    "a frame with a second text": edited(lambda d: d.update(post_processor=framed([text("B")]))),
    "a frame of a million tokens": edited(
        lambda d: d.update(post_processor=framed([text("A"), special("x")], x=[0] * 10**6))
    ),
    "a frame in a frame": edited(
        lambda d: d.update(post_processor={"type": "Sequence", "processors": [framed([text("A")])] * 2})
    ),
    "a frame beyond the vocabulary": edited(
        lambda d: d.update(post_processor={"type": "BertProcessing", "sep": ["a", 10**6], "cls": ["a", 0]})
    ),
    "millions of values": "[" + "[]," * 5_000_001,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tokenizer_json_is_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """By one sentence, cheaply, and without a panic of the library, which would write to stderr by itself."""
    content = DAMAGED[name]
    (tmp_path / "tokenizer.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with cheap(), pytest.raises(TokenizerError, match=r"tokenizer\.json") as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(tmp_path))
    assert capfd.readouterr() == ("", "")


def test_a_damaged_character_map_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """SentencePiece's own map is read; with bytes of it changed it is read or refused, and never a panic."""
    data, honest = json.loads(tiny.unigram().to_str()), tiny.sentencepiece_charsmap()
    rng, texts = random.Random(0), ["ﷺ ½ Ａ １２ か\u3099 \u1e9b\u0323", "".join(map(chr, range(0x3000, 0x3400)))]
    refused = 0
    for n in range(60):
        damaged = bytearray(honest)
        for _ in range(n):
            damaged[rng.randrange(len(honest) if n % 2 else 4000)] = rng.randrange(256)
        encoded = base64.b64encode(damaged).decode()
        tiny.write_json(
            tmp_path / "tokenizer.json",
            data | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": encoded}},
        )
        try:
            tokenizer = load_tokenizer(tmp_path)
        except TokenizerError:
            assert n
            refused += 1
            continue
        for each in texts:
            tokenizer.encode(each)
    assert refused
    assert capfd.readouterr() == ("", "")


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"model": "\xff\xfe"}')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is not UTF-8"):
        load_tokenizer(tmp_path)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), junk=st.sampled_from([None, 0, -1, 2**70, "", "x", [], {}, [[]], True, 1.5]))
def test_any_value_replaced_loads_or_is_refused(tmp_path: Path, seed: int, junk: Any) -> None:
    """One value somewhere in the files becomes junk."""
    rng = random.Random(seed)
    data = copy.deepcopy(GOOD)
    data["post_processor"] = json.loads(PIECES.raw.post_processor.__getstate__())
    data["normalizer"] = {"type": "Sequence", "normalizers": [json.loads(PIECES.raw.normalizer.__getstate__())]}
    token = {"content": "<|im_end|>", "lstrip": False, "special": True}
    config = {
        "added_tokens_decoder": {"2": token},
        "eos_token": token,
        "extra_special_tokens": ["<|im_start|>"],
        "chat_template": [{"name": "default", "template": "x"}],
        "model_max_length": 10,
        "tokenizer_class": "GPT2Tokenizer",
    }
    files = {"tokenizer.json": data, "tokenizer_config.json": config}
    node: Any = files[rng.choice(list(files))]
    while True:
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.3:
            break
        node = node[key]
    node[key] = junk
    for name, content in files.items():
        tiny.write_json(tmp_path / name, content)
    try:
        tokenizer = load_tokenizer(tmp_path)
        tokenizer.decode(tokenizer.encode("the cat 🦊 </s>"))
    except TokenizerError:
        event("refused")


@pytest.mark.parametrize(
    ("files", "blamed"),
    [
        ({"tokenizer_config.json": "{"}, "tokenizer_config.json"),
        ({"tokenizer_config.json": {"eos_token": 5}}, "tokenizer_config.json"),
        ({"tokenizer_config.json": {"added_tokens_decoder": [1]}}, "tokenizer_config.json"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"x": {"content": "a"}}}}, "tokenizer_config.json"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"7": {"content": "<new>"}}}}, "<new>"),
        ({"tokenizer_config.json": {"chat_template": 5, "extra_special_tokens": [3]}}, "tokenizer_config.json"),
        ({"tokenizer_config.json": {"chat_template": {"default": 5}}}, "tokenizer_config.json"),
        ({"special_tokens_map.json": []}, "special_tokens_map.json"),
        ({"added_tokens.json": {"<new>": "one"}}, "added_tokens.json"),
        ({"added_tokens.json": {"<new>": 99999}}, "<new>"),
    ],
)
def test_damage_in_the_files_beside_it(tmp_path: Path, files: dict[str, Any], blamed: str) -> None:
    BYTES.raw.save(str(tmp_path / "tokenizer.json"))
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(TokenizerError, match=blamed):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "holds no tokenizer"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, r"merges\.txt merges 'a' and 'b', but has no token 'b'"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a a"}, r"merges\.txt merges 'a' and 'a', but has no token 'aa'"),
        ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, "gives the id 0 to both"),
        ({"vocab.json": "[]", "merges.txt": ""}, r"vocab\.json"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a"}, "not a pair"),
        ({"vocab.txt": "[UNK]\na\n"}, "has no cls token"),
        ({"source.spm": "", "target.spm": "", "vocab.json": "{}"}, "Marian"),
        ({"tokenizer.model": ""}, "SentencePiece"),
        ({"vocab.txt": "a", "tokenizer_config.json": '{"tokenizer_class": "EsmTokenizer"}'}, "EsmTokenizer"),
        (
            {"vocab.json": "{}", "merges.txt": "", "tokenizer_config.json": '{"tokenizer_class": "CLIPTokenizer"}'},
            "CLIPTokenizer",
        ),
    ],
)
def test_older_files(tmp_path: Path, files: dict[str, str], sentence: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=sentence):
        load_tokenizer(tmp_path)
    with pytest.raises(TokenizerError, match="is not a directory"):
        load_tokenizer(tmp_path / "nowhere")


def test_nothing_in_a_directory_is_imported(tmp_path: Path) -> None:
    BYTES.raw.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    config = {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "tokenizer_class": "Evil"}
    tiny.write_json(tmp_path / "tokenizer_config.json", config)
    assert load_tokenizer(tmp_path).encode("the cat") == BYTES.encode("the cat")


def test_ids_beyond_the_embedding() -> None:
    BYTES.check_vocab(BYTES.n_vocab)
    last = BYTES.n_vocab - 1
    with pytest.raises(TokenizerError, match=rf"^bytes gives .* the id {last}, but .* only {last} rows"):
        BYTES.check_vocab(last)


@pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("bad", [-1, 10**6, 2**31, 2**64, 1.5, "1", None])
def test_ids_that_are_no_tokens(tokenizer: Tokenizer, bad: Any) -> None:
    for work in (
        lambda: tokenizer.decode([0, bad]),
        lambda: tokenizer.token(bad),
        lambda: tokenizer.stream().push(bad),
    ):
        with pytest.raises(TokenizerError):
            work()


@pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "x" * 1000 + "\udc80"])
def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer, text: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: tokenizer.encode(text),
        lambda: tokenizer.encode(text, allow_control=True),
        lambda: tokenizer.encode_pair("a", text),
        lambda: tokenizer.encode_batch(["a", text]),
        lambda: tokenizer.encode_words(["a", text]),
        lambda: tokenizer.encode_with_offsets(text),
    ]
    for call in calls:
        with pytest.raises(TokenizerError, match=f"lone surrogate .* at position {len(text) - 1}"):
            call()


@pytest.mark.parametrize("bad", [None, 5, b"bytes", ["list"]])
def test_what_is_not_text(bad: Any) -> None:
    with pytest.raises(TokenizerError, match="Only text can be encoded"):
        BYTES.encode(bad)


@pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "👨‍👩‍👧‍👦", "\U0010ffff", "\ufeff", "\u202e", "\u0301" * 50, "\r\n", "\ufffd"]
)
def test_odd_characters_get_the_librarys_ids(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == tokenizer.raw.encode(text).ids


@pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("character", ["a", " ", "\n", "é"])
def test_a_megabyte_of_one_character_takes_linear_time(tokenizer: Tokenizer, character: str) -> None:
    def seconds(n: int) -> float:
        start = time.thread_time()
        tokenizer.encode(character * n)
        return time.thread_time() - start

    seconds(1000)
    assert seconds(400_000) < 12 * seconds(100_000) + 0.3  # quadratic would be sixteenfold


GGUF = gguf_vocab(BYTES)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": "sorcery"}, "of the kind 'sorcery'"),
        ({"model": 5}, "tokenizer.ggml.model"),
        ({"pre": "sorcery"}, "rule 'sorcery'"),
        ({"tokens": []}, "no tokens"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens"),
        ({"tokens": GGUF["tokenizer.ggml.tokens"] + ["the"]}, "tokenizer.ggml.token_type"),
        ({"tokens": ["the", *GGUF["tokenizer.ggml.tokens"][1:]]}, "'the' is in it twice"),
        ({"token_type": [1]}, "1 entries for"),
        ({"token_type": ["x"] * 5}, "tokenizer.ggml.token_type"),
        ({"merges": ["the zebra"]}, "no token 'zebra'"),
        ({"merges": ["! !"]}, "no token '!!'"),
        ({"merges": ["nospace"]}, "'nospace' is not two tokens"),
        ({"merges": ["a b c"]}, "'a b c' is not two tokens"),
        ({"eos_token_id": 10**6}, "eos_token_id: 1000000 is beyond"),
        ({"eos_token_id": -1}, "eos_token_id: -1 is beyond"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"add_bos_token": True}, "adds a bos token"),
        ({"add_bos_token": 1}, "add_bos_token"),
        ({"model": "llama"}, "without scores"),
        ({"tokens": ["a" * 400_000, *GGUF["tokenizer.ggml.tokens"][1:]]}, "400,000 characters"),
    ],
)
def test_damaged_gguf_metadata(change: dict[str, Any], sentence: str) -> None:
    metadata = GGUF | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(TokenizerError, match=sentence) as caught:
        tokenizer_from_gguf(metadata, "model.gguf")
    assert "model.gguf" in str(caught.value)


def test_gguf_metadata_without_its_keys() -> None:
    with pytest.raises(TokenizerError, match=r"^model\.gguf has a tokenizer of the kind None"):
        tokenizer_from_gguf({}, "model.gguf")
    for key in ("scores", "tokens"):
        partial = {k: v for k, v in SPM_METADATA.items() if not k.endswith(key)}
        with pytest.raises(TokenizerError, match=key):
            tokenizer_from_gguf(partial, "model.gguf")


def test_a_special_token_nobody_has() -> None:
    with pytest.raises(TokenizerError, match="names '<none>' as its eos token"):
        Tokenizer(tiny.byte_level(), specials={"eos": "<none>"})


def test_a_vocabulary_of_one_letters_repetitions_is_refused_cheaply() -> None:
    """Every piece can be made in as many ways as it has letters, and each way has its letters: cubic in the longest."""
    tokens = ["a" * n for n in range(1, 2601)]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
    }
    with cheap(), pytest.raises(TokenizerError, match=r"model\.gguf has pieces so long"):
        tokenizer_from_gguf(metadata, "model.gguf")


def test_the_last_of_many_tokens_doubled_is_found_at_once() -> None:
    tokens = [f"token {i}" for i in range(60_000)]
    metadata = GGUF | {"tokenizer.ggml.tokens": [*tokens, tokens[-1]]}
    del metadata["tokenizer.ggml.token_type"]
    with cheap(), pytest.raises(TokenizerError, match="'token 59999' is in it twice"):
        tokenizer_from_gguf(metadata, "model.gguf")


def test_many_added_tokens_are_refused_or_take_linear_time(tmp_path: Path) -> None:
    files = {
        "tokenizer_config.json": {
            "added_tokens_decoder": {str(400 + i): {"content": f"<{i}>"} for i in range(140_000)}
        },
        "added_tokens.json": {f"<{i}>": 400 + i for i in range(140_000)},
        "special_tokens_map.json": {"additional_special_tokens": [f"<{i}>" for i in range(140_000)]},
    }
    for name, content in files.items():
        folder = tmp_path / name
        folder.mkdir()
        BYTES.raw.save(str(folder / "tokenizer.json"))
        tiny.write_json(folder / name, content)
        with cheap(), pytest.raises(TokenizerError, match=r"140,000 added tokens; 131,072 are allowed"):
            load_tokenizer(folder)
