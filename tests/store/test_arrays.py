"""Weights as numpy arrays: from files, and shared with PyTorch's module."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.store.arrays import load_arrays
from regard.store.open_model import open_model
from regard.store.safetensors import open_checkpoint
from regard.store.safetensors_write import save_checkpoint

Saved = Callable[[str], Path]
IDS = [[7, 9, 12, 40, 33, 8], [8, 14]]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"])
def test_every_number_of_a_format_is_pytorchs(dtype: str, tmp_path: Path) -> None:
    kind = getattr(torch, dtype)
    raw = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.uint8)[: 256 if "8_" in dtype else None]
    written = torch.arange(256, dtype=torch.uint8).view(kind) if "8_" in dtype else raw.view(kind)
    save_checkpoint(tmp_path, {"x": written})
    found = open_checkpoint(tmp_path).array("x")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, written.float().numpy())


def test_selected_weights_and_those_tied_to_them(saved: Saved) -> None:
    opened = open_model(saved("bert-mlm"))
    every, some = load_arrays(opened), load_arrays(opened, only=lambda name: name.startswith(("head.", "unembed.")))
    assert {"embed.tokens.weight", "unembed.weight", "head.dense.weight"} <= set(some) < set(every)
    assert not any(name.startswith("encoder.") for name in some)
    assert some["embed.tokens.weight"] is some["unembed.weight"]
    for name, X in some.items():
        np.testing.assert_array_equal(X, every[name])


def test_a_head_is_read_alone(saved: Saved) -> None:
    model = regard.load(saved("bert-tag"))
    if model.engine is None:
        pytest.skip("the native engine is not built here")
    before = model.nbytes
    head = model.head
    assert set(model._head_arrays) == {"head.out.weight", "head.out.bias"}
    assert model.nbytes == before + sum(X.nbytes for X in model._head_arrays.values())
    (states,) = model.engine.states(IDS[:1])
    np.testing.assert_allclose(head.outputs(states[None]), model(IDS[:1]), atol=1e-4)


def test_the_module_shares_memory_with_the_arrays(saved: Saved) -> None:
    model = regard.load(saved("gpt2"), engine="numpy")
    arrays, size = dict(model.arrays), model.nbytes
    before = model(IDS[0])
    with torch.no_grad():
        net: Any = model.net
        net.final_norm.weight.mul_(0.5)
    assert model.nbytes == size
    assert all(np.shares_memory(model.arrays[name], X) for name, X in arrays.items())
    after = model(IDS[0])
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(after, model(torch.tensor(IDS[0])).numpy(), atol=1e-4)


@pytest.mark.parametrize("given", [{}, {"engine": "numpy"}, {"engine": "torch"}, {"dtype": "bfloat16"}])
def test_lists_and_arrays_give_arrays_and_tensors_give_tensors(saved: Saved, given: dict[str, str]) -> None:
    model, exact = regard.load(saved("llama"), **given), regard.load(saved("llama"), engine="numpy")(IDS[0])
    close = 0.3 if "dtype" in given else 1e-4
    every: list[Any] = [IDS[0], [IDS[0]], np.array(IDS[0]), np.array([IDS[0]], np.int32)]
    for ids in every:
        found = model(ids)
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, atol=close)
    found = model(torch.tensor(IDS[0]))
    assert isinstance(found, torch.Tensor)
    assert not found.is_inference()
    np.testing.assert_allclose(found.float().numpy(), exact, atol=close)


def test_a_module_converted_to_16_bits_computes_itself(saved: Saved) -> None:
    model = regard.load(saved("llama"), engine="numpy")
    exact = model(IDS[0])
    model.net.bfloat16()
    assert model.network is model.net
    found = model(IDS[0])
    assert found.dtype == np.float32
    assert 1e-4 < np.abs(found - exact).max() < 0.5
