"""Quantized directories: every family, saved and loaded, equals the network quantized in memory, on either engine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
import tiny
from regard.errors import CheckpointError, ConfigError
from regard.store.gguf import read_gguf

ROW = [7, 9, 12, 40, 33, 8, 21]
Saved = Callable[[str], Path]


@pytest.mark.parametrize("name", [*tiny.MODELS, *tiny.NATIVE])
@pytest.mark.parametrize("quantize", ["q8", "q4_1"])
def test_every_family_survives_saving_and_loading(saved: Saved, tmp_path: Path, name: str, quantize: str) -> None:
    model = regard.load(saved(name), engine="torch")
    again = regard.load(model.save(tmp_path / "q", format="blocks", quantize=quantize), engine="torch")
    expected = regard.load(saved(name), quantize=quantize, engine="torch").net.state_dict()
    assert again.net.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[key]) for key, weight in again.net.state_dict().items())
    assert again.settings == model.settings
    assert again.config == {**model.config, "dtype": "float32"}


def test_translation_runs_on_the_files_own_integers(tmp_path: Path) -> None:
    path = regard.load("toy-translate").save(tmp_path / "q", format="blocks", quantize="q8")
    native, reference = regard.load(path), regard.load(path, engine="torch")
    assert {info.format for info in read_gguf(path / "model.gguf").tensors.values()} == {"F32", "Q8_0"}
    if native.engine is not None:
        assert native._net is None
        assert native.engine.arena.size < 0.4 * reference.nbytes
    texts = ["The cat sees the dog.", "I have two red books."]
    assert native.translate(texts) == reference.translate(texts)


def test_layouts_replace_each_other(tmp_path: Path) -> None:
    model = regard.load("toy-bert")
    for format, quantize in (("blocks", "q8"), ("hf", None), ("blocks", "q4"), ("hf", None)):
        model.save(tmp_path, format=format, quantize=quantize)
        files = {file.name for file in tmp_path.iterdir()}
        assert ("model.gguf" in files) == (format == "blocks")
        assert ("model.safetensors" in files) == (format == "hf")
        regard.load(tmp_path)
    assert all(
        torch.equal(a, b) for a, b in zip(regard.load(tmp_path).net.parameters(), model.net.parameters(), strict=True)
    )


def test_saving_over_the_directory_it_was_loaded_from(tmp_path: Path) -> None:
    path = regard.load("toy-bert").save(tmp_path / "q", format="blocks", quantize="q8")
    model = regard.load(path)
    states = model(ROW)
    model.save(path, format="blocks", quantize="f32")
    assert np.array_equal(regard.load(path)(ROW), states)


def test_an_unsupported_format_is_refused(tmp_path: Path) -> None:
    model = regard.load("toy-bert")
    with pytest.raises(ConfigError, match="written as F32, F16"):
        model.save(tmp_path / "q", format="blocks", quantize="q5_0")
    with pytest.raises(ConfigError, match="holds no blocks"):
        model.save(tmp_path / "q", quantize="q8")
    with pytest.raises(ConfigError, match="hf, gguf or blocks"):
        model.save(tmp_path / "q", format="onnx")
    assert not (tmp_path / "q").exists()
    path = model.save(tmp_path / "q", format="blocks", quantize="q8")
    with pytest.raises(ConfigError, match=r"general\.architecture is 'regard'"):
        regard.load(path / "model.gguf")
    raw = (path / "model.gguf").read_bytes()
    (path / "model.gguf").write_bytes(raw.replace(b"encoder.0.mlp.up.bias", b"encoder.0.mlp.xx.bias"))
    with pytest.raises(CheckpointError, match="does not belong"):
        regard.load(path)
