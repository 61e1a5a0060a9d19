"""Every key of config.json, changed: the model changes as `transformers` changes it, or is refused; never in silence.

For each base a tiny random model is made by `transformers` from the changed configuration, its weights are saved beside the
very JSON with the change, and what opens here must compute the same. One change in four by default, always the same ones;
REGARD_ALL_CONFIG_KEYS=1 tries all of them.
"""

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers as hf

import tiny
from against_transformers import judged
from regard.model.registry import FAMILIES, spec_of

ABSENT = "(not there)"
SHARE = 1 if os.environ.get("REGARD_ALL_CONFIG_KEYS") else 4  # of so many changes, one is tried

LLAMA = {**tiny.LLAMA, "bos_token_id": 0, "eos_token_id": 2}
GPT2 = {
    "vocab_size": 71,
    "n_positions": 40,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
BERT = {**tiny.BERT, "num_hidden_layers": 2}
ROBERTA = {**BERT, **tiny.SPECIAL, "type_vocab_size": 1}
BART = {**tiny.BART, "encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 2}
MARIAN = {**BART, "pad_token_id": 60, "eos_token_id": 0, "decoder_start_token_id": 60}

BASES: dict[str, tuple[type[hf.PreTrainedModel], dict[str, Any]]] = {
    "gpt2": (hf.GPT2LMHeadModel, GPT2),
    "bert": (hf.BertModel, BERT),
    "bert-mlm": (hf.BertForMaskedLM, BERT),
    "bert-classify": (hf.BertForSequenceClassification, {**BERT, "num_labels": 3}),
    "bert-tag": (hf.BertForTokenClassification, {**BERT, "num_labels": 3}),
    "roberta-mlm": (hf.RobertaForMaskedLM, ROBERTA),
    "roberta-classify": (hf.RobertaForSequenceClassification, {**ROBERTA, "num_labels": 3}),
    "xlm-roberta-tag": (hf.XLMRobertaForTokenClassification, {**ROBERTA, "num_labels": 3}),
    "bart": (hf.BartForConditionalGeneration, BART),
    "bart-classify": (hf.BartForSequenceClassification, {**BART, "num_labels": 3}),
    "mbart": (hf.MBartForConditionalGeneration, BART),
    "marian": (hf.MarianMTModel, MARIAN),
    "m2m_100": (hf.M2M100ForConditionalGeneration, BART),
    "llama": (hf.LlamaForCausalLM, {**LLAMA, "num_key_value_heads": 2}),
    "llama3": (hf.LlamaForCausalLM, {**LLAMA, "rope_parameters": tiny.LLAMA3_ROPE}),
    "mistral": (hf.MistralForCausalLM, {**LLAMA, "num_key_value_heads": 2, "sliding_window": 5}),
    "qwen2": (hf.Qwen2ForCausalLM, {**LLAMA, "num_key_value_heads": 2}),
    "qwen2-window": (
        hf.Qwen2ForCausalLM,
        {**LLAMA, "num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
}

ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python", "quick_gelu", "relu", "relu2"]
ACTIVATIONS += ["silu", "swish", "tanh", "mish"]
ROPE = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
WORDS: dict[str, list[Any]] = {
    "hidden_act": ACTIVATIONS,
    "activation_function": ACTIVATIONS,
    "problem_type": ["regression", "single_label_classification", "multi_label_classification"],
    "dtype": ["float32"],  # in others the two round differently
    "architectures": [],
    "model_type": [],
    "transformers_version": ["4.0.0"],
    "id2label": [{"0": "A", "1": "B"}, {"0": "A"}],
    "rope_parameters": [
        ROPE,
        {"rope_type": "default", "rope_theta": 300.0},
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
        {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        {**tiny.LLAMA3_ROPE, "factor": 2.0},
        {**tiny.LLAMA3_ROPE, "attention_factor": 3.0},
    ],
    "layer_types": [["full_attention"] * 3, ["sliding_attention"] * 3, ["sliding_attention", "full_attention"] * 2],
}
# Keys that a class does not write but a file may hold: old ones, other families' and other names of the same setting.
STRANGE: dict[str, list[Any]] = {
    "is_causal": [False, True, None],
    "is_decoder": [True],
    "add_cross_attention": [True],
    "pruned_heads": [{}, {"0": [1]}],
    "tie_encoder_decoder": [True],
    "position_embedding_type": ["absolute", "relative_key"],
    "hidden_size": [48],
    "num_hidden_layers": [1],
    "num_attention_heads": [1],
    "max_position_embeddings": [30],
    "n_ctx": [7],
    "n_embd": [48],
    "num_labels": [2],
    "head_dim": [10, None],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "sliding_window": [3, None],
    "use_sliding_window": [True, False],
    "layer_types": WORDS["layer_types"],
    "rope_theta": [77.0],
    "rope_scaling": [{"type": "linear", "factor": 4.0}, {"rope_type": "yarn", "factor": 2.0}, {}, None],
    "partial_rotary_factor": [0.5, 1.0],
    "rope_interleaved": [True, False],
    "normalize_before": [True, False],
    "normalize_embedding": [True, False],
    "add_final_layer_norm": [True, False],
    "static_position_embeddings": [True, False],
    "share_encoder_decoder_embeddings": [False, True],
    "decoder_vocab_size": [47, None],
    "attention_k_eq_v": [True],
    "logit_scale": [2.0],
    "attention_chunk_size": [3],
    "num_kv_shared_layers": [1],
    "per_layer_config": [{"0": {"intermediate_size": 3}}],
    "temperature": [0.1],
    "torch_dtype": ["float32"],
}


def others(key: str, value: Any) -> list[Any]:
    """What else might stand there."""
    if key in WORDS:
        return [*WORDS[key], None, ABSENT]
    if key.endswith("_token_id"):
        return [3, None, ABSENT]
    if isinstance(value, bool):
        return [not value, None, ABSENT]
    if isinstance(value, int):
        return [2 * value, 1, 0, None, ABSENT]
    if isinstance(value, float):
        return [0.5, 0.0, None, ABSENT]
    return [True, 2, ABSENT] if value is None else [None, ABSENT]


def base(name: str) -> dict[str, Any]:
    """All that the class writes, as JSON."""
    model_class, settings = BASES[name]
    config = json.loads(json.dumps(model_class.config_class(**settings).to_dict(), default=str))
    return config | {"architectures": [model_class.__name__]}


def changes(name: str) -> Iterator[tuple[str, Any]]:
    config = base(name)
    yield from ((key, value) for key in config for value in others(key, config[key]) if value != config[key])
    yield from ((key, value) for key, values in STRANGE.items() if key not in config for value in values)


# Whatever share is tried: these were ignored once.
ALWAYS = {"is_causal", "rope_scaling", "rope_theta", "hidden_size", "num_hidden_layers", "num_attention_heads"}
ALWAYS |= {"max_position_embeddings", "pad_token_id", "tie_word_embeddings", "attention_k_eq_v"}


def sampled(name: str) -> list[tuple[str, Any]]:
    """The same ones in every run."""
    return [
        (key, value)
        for key, value in changes(name)
        if key in ALWAYS or zlib.crc32(f"{name} {key} {value}".encode()) % SHARE == 0
    ]


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    return {k: v for k, v in {**config, key: value}.items() if v != ABSENT}


@pytest.mark.parametrize("name", BASES)
def test_no_key_changes_the_network_in_silence(name: str, tmp_path: Path) -> None:
    model_class, config = BASES[name][0], base(name)
    assert judged(model_class, config, tmp_path) == "same"
    verdicts = {
        f"{key} = {value}": judged(model_class, changed(config, key, value), tmp_path) for key, value in sampled(name)
    }
    assert {"same", "refused"} <= {verdict.partition(":")[0] for verdict in verdicts.values()}
    assert not {
        change: verdict
        for change, verdict in verdicts.items()
        if verdict not in ("same", "not there") and not verdict.startswith("refused")
    }


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if name not in ("vaswani", "gru")])
def test_a_missing_key_means_what_it_means_there(model_type: str) -> None:
    config = json.loads(json.dumps(hf.CONFIG_MAPPING[model_type]().to_dict(), default=str))
    begins: dict[str, Any] = {"bos_id": None, "start_id": None}  # which are the generation settings' matter
    assert replace(spec_of({"model_type": model_type}), **begins) == replace(spec_of(config), **begins)
