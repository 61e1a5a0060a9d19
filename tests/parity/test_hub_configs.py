"""The config.json files that are about, with all of their keys and small sizes: they open as the models they are there.

`data/hub_configs.json` has a line for each.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import regard
from against_transformers import Json, judged
from regard.errors import ConfigError
from regard.model.registry import spec_of

FILES: dict[str, Json] = json.loads((Path(__file__).parents[1] / "data" / "hub_configs.json").read_text())
COMMON = FILES.pop("common")  # what PretrainedConfig itself wrote when asked for all of it, before version 5


def class_of(config: Json) -> type[hf.PreTrainedModel]:
    return getattr(hf, config["architectures"][0])


def as_float32(config: Json) -> Json:
    """Both compute in float32: what is compared is the network, not its rounding."""
    return {key: "float32" if key in ("torch_dtype", "dtype") else value for key, value in config.items()}


@pytest.mark.parametrize("name", FILES)
def test_opens_and_agrees(name: str, tmp_path: Path) -> None:
    config = FILES[name]
    assert judged(class_of(config), as_float32(config), tmp_path) == "same"


@pytest.mark.parametrize(
    "name", ["gpt2", "bert-base-uncased", "roberta-base", "Llama-2", "Mistral-7B-v0.1", "Qwen2.5-0.5B"]
)
def test_with_all_that_pretrained_config_wrote(name: str, tmp_path: Path) -> None:
    config = FILES[name]
    assert judged(class_of(config), {**COMMON, "is_encoder_decoder": False, **as_float32(config)}, tmp_path) == "same"


@pytest.mark.parametrize("name", ["bart-base", "mbart-large-cc25", "opus-mt", "nllb"])
def test_encoder_decoders_with_all_that_pretrained_config_wrote(name: str, tmp_path: Path) -> None:
    config = FILES[name]
    assert judged(class_of(config), {**COMMON, "is_encoder_decoder": True, **as_float32(config)}, tmp_path) == "same"


@pytest.mark.parametrize("name", FILES)
def test_what_is_saved_opens_again(name: str, tmp_path: Path) -> None:
    config = FILES[name]
    assert judged(class_of(config), as_float32(config), tmp_path) == "same"
    first = regard.load(tmp_path)
    again = regard.load(first.save(tmp_path / "copy"))
    assert again.spec == first.spec
    assert (
        spec_of(json.loads((tmp_path / "copy" / "config.json").read_text()), names=again.opened.file.names)
        == first.spec
    )


SEQ2SEQ = ["bart-base", "bart-large-mnli", "mbart-large-cc25", "opus-mt", "opus-mt-two-vocabularies", "nllb"]


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_untied_encoder_decoders(name: str, tmp_path: Path) -> None:
    """Both embeddings and the unembedding are tensors of their own; transformers' `shared` is in the file and unused."""
    config = as_float32(FILES[name]) | {"tie_word_embeddings": False}
    assert judged(class_of(config), config, tmp_path) == "same"
    model = regard.load(tmp_path)
    assert model.spec.tied == ()
    ids = list(range(6, 15))
    again = regard.load(model.save(tmp_path / "copy"))
    inputs = ([ids],) if name == "bart-large-mnli" else ([ids], [ids])
    torch.testing.assert_close(again(*inputs), model(*inputs), rtol=0, atol=1e-6)


def test_either_of_two_places_for_rotary_settings(tmp_path: Path) -> None:
    """Old and new key in one file: transformers takes the old one unless it is empty, and so does this package."""
    config = as_float32(FILES["Llama-2"])
    new = {"rope_type": "default", "rope_theta": 300.0}
    for old, theta in (
        ({"type": "linear", "factor": 4.0}, None),
        ({"type": "linear", "factor": 4.0}, 77.0),
        ({}, 77.0),
    ):
        config |= {"rope_parameters": new, "rope_scaling": old, **({"rope_theta": theta} if theta else {})}
        assert judged(class_of(config), config, tmp_path) == "same"


ALIASES = [("gpt2", key) for key in ("hidden_size", "num_attention_heads", "max_position_embeddings")]
ALIASES += [
    (name, key)
    for name in ("bart-base", "mbart-large-cc25", "opus-mt", "nllb")
    for key in ("hidden_size", "num_attention_heads", "num_hidden_layers")
]
REFUSED: list[tuple[str, Json, str]] = [
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True, but must be false"),
    ("gpt2", {"num_hidden_layers": 1}, "n_layer is 2, but num_hidden_layers is 1; they are names of one setting"),
    (
        "gpt2",
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        "has a quantization_config, and such checkpoints",
    ),
    ("gpt2", {"is_causal": False}, "is_causal is False, but must be true"),
    ("Llama-2", {"is_causal": False}, "is_causal is False, but must be true"),
    ("bert-base-uncased", {"is_causal": True}, "is_causal is True, but must be false"),
    ("bart-base", {"is_causal": True}, "is_causal is True, but must be left out"),
    ("nllb", {"is_causal": None}, "is_causal is None, but must be left out"),
    *((name, {alias: 48}, f"but {alias} is 48; they are names of one setting") for name, alias in ALIASES),
    ("nllb", {"pad_token_id": None}, "pad_token_id is None, but must be a token id: positions are counted from it"),
    ("roberta-base", {"pad_token_id": -1}, "pad_token_id is -1, but must be a token id"),
    ("bert-base-uncased", {"position_embedding_type": "relative_key"}, "position_embedding_type .* must be absolute"),
    ("bert-base-uncased", {"pruned_heads": {"0": [1]}}, "pruned_heads is .*, but must be {}"),
    ("bert-classifier", {"problem_type": "multi_label_classification"}, "problem_type is 'multi_label_classification'"),
    ("bert-classifier", {"problem_type": "regression"}, "problem_type is 'regression'"),
    ("bert-classifier", {"id2label": {"0": "LABEL_0"}}, "has one label, so its output is a score"),
    ("bert-classifier", {"num_labels": 3}, "num_labels is 3, but must be 2, as many as id2label names"),
    ("bart-base", {"normalize_before": True}, "normalize_before is True, but must be false"),
    ("opus-mt", {"decoder_vocab_size": 63}, "decoder_vocab_size is 63, but must be 61"),
    ("Llama-2", {"rope_interleaved": True}, "rope_interleaved is True, but must be false"),
    (
        "Llama-2",
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        "type is 'yarn', but must be one of default, linear",
    ),
    ("Llama-2", {"rope_scaling": {"type": "linear", "factor": 2.0, "attention_factor": 2.0}}, "has 'attention_factor'"),
    ("Llama-2", {"attention_k_eq_v": True}, "has 'attention_k_eq_v', which this version does not know; it may change"),
    ("Llama-2", {"num_local_experts": 8, "num_experts_per_tok": 2}, "has 'num_local_experts' and 1 more"),
    ("Llama-2", {"sliding_window": 4096}, "sliding_window is 4096, but must be null"),
    ("Mistral-7B-v0.1", {"attention_bias": True}, "attention_bias is True, but must be false"),
    ("Mistral-7B-v0.1", {"layer_types": ["full_attention", "sliding_attention"]}, "must be sliding_attention in each"),
    ("Qwen2.5-0.5B", {"use_mrope": True}, "use_mrope is True, but must be false"),
]


@pytest.mark.parametrize(("name", "changes", "says"), REFUSED, ids=[f"{n}-{'-'.join(c)}" for n, c, _ in REFUSED])
def test_refused_by_name(name: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        spec_of({**FILES[name], **changes})
