"""What is said of a network without building it is what building it gives."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from regard.model.frequency import frequencies
from regard.model.registry import spec_of
from regard.model.shapes import shapes
from regard.model.spec import RotaryScalingSpec
from regard.model.transformer import blueprint
from regard.nn.position import Rotary, RotaryScaling
from regard.store.safetensors import open_checkpoint


@pytest.mark.parametrize("name", [*tiny.MODELS, *tiny.NATIVE])
def test_names_and_shapes_are_the_networks(saved: Callable[[str], Path], name: str) -> None:
    names = open_checkpoint(saved(name)).names
    spec = spec_of(json.loads((saved(name) / "config.json").read_text()), names=names)
    built = {name: tuple(p.shape) for name, p in blueprint(spec).named_parameters(remove_duplicate=False)}
    assert shapes(spec) == built


@pytest.mark.parametrize("theta", [5e3, 1e4, 1e5, 5e5, 1e6])
@pytest.mark.parametrize("d_k", [8, 64, 96, 128])
@pytest.mark.parametrize("kind", [None, "linear", "llama3"])
def test_frequencies_are_the_definitions(d_k: int, theta: float, kind: str | None) -> None:
    told = (kind, 8.0, 1.0, 4.0, 256)
    definition = Rotary(d_k, theta, RotaryScaling(*told) if kind else None).frequencies(torch.device("cpu"))  # type: ignore[arg-type]
    ours = frequencies(d_k, theta, RotaryScalingSpec(*told) if kind else None)  # type: ignore[arg-type]
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, definition.numpy(), rtol=3e-7, atol=0)
