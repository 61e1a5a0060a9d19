"""Configurations nobody should have written: refused in a sentence that names the key, quickly and without allocating.

Everything goes through `regard.load`, with the weights of a tiny model beside the bad configuration.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard
from hostile import cheap, refusal
from regard.errors import ConfigError
from regard.model.build import build, parameters_of
from regard.model.registry import family_of, spec_of
from regard.store import open_model as opening
from regard.store.save_model import ModelFiles, planned, save_directory

BEYOND_FLOAT = "a number that JSON can write and a float cannot hold"
VASWANI = {
    "model_type": "vaswani",
    "src_vocab_size": 31,
    "tgt_vocab_size": 43,
    "d_model": 20,
    "max_position_embeddings": 40,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 37 for side in ("encoder", "decoder")},
}
GRU = {"model_type": "gru", "d_model": 12, "hidden_size": 10, "vocab_size": 31, "max_position_embeddings": 40}
SEQ2SEQ_SIZES = ["d_model", "max_position_embeddings"] + [
    f"{side}_{size}" for side in ("encoder", "decoder") for size in ("layers", "attention_heads", "ffn_dim")
]
BERT_SIZES = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
BERT_SIZES += ["max_position_embeddings"]
LLAMA_SIZES = [*BERT_SIZES, "num_key_value_heads"]
SIZES = {
    "gpt2": ["n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "n_inner"],
    "bert-classify": [*BERT_SIZES],
    "roberta-mlm": BERT_SIZES,
    "bart": [*SEQ2SEQ_SIZES, "vocab_size"],
    "marian": [*SEQ2SEQ_SIZES, "vocab_size", "decoder_vocab_size"],
    "m2m_100": [*SEQ2SEQ_SIZES, "vocab_size"],
    "llama3": [*LLAMA_SIZES, "head_dim"],
    "mistral": [*LLAMA_SIZES, "sliding_window"],
    "qwen2": [*LLAMA_SIZES, "sliding_window"],
    "vaswani": [*SEQ2SEQ_SIZES, "src_vocab_size", "tgt_vocab_size"],
    "gru": ["d_model", "hidden_size", "vocab_size", "max_position_embeddings"],
}
NO_SIZES: list[Any] = [10**9, -1, "12", "", True, 1.5, 12.0, [12], {}, 10**400, BEYOND_FLOAT]


@pytest.fixture(scope="module")
def original(saved: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A directory that loads."""
    ours = {name: tmp_path_factory.mktemp(name) for name in ("vaswani", "gru")}  # transformers does not know them
    for config in (VASWANI, GRU):
        name, spec = str(config["model_type"]), spec_of(config)
        save_directory(ours[name], ModelFiles(parameters_of(build(spec)), spec, family_of(name), config))
    return lambda name: ours[name] if name in ours else saved(name)


Original = Callable[[str], Path]


@pytest.fixture
def load_with(original: Original, tmp_path: Path) -> Callable[..., regard.Model]:
    """The model with some keys of its configuration changed."""

    def load(name: str, changes: dict[str, Any] | None = None, without: str = "", **more: Any) -> regard.Model:
        return regard.load(changed(original(name), tmp_path, {**(changes or {}), **more}, without))

    return load


LoadWith = Callable[..., regard.Model]


def changed(source: Path, directory: Path, changes: dict[str, Any], without: str = "") -> Path:
    config = json.loads((source / "config.json").read_text()) | changes
    config.pop(without, None)
    text = json.dumps(config).replace(f'"{BEYOND_FLOAT}"', "1e999")
    (directory / "config.json").write_text(text)
    weights = directory / "model.safetensors"
    weights.unlink(missing_ok=True)
    weights.symlink_to(source / "model.safetensors")
    return directory


@pytest.mark.parametrize("name", SIZES)
def test_the_originals_load(original: Original, tmp_path: Path, name: str) -> None:
    assert refusal(changed(original(name), tmp_path, {})) == ""


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in SIZES.items() for key in keys])
def test_no_size(load_with: LoadWith, name: str, key: str) -> None:
    changes = {"use_sliding_window": True} if name == "qwen2" else {}
    wrong = NO_SIZES if key == "head_dim" else [*NO_SIZES, 0]  # Llama: a head_dim of 0 is as good as none
    for value in wrong:
        with cheap(), pytest.raises(ConfigError, match=rf"config\.json: {key} is .*, but must be a whole number") as no:
            load_with(name, changes, **{key: value})
        assert len(str(no.value)) < 500
        assert "\n" not in str(no.value)


LEARNED = ("bert-classify", "roberta-mlm", "bart")  # have a table of positions; the others compute them


def is_free(name: str, key: str, value: int) -> bool:
    """Whether no tensor has this size: the window, positions that are computed, and heads that divide a width of 24."""
    if key == "max_position_embeddings":
        return name not in LEARNED
    heads = key.endswith(("attention_heads", "n_head"))
    return key == "sliding_window" or (heads and value == 6 and name != "vaswani")  # whose width is 20


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in SIZES.items() for key in keys])
def test_a_size_that_the_weights_do_not_have(original: Original, tmp_path: Path, name: str, key: str) -> None:
    """The largest that is believed at all, and some that are merely wrong: held against the file before it is read."""
    for value in (10_000_000, 1000, 6):
        said = refusal(changed(original(name), tmp_path, {key: value}))
        assert (said == "") == is_free(name, key, value), (value, said)


NUMBERS = {
    "gpt2": ["layer_norm_epsilon", "attn_pdrop", "resid_pdrop", "embd_pdrop", "initializer_range"],
    "bert-classify": ["layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"],
    "bart": ["dropout", "attention_dropout", "activation_dropout", "init_std"],
    "llama3": ["rms_norm_eps", "attention_dropout", "initializer_range"],
    "vaswani": ["layer_norm_eps", "dropout"],
}
NO_NUMBERS: list[Any] = ["0.1", True, [0.1], {}, -0.1, 10**400, BEYOND_FLOAT]


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in NUMBERS.items() for key in keys])
def test_no_number(load_with: LoadWith, name: str, key: str) -> None:
    for value in NO_NUMBERS:
        with cheap(), pytest.raises(ConfigError, match=rf"config\.json: {key} is .*, but must be a number from 0"):
            load_with(name, {key: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_not_even_json(load_with: LoadWith, value: float) -> None:
    with pytest.raises(ConfigError, match=r"config\.json, the model's configuration, is not valid JSON: (NaN|-?Inf)"):
        load_with("llama3", rms_norm_eps=value)


ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"model_type": "gpt5"}, "model_type is 'gpt5', but this package knows gpt2, bert"),
    ("gpt2", {"model_type": None}, "model_type is None"),
    ("gpt2", {"model_type": ["gpt2"]}, r"model_type is \['gpt2'\]"),
    ("gpt2", {"model_type": "x" * 10_000}, "model_type is 'x{79}…, but"),
    ("gpt2", {"architectures": ["GPT2ForSequenceClassification"]}, "architecture 'GPT2ForSeq.* is not implemented"),
    ("llama3", {"architectures": ["LlamaForTokenClassification"]}, "architecture 'LlamaFor.* there are …ForCausalLM"),
    ("bert-classify", {"architectures": ["BertForQuestionAnswering"]}, "BertForQuestionAnswering' is not implemented"),
    ("bart", {"architectures": ["BartForQuestionAnswering"]}, "BartForQuestionAnswering' is not implemented"),
    ("bart", {"architectures": "BartForConditionalGeneration"}, "architectures is .* must be a list of names"),
    ("bert-classify", {"architectures": [3]}, r"architectures is \[3\], but must be a list of names"),
    ("bert-classify", {"architectures": {"0": "BertModel"}}, "architectures is .* must be a list of names"),
    ("gpt2", {"n_head": 5}, "A width of 24 cannot be divided among 5 heads"),
    ("bart", {"encoder_attention_heads": 5}, "A width of 24 cannot be divided among 5 heads"),
    ("vaswani", {"decoder_attention_heads": 3}, "A width of 20 cannot be divided among 3 heads"),
    ("llama3", {"num_key_value_heads": 4}, "6 query heads, which do not divide into 4 key/value heads"),
    ("llama3", {"num_key_value_heads": 12}, "6 query heads, which do not divide into 12 key/value heads"),
    ("llama3", {"head_dim": 5}, "Rotary positions rotate pairs of numbers, but the decoder's heads have d_k = 5"),
    ("llama3", {"num_attention_heads": 9_000_000, "head_dim": 10_000}, "9,000,000 heads of 10,000 numbers"),
    ("gpt2", {"activation_function": "mish"}, "activation_function is 'mish', but must be one of gelu, gelu_new"),
    ("llama3", {"hidden_act": 7}, "hidden_act is 7, but must be one of"),
    ("bert-classify", {"hidden_act": ["gelu"]}, "hidden_act is .* but must be one of"),
    ("vaswani", {"activation_function": ""}, "activation_function is '', but must be one of"),
    ("vaswani", {"position_style": "random"}, "position_style is 'random', but must be one of paper, fairseq"),
    ("vaswani", {"share_all_embeddings": True}, "must be false when the two vocabularies differ"),
    ("gpt2", {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', but must be true or false"),
    ("gpt2", {"scale_attn_weights": 1}, "scale_attn_weights is 1, but must be true or false"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True, but must be false"),
    ("bert-classify", {"is_decoder": True}, "is_decoder is True, but must be false"),
    ("bert-classify", {"position_embedding_type": "relative_key"}, "must be absolute"),
    ("bert-classify", {"type_vocab_size": -1}, "type_vocab_size is -1"),
    ("llama3", {"rope_parameters": "fast"}, "rope_parameters must be an object"),
    ("llama3", {"rope_parameters": [1]}, "rope_parameters must be an object"),
    ("llama3", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn', but must be one of default, linear"),
    ("llama3", {"rope_parameters": {"rope_type": None, "type": 4}}, "type is 4, but must be one of"),
    ("llama3", {"rope_parameters": {**ROPE, "factor": 0}}, "factor is 0, but must be a number from 1e-06"),
    ("llama3", {"rope_parameters": {**ROPE, "factor": "8"}}, "factor is '8'"),
    ("llama3", {"rope_parameters": {**ROPE, "low_freq_factor": 4.0}}, "low_freq_factor is 4.0, but must be below"),
    ("llama3", {"rope_parameters": {**ROPE, "rope_theta": -1}}, "rope_theta is -1"),
    (
        "llama3",
        {"rope_parameters": {**ROPE, "original_max_position_embeddings": 0}},
        "original_max_position_embeddings",
    ),
    ("llama3", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5, but must be 1"),
    ("llama3", {"rope_parameters": None, "rope_theta": "big"}, "rope_theta is 'big'"),
    ("llama3", {"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}, "type is 'dynamic'"),
    ("qwen2", {"layer_types": ["sliding_attention"]}, "layer_types is .* must be a list of 3 names"),
    ("qwen2", {"layer_types": "sliding_attention"}, "layer_types is .* must be a list of 3 names"),
    ("qwen2", {"use_sliding_window": "no"}, "use_sliding_window is 'no', but must be true or false"),
    ("qwen2", {"layer_types": None, "max_window_layers": -1}, "max_window_layers is -1"),
    ("bert-classify", {"id2label": {"0": "a", "2": "b"}}, "id2label is .* the classes 0, 1, 2, … without a gap"),
    ("bert-classify", {"id2label": {"a": "b"}}, "id2label is"),
    ("bert-classify", {"id2label": ["a", "b", "c"]}, "id2label is"),
    ("bert-classify", {"id2label": {}}, "id2label is"),
    ("bert-classify", {"id2label": 3}, "id2label is 3"),
    ("bert-classify", {"id2label": None, "num_labels": 10**7}, "num_labels is 10000000"),
    ("bert-classify", {"id2label": None, "num_labels": "3"}, "num_labels is '3'"),
    ("llama3", {"eos_token_id": "2"}, "eos_token_id is '2', but must be a token id"),
    ("llama3", {"eos_token_id": [2, None]}, r"eos_token_id is \[2, None\]"),
    ("llama3", {"pad_token_id": 1.0}, "pad_token_id is 1.0"),
    ("llama3", {"pad_token_id": 67}, "pad_token_id is 67, but the vocabulary ends at 66"),
    ("roberta-mlm", {"pad_token_id": 10**9}, "max_position_embeddings is 40, but must be a whole number from"),
    ("bart", {"decoder_start_token_id": 61}, "decoder_start_token_id is 61, but the vocabulary ends at 60"),
]


@pytest.mark.parametrize(
    ("name", "changes", "says"), REFUSED, ids=[f"{n}-{'-'.join(c)}-{i}" for i, (n, c, _) in enumerate(REFUSED)]
)
def test_refused_by_name(load_with: LoadWith, name: str, changes: dict[str, Any], says: str) -> None:
    with cheap(), pytest.raises(ConfigError, match=says) as refusal:
        load_with(name, changes)
    assert len(str(refusal.value)) < 500


def test_what_is_missing(load_with: LoadWith) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: model_type is None, but this package knows"):
        load_with("gpt2", without="model_type")
    with pytest.raises(ConfigError, match=r"config\.json lacks src_vocab_size, without which"):
        load_with("vaswani", without="src_vocab_size")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ("[]", "holds a list instead of an object"),
        ('{"n_head": 3, "n_head": 3}', "the key 'n_head' is given twice"),
        ('{"a": ' * 100 + "1" + "}" * 100, "nested more than 64 deep"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "nested more than 64 deep"),
        ('{"a": ' + "1" * 5000 + "}", "is not valid JSON"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_configuration(original: Original, tmp_path: Path, text: str, says: str) -> None:
    changed(original("gpt2"), tmp_path, {})
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with cheap(), pytest.raises(ConfigError, match=says):
        regard.load(tmp_path)


@pytest.mark.parametrize(
    ("pooling", "length", "says"),
    [
        ({}, {}, "asks for a pooling that is not implemented; there are mean, cls and max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, {}, "pooling that is not implemented"),
        ({"pooling_mode_cls_token": True}, {"max_seq_length": -1}, "max_seq_length is -1, but must be a whole number"),
        ({"pooling_mode_cls_token": True}, {"max_seq_length": "256"}, "max_seq_length is '256'"),
    ],
)
def test_a_sentence_encoder_that_pools_impossibly(
    original: Original, tmp_path: Path, pooling: dict[str, Any], length: dict[str, Any], says: str
) -> None:
    changed(original("bert-classify"), tmp_path, {})
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(length))
    with pytest.raises(ConfigError, match=says):
        regard.load(tmp_path)


def test_memory_is_estimated_before_anything_is_read(load_with: LoadWith, monkeypatch: pytest.MonkeyPatch) -> None:
    n = sum(p.numel() for p in load_with("gpt2").net.parameters())
    monkeypatch.setattr("regard.store.network.fill", lambda *_: pytest.fail("weights were read"))
    monkeypatch.setattr(opening, "available_memory", lambda: 4 * n - 1)
    with pytest.raises(ConfigError, match=r"the model needs 0\.0 GB of memory, but 0\.0 GB are free; use a smaller"):
        load_with("gpt2")


def test_half_the_precision_needs_half_the_memory(original: Original, monkeypatch: pytest.MonkeyPatch) -> None:
    n = sum(p.numel() for p in regard.load(original("gpt2")).net.parameters())
    monkeypatch.setattr(opening, "available_memory", lambda: 4 * n - 1)
    with pytest.raises(ConfigError, match="GB of memory"):
        regard.load(original("gpt2"))
    assert {p.dtype for p in regard.load(original("gpt2"), dtype="bfloat16").net.parameters()} == {torch.bfloat16}
    monkeypatch.setattr(opening, "available_memory", lambda: None)  # a system that does not tell
    assert sum(p.numel() for p in regard.load(original("gpt2")).net.parameters()) == n


def test_a_model_that_can_be_mapped_but_not_held(tmp_path: Path) -> None:
    """A file of half precision, all of it a hole, that agrees with its configuration; in float32 it would not fit."""
    free = opening.available_memory()
    if free is None:
        pytest.skip("this system does not say how much memory is free")
    config: dict[str, Any] = {"model_type": "gpt2", "vocab_size": 10, "n_head": 1, "n_layer": 1, "n_inner": 1}
    config |= {
        "n_embd": math.isqrt(free // 12),
        "n_positions": 1,
    }  # 4 d² numbers of two bytes: two thirds of the memory
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = spec_of(config)
    with torch.device("meta"):
        net = build(spec)
    header, at = {}, 0
    for plan in planned(family_of("gpt2").table(config, spec), parameters_of(net), spec, lambda *_: "F16"):
        end = at + 2 * math.prod(plan.shape)
        header[plan.name], at = {"dtype": "F16", "shape": plan.shape, "data_offsets": [at, end]}, end
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        try:
            file.truncate(8 + len(text) + at)
        except OSError:
            pytest.skip("no file can be that long here, not even an empty one")
    with (
        cheap(),
        pytest.raises(ConfigError, match=r"the model needs .* GB of memory, but .* use a smaller model or dtype"),
    ):
        regard.load(tmp_path)


# ── anything at all ──────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = ["", "gelu", "default", "linear", "gpt2", "\ud800", "x" * 1000, BEYOND_FLOAT]
PLAIN = [None, True, False, 0, 1, 2, 3, -1, 10**6, 10**7, 10**9, 2**63, 10**400, 0.0, 0.5, 1e300]
HOSTILE = st.one_of(
    st.sampled_from([*WORDS, *PLAIN, [], {}, [0], [None], {"0": 1}]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.recursive(st.none() | st.integers(-2, 100) | st.text(max_size=3), st.lists, max_leaves=4),
    st.dictionaries(
        st.sampled_from(["rope_type", "factor", "rope_theta", "0"]), st.integers(-1, 9) | st.text(max_size=3)
    ),
)
KEYS = [
    "rope_scaling",
    "rope_theta",
    "layer_types",
    "num_labels",
    "id2label",
    "architectures",
    "model_type",
    "num_beams",
]
KEYS += [
    "eos_token_id",
    "bos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "bad_words_ids",
]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", SIZES)
def test_anything_loads_or_is_refused(original: Original, tmp_path: Path, name: str, data: st.DataObject) -> None:
    source = original(name)
    keys = [*json.loads((source / "config.json").read_text()), *KEYS]
    changes = data.draw(st.dictionaries(st.sampled_from(keys), HOSTILE, min_size=1, max_size=3))
    refusal(changed(source, tmp_path, changes))
