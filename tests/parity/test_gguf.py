"""Models saved as GGUF: the same model here, and the one `transformers` and the `gguf` package understand there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as hf

import regard
import tiny
import tiny_tokenizers
from gguf_reference import read_by_transformers
from regard.errors import ConfigError, TokenizerError
from regard.store.gguf import read_gguf
from regard.store.number_formats import FORMATS, dequantize
from regard.store.number_formats import quantize as quantize_array
from regard.text.pretokenizers import SPLITS
from regard.text.tokenizer import Tokenizer

# Sizes that blocks of 32 divide; more rows in the embedding than the tokenizers have tokens.
LLAMA = {**tiny.LLAMA, "vocab_size": 371, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
BERT = {**tiny.BERT, "vocab_size": 231, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
QWEN2 = {**LLAMA, "num_key_value_heads": 2}
GPT2: dict[str, Any] = {"vocab_size": 371, "n_positions": 40, "n_embd": 64, "n_layer": 2, "n_head": 4}
SMALLER_LLAMA3 = {**tiny.LLAMA3_ROPE, "factor": 3.0, "original_max_position_embeddings": 50, "rope_theta": 300.0}


def llama(**changes: Any) -> Callable[[], hf.PreTrainedModel]:
    return lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**{**LLAMA, **changes}))


MODELS: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)),
    "gpt2-untied": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, n_inner=96, tie_word_embeddings=False)),
    "llama": llama(),
    "llama-gqa-tied": llama(num_key_value_heads=2, tie_word_embeddings=True),
    "llama-biases": llama(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama-head-dim": llama(num_key_value_heads=2, head_dim=10),
    "llama3": llama(rope_parameters=tiny.LLAMA3_ROPE),
    "llama3-unusual": llama(rope_parameters=SMALLER_LLAMA3),
    "llama-linear": llama(rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}),
    "mistral": lambda: hf.MistralForCausalLM(
        hf.MistralConfig(**{**LLAMA, "num_key_value_heads": 2, "sliding_window": 5})
    ),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**QWEN2)),
    "qwen2-window": lambda: hf.Qwen2ForCausalLM(
        hf.Qwen2Config(**QWEN2, use_sliding_window=True, sliding_window=5, max_window_layers=0)
    ),
    "bert": lambda: hf.BertModel(hf.BertConfig(**BERT)),
    "bert-without-pooler": lambda: hf.BertModel(hf.BertConfig(**BERT), add_pooling_layer=False),
}
UNDERSTOOD = [name for name in MODELS if not name.startswith(("bert", "mistral"))]  # by the converter of transformers
WHOLLY = ["llama", "llama-gqa-tied", "llama-head-dim", "qwen2"]  # … with every setting that the file holds
IDS = torch.tensor([[7, 9, 12, 40, 33, 8, 21, 15, 6, 30, 11, 200]])


def tokenizer_for(name: str) -> Tokenizer:
    if name.startswith("bert"):
        roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        return Tokenizer(tiny_tokenizers.wordpiece(), specials=roles)
    raw = tiny_tokenizers.byte_level()
    raw.pre_tokenizer = SPLITS["gpt-2"].pre_tokenizer()
    return Tokenizer(raw, specials={"bos": "<|endoftext|>", "eos": "<|im_end|>"})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A Hugging Face directory of the model, with a tokenizer."""
    hf.logging.disable_progress_bar()
    done: dict[str, Path] = {}

    def save(name: str) -> Path:
        if name not in done:
            done[name] = tmp_path_factory.mktemp(name)
            tiny.randomised(MODELS[name]).save_pretrained(done[name])
            tokenizer_for(name).save(done[name])
        return done[name]

    return save


@pytest.fixture
def written(directory: Callable[[str], Path], tmp_path: Path) -> Callable[[str], tuple[regard.Model, Path]]:
    """The model as loaded from its directory, and the GGUF file it was saved as."""

    def write(name: str, quantize: str | None = None) -> tuple[regard.Model, Path]:
        model = regard.load(directory(name))
        return model, model.save(tmp_path / f"{name}.gguf", format="gguf", quantize=quantize)

    return write


Written = Callable[..., tuple[regard.Model, Path]]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_model_comes_back(written: Written, name: str) -> None:
    model, path = written(name)
    again = regard.load(path)
    first, second = model.net.state_dict(), again.net.state_dict()
    assert {key for key in first if not key.startswith("pooler.")} == set(second)
    assert all(torch.equal(first[key], second[key]) for key in second)
    assert [stack.positions for stack in again.spec.stacks.values()] == [
        stack.positions for stack in model.spec.stacks.values()
    ]
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)
    for text in ("the quick brown fox", "don't  stop\n naïve"):
        assert again.tokenizer.encode(text) == model.tokenizer.encode(text)


@pytest.mark.parametrize("name", MODELS)
def test_what_came_back_is_the_same_again(written: Written, name: str, tmp_path: Path) -> None:
    """GGUF → here → Hugging Face's layout and GGUF: nothing is lost on the way."""
    model, path = written(name)
    again = regard.load(path)
    logits = model(IDS)
    torch.testing.assert_close(regard.load(again.save(tmp_path / "hf"))(IDS), logits, rtol=0, atol=1e-6)
    first, second = read_gguf(path), read_gguf(again.save(tmp_path / "twice" / path.name, format="gguf"))
    unused = "tokenizer.ggml.token_type"  # rows without a token have become tokens without a use
    assert first.metadata | {unused: None} == second.metadata | {unused: None}
    assert first.names == second.names
    assert all(first.raw(name).tobytes() == second.raw(name).tobytes() for name in first.names)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_reader_opens_it(written: Written, name: str) -> None:
    """By the `gguf` package's own map of names, each tensor is the one of Hugging Face's model."""
    _, path = written(name)
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    layers = reader.fields[f"{architecture}.block_count"].contents()
    names = gguf.get_tensor_name_map(kind, layers)
    found = {tensor.name: tensor for tensor in reader.tensors}
    expected = {}
    for theirs, weight in tiny.randomised(MODELS[name]).state_dict().items():
        if theirs == "lm_head.weight" and "output.weight" not in found:
            continue  # tied
        if theirs.startswith("pooler."):
            continue  # no place in GGUF
        stem, _, leaf = theirs.rpartition(".")
        expected[f"{names.get_name(stem)}.{leaf}"] = weight
    assert found.keys() - {"rope_freqs.weight"} == expected.keys()
    for key, weight in expected.items():
        turned = architecture == "llama" and (".attn_q." in key or ".attn_k." in key)
        flipped = architecture == "gpt2" and weight.dim() == 2 and key.startswith("blk.")
        if not turned:  # `test_transformers_understands_it` covers the order of those rows
            wanted = (weight.T if flipped else weight).numpy()
            np.testing.assert_array_equal(found[key].data.reshape(wanted.shape), wanted, err_msg=key)


@pytest.mark.parametrize("name", UNDERSTOOD)
@torch.no_grad()
def test_transformers_understands_it(written: Written, name: str) -> None:
    """From the file alone where its converter reads every setting, else with the original's configuration."""
    model, path = written(name)
    original = tiny.randomised(MODELS[name])
    theirs = read_by_transformers(path, None if name in WHOLLY else original.config)
    torch.testing.assert_close(theirs(IDS).logits, original(IDS).logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(model(IDS), original(IDS).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "qwen2", "bert"])
@pytest.mark.parametrize("quantize", ["f16", "bf16", "q8_0", "q4_0", "q4_1"])
def test_quantised(written: Written, name: str, quantize: str) -> None:
    """Matrices come back as the format rounds them, everything else untouched."""
    model, path = written(name, quantize)
    format, rounded = quantize.upper(), 0
    again = regard.load(path).net.state_dict()
    for key, after in again.items():
        before = model.net.state_dict()[key]
        kept = before.dim() < 2 or key in ("embed.positions.weight", "embed.types.weight")
        if not kept:
            raw = quantize_array(before.numpy(), format).reshape(-1)
            before = torch.from_numpy(dequantize(raw, format, tuple(before.shape)))
            rounded += 1
        assert torch.equal(after, before), key
    assert rounded > 6
    formats = {info.format for info in read_gguf(path).tensors.values()}
    assert formats == {"F32", format}


def test_rows_that_blocks_do_not_divide_stay_whole(directory: Callable[[str], Path], tmp_path: Path) -> None:
    model = regard.load(directory("llama-head-dim"))  # W_o's rows have 40 numbers
    file = read_gguf(model.save(tmp_path / "m.gguf", format="gguf", quantize="q8_0"))
    assert 40 % FORMATS["Q8_0"].block_elements
    assert file.tensors["blk.0.attn_output.weight"].format == "F32"
    assert file.tensors["blk.0.attn_q.weight"].format == "Q8_0"


def test_saved_onto_the_file_it_was_loaded_from(written: Written) -> None:
    _, path = written("llama-gqa-tied", "q8_0")
    model = regard.load(path)
    logits = model(IDS)
    elsewhere = model.save(path.parent / "elsewhere" / path.name, format="gguf")
    model.save(path, format="gguf")
    assert path.read_bytes() == elsewhere.read_bytes()
    assert torch.equal(model(IDS), logits)
    assert torch.equal(regard.load(path)(IDS), logits)


def test_a_directory_gets_one_file(directory: Callable[[str], Path], tmp_path: Path) -> None:
    path = regard.load(directory("llama")).save(tmp_path / "my-llama", format="gguf")
    assert path == tmp_path / "my-llama" / "model.gguf"
    assert read_gguf(path).metadata["general.name"] == "my-llama"
    assert torch.equal(regard.load(tmp_path / "my-llama")(IDS), regard.load(path)(IDS))


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_an_encoder_pools_as_before(directory: Callable[[str], Path], tmp_path: Path, mode: str) -> None:
    model = regard.load(directory("bert"))
    model.pooling = type(model.pooling)(mode, stated=True)
    path = model.save(tmp_path / "m.gguf", format="gguf")
    again = regard.load(path)
    assert gguf.GGUFReader(path).fields["bert.pooling_type"].contents() == gguf.PoolingType[mode.upper()]
    torch.testing.assert_close(again.embed(["the cat", "a"]), model.embed(["the cat", "a"]), rtol=0, atol=1e-6)


UNSAYABLE: dict[str, tuple[Callable[[], hf.PreTrainedModel], str]] = {
    "gpt2-relu": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, activation_function="relu")), "GELU by tanh"),
    "gpt2-unscaled": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, scale_attn_weights=False)), "√d_k"),
    "llama-gelu": (llama(hidden_act="gelu"), "SiLU"),
    "llama3-other-blend": (llama(rope_parameters={**tiny.LLAMA3_ROPE, "high_freq_factor": 16.0}), "Llama 3's rule"),
    "qwen2-mixed": (
        lambda: hf.Qwen2ForCausalLM(
            hf.Qwen2Config(**QWEN2, use_sliding_window=True, sliding_window=5, max_window_layers=1)
        ),
        "one window",
    ),
    "bert-mlm": (lambda: hf.BertForMaskedLM(hf.BertConfig(**BERT)), "without a head"),
    "bert-relu": (lambda: hf.BertModel(hf.BertConfig(**BERT, hidden_act="relu")), "GELU"),
    "bart": (lambda: hf.BartForConditionalGeneration(hf.BartConfig(**{**tiny.BART, "vocab_size": 371})), "no arch"),
}


@pytest.mark.parametrize("name", UNSAYABLE)
def test_what_gguf_cannot_say_is_refused(tmp_path: Path, name: str) -> None:
    build, says = UNSAYABLE[name]
    tiny.randomised(build).save_pretrained(tmp_path)
    tokenizer_for(name).save(tmp_path)
    with pytest.raises(ConfigError, match=says):
        regard.load(tmp_path).save(tmp_path / "m.gguf", format="gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_model_without_a_tokenizer_is_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="holds its tokenizer"):
        regard.load(saved("llama")).save(tmp_path / "m.gguf", format="gguf")


@pytest.mark.parametrize("quantize", ["q5_0", "Q6_K", "", "int4"])
def test_a_format_that_is_not_written_is_refused(
    directory: Callable[[str], Path], tmp_path: Path, quantize: str
) -> None:
    with pytest.raises(ConfigError, match="GGUF is written as F32, F16"):
        regard.load(directory("llama")).save(tmp_path / "m.gguf", format="gguf", quantize=quantize)
