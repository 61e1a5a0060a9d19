"""Weights that do not belong to their configuration, or are not weights: refused by name before they are used.

Everything goes through `regard.load`, on the directory of a tiny model in which one thing was changed.
"""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard
import tiny_tokenizers
from hostile import cheap, refusal
from regard.errors import CheckpointError, NotFound
from regard.model.spec import PositionSpec
from regard.model.transformer import sinusoids
from regard.text.tokenizer import Tokenizer

IDS = torch.tensor([[7, 9, 12, 40, 33, 8]])
Tensors = dict[str, Tensor]
Spoilt = Callable[..., Path]
Saved = Callable[[str], Path]


@pytest.fixture
def spoilt(saved: Callable[[str], Path], tmp_path: Path) -> Spoilt:
    """The directory of a tiny model after `change` had its way with the tensors."""

    def spoil(name: str, change: Callable[[Tensors], object] = lambda tensors: None, **config: Any) -> Path:
        tensors = load_file(saved(name) / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
        said = json.loads((saved(name) / "config.json").read_text()) | config
        (tmp_path / "config.json").write_text(json.dumps(said))
        return tmp_path

    return spoil


def renamed(old: str, new: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[new] = tensors.pop(old)

    return change


REFUSED: dict[str, tuple[str, Callable[[Tensors], object], str]] = {
    "a name nobody knows": (
        "gpt2",
        lambda t: t.update({"transformer.h.0.attn.rotary": torch.ones(3)}),
        "tensor 'transformer.h.0.attn.rotary' does not belong to this architecture",
    ),
    "a name of ten thousand letters": (
        "gpt2",
        lambda t: t.update({"x" * 10_000: torch.ones(3)}),
        "tensor 'x{79}… does not belong",
    ),
    "a layer too many": (
        "llama",
        lambda t: t.update({"model.layers.3.input_layernorm.weight": torch.ones(24)}),
        "tensor 'model.layers.3.input_layernorm.weight' has no place .* number of layers",
    ),
    "a layer numbered twice": (
        "llama",
        lambda t: t.update({"model.layers.00.input_layernorm.weight": torch.ones(24)}),
        "tensor 'model.layers.00.input_layernorm.weight' has no place",
    ),
    "a bias that the configuration denies": (
        "llama",
        lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(24)}),
        "tensor 'model.layers.0.self_attn.q_proj.bias' has no place .* the biases",
    ),
    "a head that the configuration denies": (
        "bert",
        lambda t: t.update({"classifier.weight": torch.ones(2, 24)}),
        "tensor 'classifier.weight' does not belong",
    ),
    "one missing": (
        "bert",
        lambda t: t.pop("encoder.layer.1.output.dense.bias"),
        r"lacks .* encoder\.1\.mlp\.down\.bias\.",
    ),
    "one name for another": (
        "bart",
        renamed("model.encoder.layers.0.fc1.weight", "model.encoder.layers.0.fc3.weight"),
        "tensor 'model.encoder.layers.0.fc3.weight' does not belong",
    ),
    "nothing": ("llama", lambda t: t.clear(), "0 tensors cannot fill 3 layers"),
    "almost nothing": (
        "llama",
        lambda t: [t.pop(name) for name in list(t) if ".mlp." not in name],
        r"lacks the weights for .*, .*, .* and \d+ more",
    ),
    "the same twice": (
        "gpt2",
        lambda t: t.update({"wte.weight": t["transformer.wte.weight"].clone()}),
        "tensors '.*wte.weight' and '.*wte.weight' are for the same parameter",
    ),
    "a wrong shape": (
        "bert",
        lambda t: t.update({"embeddings.LayerNorm.weight": torch.ones(25)}),
        r"tensor 'embeddings.LayerNorm.weight' has shape \(25,\), but the configuration asks for \(24,\)",
    ),
    "one dimension too many": (
        "llama",
        lambda t: t.update({"model.norm.weight": torch.ones(24, 1)}),
        r"has shape \(24, 1\), but the configuration asks for \(24,\)",
    ),
    "no dimension at all": (
        "llama",
        lambda t: t.update({"model.norm.weight": torch.tensor(1.0)}),
        r"has shape \(\), but the configuration asks for \(24,\)",
    ),
    "rows and columns exchanged": (
        "gpt2",
        lambda t: t.update({"transformer.h.0.mlp.c_fc.weight": t["transformer.h.0.mlp.c_fc.weight"].T.contiguous()}),
        r"has shape \(96, 24\), but the configuration asks for \(24, 96\)",
    ),
    "whole numbers": (
        "qwen2",
        lambda t: t.update({"model.norm.weight": torch.ones(24, dtype=torch.int8)}),
        r"tensor 'model.norm.weight' holds I8, not floating point",
    ),
    "truth values": (
        "qwen2",
        lambda t: t.update({"model.norm.weight": torch.ones(24, dtype=torch.bool)}),
        r"tensor 'model.norm.weight' holds BOOL, not floating point",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_refused_by_name(spoilt: Spoilt, fault: str) -> None:
    name, change, says = REFUSED[fault]
    path = spoilt(name, change)
    with cheap(), pytest.raises(CheckpointError, match=says) as refused:
        regard.load(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 500 + len(str(path))


def test_a_model_of_another_family(spoilt: Spoilt, saved: Callable[[str], Path]) -> None:
    path = spoilt("gpt2")
    shutil.copy(saved("llama") / "config.json", path)
    with pytest.raises(CheckpointError, match=r"tensor 'transformer\..*' does not belong to this architecture"):
        regard.load(path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@torch.no_grad()
def test_every_floating_point_is_read(spoilt: Spoilt, saved: Callable[[str], Path], dtype: torch.dtype) -> None:
    path = spoilt("llama", lambda t: t.update({name: tensor.to(dtype) for name, tensor in t.items()}))
    model, original = regard.load(path), regard.load(saved("llama"))
    for name, weight in model.net.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, original.net.state_dict()[name].to(dtype).float())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_load_with_a_warning(spoilt: Spoilt, caplog: pytest.LogCaptureFixture, value: float) -> None:
    def change(tensors: Tensors) -> None:
        for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"):
            tensors[name].view(-1)[3] = value

    with caplog.at_level(logging.WARNING, "regard"):
        model = regard.load(spoilt("llama", change))
    (record,) = caplog.records
    assert "2 tensors hold NaN or infinite weights" in record.message
    assert "model.norm.weight" in record.message
    assert "model.layers.1.mlp.up_proj.weight" in record.message
    assert model(IDS).isnan().any()


def test_large_but_finite_weights_load_in_silence(spoilt: Spoilt, caplog: pytest.LogCaptureFixture) -> None:
    """Their sum is beyond float32, none of them is."""
    regard.load(spoilt("llama", lambda t: t["model.norm.weight"].fill_(3e38)))
    assert not caplog.records


@torch.no_grad()
def test_a_tied_matrix_that_is_given_twice(
    spoilt: Spoilt, saved: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    embedding = "transformer.wte.weight"
    logits = regard.load(saved("gpt2"))(IDS)
    same = regard.load(spoilt("gpt2", lambda t: t.update({"lm_head.weight": t[embedding].clone()})))
    assert torch.equal(same(IDS), logits)
    assert not caplog.records
    other = spoilt("gpt2", lambda t: t.update({"lm_head.weight": t[embedding] + 1}))
    for engine in ("auto", "torch"):
        with pytest.raises(CheckpointError, match=r"'lm_head.weight' differs from 'transformer.wte.weight'"):
            regard.load(other, engine=engine)
    wrong = spoilt("gpt2", lambda t: t.update({"lm_head.weight": torch.ones(3, 24)}))
    with pytest.raises(CheckpointError, match=r"tensor 'lm_head.weight' has shape \(3, 24\)"):
        regard.load(wrong)


def other_numbers(name: str, like: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: tensors[like] + 1})


def same_weights(one: regard.Model, other: regard.Model) -> None:
    first, second = one.net.state_dict(), other.net.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


TWINS = {
    "bart": ("lm_head.weight", "model.shared.weight"),
    "mbart": ("model.encoder.embed_tokens.weight", "model.shared.weight"),
    "m2m_100": ("model.decoder.embed_tokens.weight", "model.shared.weight"),
    "bert-mlm": ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    "roberta-mlm": ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    "llama-gqa-tied": ("lm_head.weight", "model.embed_tokens.weight"),
}


@pytest.mark.parametrize("name", TWINS)
def test_two_names_of_one_tensor_with_different_numbers(spoilt: Spoilt, saved: Saved, name: str) -> None:
    """transformers 4 took one of them and 5 takes both; what the file means is not to be guessed."""
    other, read = TWINS[name]
    twice = regard.load(spoilt(name, lambda tensors: tensors.update({other: tensors[read].clone()})))
    same_weights(twice, regard.load(saved(name)))
    with pytest.raises(
        CheckpointError, match=f"'{other}' differs from '{read}', but by the configuration they are one"
    ):
        regard.load(spoilt(name, other_numbers(other, read)))


def test_an_untied_masked_lm_has_a_bias_that_nobody_reads(spoilt: Spoilt, saved: Saved) -> None:
    change = other_numbers("cls.predictions.bias", "cls.predictions.decoder.bias")
    same_weights(regard.load(spoilt("bert-mlm-untied", change)), regard.load(saved("bert-mlm-untied")))


def test_sinusoids_in_the_file(spoilt: Spoilt, saved: Saved) -> None:
    """transformers takes Marian's from there, so others than the formula's are another network."""
    name, table = "model.encoder.embed_positions.weight", sinusoids(24, PositionSpec("sinusoidal", 40, halves=True))

    def with_table(numbers: torch.Tensor) -> Callable[[Tensors], None]:
        return lambda tensors: tensors.update({name: numbers})

    for numbers in (torch.from_numpy(table), torch.from_numpy(table).bfloat16()):
        same_weights(regard.load(spoilt("marian", with_table(numbers))), regard.load(saved("marian")))
    for numbers in (torch.from_numpy(table).roll(1, 0), torch.from_numpy(table[:-1].copy())):
        with pytest.raises(CheckpointError, match=f"'{name}' is not the table that this architecture computes"):
            regard.load(spoilt("marian", with_table(numbers)))


@torch.no_grad()
def test_a_tied_matrix_under_its_other_name(spoilt: Spoilt, saved: Callable[[str], Path]) -> None:
    path = spoilt("llama-gqa-tied", renamed("model.embed_tokens.weight", "lm_head.weight"))
    model = regard.load(path)
    assert torch.equal(model(IDS), regard.load(saved("llama-gqa-tied"))(IDS))
    assert model.net.get_parameter("unembed.weight") is model.net.get_parameter("embed.tokens.weight")


def test_untied_by_the_configuration_but_not_in_the_file(spoilt: Spoilt) -> None:
    with pytest.raises(CheckpointError, match=r"lacks the weights for unembed\.weight"):
        regard.load(spoilt("gpt2", tie_word_embeddings=False))


def test_buffers_that_older_writers_left_are_passed_over(spoilt: Spoilt, saved: Callable[[str], Path]) -> None:
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 40, 40), "h.1.attn.masked_bias": torch.tensor(-1e4)}
    assert torch.equal(regard.load(spoilt("gpt2", lambda t: t.update(mask)))(IDS), regard.load(saved("gpt2"))(IDS))


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "checkpoint.pth", "weights.pkl"])
def test_only_a_pickle(spoilt: Spoilt, name: str) -> None:
    path = spoilt("gpt2")
    (path / "model.safetensors").unlink()
    (path / name).write_bytes(b"cbuiltins\nexec\n(S'raise SystemExit'\ntR.")
    with pytest.raises(CheckpointError, match=f"{name} is a pickle, and nothing is ever unpickled"):
        regard.load(path)


def test_files_that_are_not_there(tmp_path: Path, spoilt: Spoilt) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"config\.json, the model's configuration, does not exist"):
        regard.load(tmp_path / "empty")
    with pytest.raises(CheckpointError, match=r"neither a model directory nor a \.gguf file"):
        regard.load(spoilt("gpt2") / "config.json")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(NotFound, match="holds no weights"):
        regard.load(tmp_path)


def test_several_gguf_files(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"holds 2 GGUF files; name one of them, such as a\.gguf"):
        regard.load(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "bart", "bert-mlm", "m2m_100"])
def test_saved_onto_the_directory_it_was_loaded_from(spoilt: Spoilt, saved: Callable[[str], Path], name: str) -> None:
    """The weights in memory are still mapped from the file that is being replaced."""
    path = spoilt(name)
    model = regard.load(path)
    before = {key: weight.clone() for key, weight in model.net.state_dict().items()}
    model.save(path)
    again, original = regard.load(path).net.state_dict(), regard.load(saved(name)).net.state_dict()
    for key, weight in before.items():
        assert torch.equal(weight, model.net.state_dict()[key])
        assert torch.equal(weight, again[key])
        assert torch.equal(weight, original[key])
    assert not list(path.glob(".*"))


def test_shards_saved_over_become_one_file(saved: Callable[[str], Path], tmp_path: Path) -> None:
    import tiny

    tiny.make("gpt2").save_pretrained(tmp_path, max_shard_size="20KB")
    regard.load(tmp_path).save(tmp_path)
    assert [p.name for p in tmp_path.glob("*safetensors*")] == ["model.safetensors"]
    assert torch.equal(regard.load(tmp_path)(IDS), regard.load(saved("gpt2"))(IDS))


# ── nothing in a model directory runs ────────────────────────────────────────────────────────────────────────────────

MARK = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n"


def test_code_in_a_directory_is_never_imported(spoilt: Spoilt) -> None:
    """In a process of its own, started in the directory, where an import of any of the files would find it."""
    automatic = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.XForCausalLM"}
    path = spoilt("gpt2", auto_map=automatic, trust_remote_code=True, custom_pipelines={"x": {"impl": "modeling_x.X"}})
    for name in ("modeling_x.py", "configuration_x.py", "tokenization_x.py", "conftest.py", "setup.py", "gpt2.py"):
        (path / name).write_text(MARK)
    tokenizer = {"tokenizer_class": "XTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", None]}}
    Tokenizer(tiny_tokenizers.wordlevel()).save(path)
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (path / "generation_config.json").write_text(json.dumps({"custom_generate": "modeling_x.py"}))
    program = "import regard; m = regard.load('.'); m([[1, 2, 3]]); print(m.family, sorted(m.config['auto_map']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("gpt2 ['AutoConfig'"), done.stderr
    assert not list(path.glob("*.ran"))


# ── any damage ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def whole(saved: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a tiny model with a tokenizer, a generation config and pooling settings."""
    directory = tmp_path_factory.mktemp("whole")
    tokenizer = Tokenizer(tiny_tokenizers.wordlevel(), specials={"eos": "</s>"})
    shutil.copytree(saved("gpt2"), directory, dirs_exist_ok=True)
    tokenizer.save(directory)
    assert tokenizer.n_vocab <= 71
    assert refusal(directory) == ""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"],
)
def test_any_damage_loads_or_is_refused(
    whole: dict[str, bytes], tmp_path: Path, name: str, data: st.DataObject
) -> None:
    content = bytearray(whole[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(content), 6000) - 1))  # of the weights, mostly the header
        if data.draw(st.booleans()):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            size, instead = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([b"", b"0", b'"', b"null", b"-1"]))
            content[at : at + size] = instead
    for other, kept in whole.items():
        (tmp_path / other).write_bytes(content if other == name else kept)
    refusal(tmp_path)
