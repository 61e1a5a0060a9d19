"""GGUF files that are whole but say impossible things about the model: loaded, or refused in a sentence."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny_tokenizers
from hostile import refusal
from regard.model.registry import family_of, spec_of
from regard.model.transformer import build
from regard.store.gguf import read_gguf
from regard.store.gguf_write import write_gguf
from regard.store.named import Planned
from regard.store.open import Pooling
from regard.store.save import save_gguf
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
        net, tokenizer = build(spec), Tokenizer(raw, specials=roles)
        made[kind] = save_gguf(directory / "m.gguf", net, spec, family_of(kind), config, tokenizer, Pooling())
    return made


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
    metadata = {key: value for key, value in (file.metadata | changes).items() if key != dropped}
    tensors = [Planned(name, file.shape(name), "F32", partial(file.tensor, name)) for name in file.names]
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    refusal(tmp_path / "m.gguf")
