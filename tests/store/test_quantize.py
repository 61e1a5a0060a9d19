"""`load(…, quantize="q8")`: the weights that a file of the format would hold."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers as hf

import regard
import tiny
import tiny_tokenizers
from regard.errors import ConfigError
from regard.store.number_formats import dequantize, quantize
from regard.text.tokenizer import Tokenizer

IDS = torch.tensor([[7, 9, 12, 40, 33, 8, 200]])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpt2")
    config = hf.GPT2Config(vocab_size=371, n_positions=40, n_embd=64, n_layer=2, n_head=4, n_inner=80)
    tiny.randomised(lambda: hf.GPT2LMHeadModel(config)).save_pretrained(path)
    Tokenizer(tiny_tokenizers.byte_level()).save(path)
    return path


@pytest.mark.parametrize(("name", "format"), [("q8", "Q8_0"), ("q4", "Q4_0"), ("q4_1", "Q4_1")])
def test_only_matrices_are_quantized(directory: Path, name: str, format: str) -> None:
    before, after = regard.load(directory).net.state_dict(), regard.load(directory, quantize=name).net.state_dict()
    changed = set()
    for key, weight in before.items():
        if weight.dim() == 2 and weight.shape[1] % 32 == 0 and key != "embed.positions.weight":
            raw = quantize(weight.numpy(), format).reshape(-1)
            weight = torch.from_numpy(dequantize(raw, format, tuple(weight.shape)))
            changed.add(key)
        assert torch.equal(after[key], weight), key
    assert "decoder.0.attention.W_q.weight" in changed
    assert "decoder.0.mlp.down.weight" not in changed  # its rows have 80 numbers


@pytest.mark.parametrize(("name", "format"), [("q8", "q8_0"), ("q4", "q4_0"), ("q4_1", "q4_1")])
def test_quantized_in_memory_equals_saved_and_loaded(directory: Path, tmp_path: Path, name: str, format: str) -> None:
    saved = regard.load(regard.load(directory).save(tmp_path / "m.gguf", format="gguf", quantize=format))
    assert torch.equal(regard.load(directory, quantize=name)(IDS), saved(IDS))


def test_the_cost_of_quantization(directory: Path) -> None:
    """Eight bits are nearly free, four are not, and neither is nothing."""
    logits = regard.load(directory)(IDS)
    eight, four = ((regard.load(directory, quantize=name)(IDS) - logits).abs().mean() for name in ("q8", "q4"))
    assert 0 < eight < 0.03 * logits.std()
    assert 5 * eight < four < logits.std()


def test_tied_matrices_stay_tied(directory: Path) -> None:
    net = regard.load(directory, quantize="q4").net
    assert net.get_parameter("unembed.weight") is net.get_parameter("embed.tokens.weight")


def test_in_half_precision(saved: Callable[[str], Path], directory: Path) -> None:
    model = regard.load(directory, quantize="q8", dtype="bfloat16")
    assert {p.dtype for p in model.net.parameters()} == {torch.bfloat16}
    odd = regard.load(saved("llama"), quantize="q8")  # no row of it divides into blocks
    assert torch.equal(odd(IDS.clamp_max(60)), regard.load(saved("llama"))(IDS.clamp_max(60)))


@pytest.mark.parametrize("name", ["q3", "Q8", "", "int8"])
def test_an_unknown_format_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"quantize is .*; it can be q8, q8_0, q4"):
        regard.load(directory, quantize=name)
