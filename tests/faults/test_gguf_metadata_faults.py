"""GGUF files that are whole but say impossible things about the model: loaded, or refused in a sentence."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard
import tiny_tokenizers
from hostile import refusal
from regard.errors import ConfigError
from regard.model.build import build, parameters_of
from regard.model.registry import family_of, spec_of
from regard.store.gguf import read_gguf
from regard.store.gguf_write import write_gguf
from regard.store.named_tensors import Planned
from regard.store.save_model import ModelFiles, save_gguf
from regard.text.tokenizer import Tokenizer

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 10000.0, "original_max_position_embeddings": 32}
GGUF_KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "bert": {},
    "llama": {"rope_parameters": LLAMA3},
    "qwen2": {"num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
}
GGUF_HOSTILE = st.one_of(
    st.sampled_from([True, 0, 1, 3, -1, 10**6, 10**9, 2**63, 0.0, 0.5, 1e30, math.nan, math.inf, "", "linear", "yarn"]),
    st.sampled_from([[], [1], ["a"], [0.5], [True], [2**40]]),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=4),
)
GGUF_KEYS = ["rope.scaling.type", "rope.scaling.factor", "rope.freq_base", "rope.scaling.original_context_length"]
GGUF_KEYS += ["attention.sliding_window", "attention.key_length", "pooling_type"]


@pytest.fixture(scope="module")
def ggufs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each architecture that GGUF has."""
    made = {}
    sizes: dict[str, Any] = {"vocab_size": 371, "hidden_size": 32, "num_attention_heads": 4}
    sizes |= {"num_hidden_layers": 2, "max_position_embeddings": 40}
    for kind, more in GGUF_KINDS.items():
        width = {"n_inner" if kind == "gpt2" else "intermediate_size": 32}
        directory, config = tmp_path_factory.mktemp(kind), {"model_type": kind, **sizes, **width, **more}
        spec = spec_of(config)
        raw = tiny_tokenizers.wordpiece() if kind == "bert" else tiny_tokenizers.byte_level()
        roles = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"} if kind == "bert" else {"eos": "<|endoftext|>"}
        weights, tokenizer = parameters_of(build(spec)), Tokenizer(raw, specials=roles)
        made[kind] = save_gguf(directory / "m.gguf", ModelFiles(weights, spec, family_of(kind), config, tokenizer))
    return made


def rewritten(path: Path, directory: Path, changes: dict[str, Any], without: str | None = None) -> Path:
    """The file with some of its metadata changed."""
    file = read_gguf(path)
    metadata = {key: value for key, value in (file.metadata | changes).items() if key != without}
    tensors = [Planned(name, file.shape(name), "F32", partial(file.tensor, name)) for name in file.names]
    write_gguf(directory / "m.gguf", metadata, tensors)
    return directory / "m.gguf"


OTHER_NETWORKS: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"llama.attention.value_length": 16}, "llama.attention.value_length is 16, but must be 8"),
    ("llama", {"llama.rope.dimension_count": 4}, "llama.rope.dimension_count is 4, but must be 8"),
    ("llama", {"llama.rope.scaling.attn_factor": 2.0}, "llama.rope.scaling.attn_factor is 2.0, but must be 1.0"),
    ("llama", {"llama.rope.scaling.type": "yarn"}, "scales rotary positions by 'yarn'; linear scaling is implemented"),
    ("llama", {"llama.rope.scaling.yarn_log_multiplier": 0.1}, "has 'llama.rope.scaling.yarn_log_multiplier', which"),
    ("llama", {"llama.expert_count": 8}, "llama.expert_count is 8, but must be 0"),
    ("llama", {"llama.attention.causal": False}, "llama.attention.causal is False, but must be true"),
    ("llama", {"llama.attention.scale": 0.5}, "has 'llama.attention.scale', which this version does not know"),
    ("llama", {"llama.logit_scale": 0.5}, "has 'llama.logit_scale', which"),
    ("llama", {"llama.attn_logit_softcapping": 50.0}, "has 'llama.attn_logit_softcapping', which"),
    ("llama", {"llama.embedding_scale": 12.0}, "has 'llama.embedding_scale', which"),
    ("qwen2", {"qwen2.final_logit_softcapping": 30.0}, "has 'qwen2.final_logit_softcapping', which"),
    ("qwen2", {"qwen2.use_parallel_residual": True}, "has 'qwen2.use_parallel_residual', which"),
    ("gpt2", {"gpt2.attention.max_alibi_bias": 8.0}, "has 'gpt2.attention.max_alibi_bias', which"),
    ("gpt2", {"gpt2.attention.head_count_kv": 1}, "gpt2.attention.head_count_kv is 1, but must be 4"),
    ("bert", {"bert.attention.causal": True}, "bert.attention.causal is True, but must be false"),
    ("bert", {"bert.rope.freq_base": 1e4}, "has 'bert.rope.freq_base', which"),
]


@pytest.mark.parametrize(
    ("kind", "changes", "says"), OTHER_NETWORKS, ids=[next(iter(changes)) for _, changes, _ in OTHER_NETWORKS]
)
def test_metadata_of_another_network(
    ggufs: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        regard.load(rewritten(ggufs[kind], tmp_path, changes))


# What the converters of llama.cpp write besides.
WRITTEN: dict[str, dict[str, Any]] = {
    "llama": {"llama.vocab_size": 371, "llama.tensor_data_layout": "Meta AI original pth", "llama.expert_count": 0}
    | {"llama.rope.scaling.finetuned": False, "llama.expert_used_count": 0, "llama.attention.causal": True},
    "qwen2": {"qwen2.rope.scaling.type": "none", "qwen2.pooling_type": 0, "qwen2.rope.scaling.factor": 4.0},
    "gpt2": {"gpt2.vocab_size": 371, "gpt2.attention.head_count_kv": 4},
    "bert": {"bert.vocab_size": 371, "bert.attention.causal": False, "bert.pooling_type": 1},
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_metadata_that_change_nothing(ggufs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    more = {"general.author": "x", "quantize.imatrix.file": "y", "tokenizer.ggml.add_space_prefix": False}
    path = rewritten(ggufs[kind], tmp_path, {**WRITTEN[kind], **more})
    assert regard.load(path).spec == regard.load(ggufs[kind]).spec


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_rope_factor_alone_is_linear(ggufs: dict[str, Path], tmp_path: Path, key: str) -> None:
    """As in llama.cpp, for which linear is what a file means that does not name a type."""
    changes = {f"qwen2.{key}": 4.0}
    stack = regard.load(rewritten(ggufs["qwen2"], tmp_path, changes)).spec.stacks["decoder"]
    assert stack.positions.scaling is not None
    assert (stack.positions.scaling.kind, stack.positions.scaling.factor) == ("linear", 4.0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_any_gguf_metadata_loads_or_is_refused(
    ggufs: dict[str, Path], tmp_path: Path, kind: str, data: st.DataObject
) -> None:
    file = read_gguf(ggufs[kind])
    keys = sorted({*file.metadata, *(f"{kind}.{key}" for key in GGUF_KEYS)})
    changes = data.draw(st.dictionaries(st.sampled_from(keys), GGUF_HOSTILE, max_size=3))
    dropped = data.draw(st.none() | st.sampled_from(keys))
    refusal(rewritten(ggufs[kind], tmp_path, changes, dropped))
