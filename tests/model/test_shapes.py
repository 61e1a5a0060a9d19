"""What is said of a network without building it is what building it gives."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import tiny
from regard.engine.positions import rotations
from regard.model.frequency import frequencies
from regard.model.registry import spec_of
from regard.model.shapes import shapes
from regard.model.spec import AttentionSpec, MLPSpec, PositionSpec, RotaryScalingSpec, StackSpec
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
def test_frequencies_are_the_definitions(d_k: int, theta: float, kind: Literal["linear", "llama3"] | None) -> None:
    """PyTorch's powers are off by a unit in the last place or two, on some processors, and what follows rounds five times;
    where frequencies are blended, a difference counts up to twice."""
    scaling = None if kind is None else (kind, 8.0, 1.0, 4.0, 256)
    definition = Rotary(d_k, theta, RotaryScaling(*scaling) if scaling else None).frequencies()
    ours = frequencies(d_k, theta, RotaryScalingSpec(*scaling) if scaling else None)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, definition.numpy(), rtol=14 * np.finfo(np.float32).eps, atol=0)


def test_rotary_tables_are_rounded_once() -> None:
    """Each number is the float32 nearest to what Python's float64 gives, so no processor has another table: the power of
    the frequency, the cosine and the sine. Between them stand products and quotients, which IEEE 754 rounds."""
    stack = StackSpec(
        n_layers=1,
        n_vocab=8,
        wiring="pre",
        norm="rms",
        eps=1e-6,
        attention=AttentionSpec(heads=2, kv_heads=2, d_k=8),
        mlp=MLPSpec(d_ff=8, activation="silu"),
        positions=PositionSpec("rotary", limit=4096),
    )
    turn, (cosines, sines) = frequencies(8, 1e4), rotations(stack, 4096)
    for p, i in ((0, 0), (1, 3), (17, 2), (4095, 1), (4095, 3)):
        angle = float(np.float32(p) * turn[i])
        assert cosines[p, i] == np.float32(math.cos(angle))
        assert sines[p, i] == np.float32(math.sin(angle))
    powers = [np.float32(1e4 ** float(np.float32(2 * i) / np.float32(8))) for i in range(4)]
    np.testing.assert_array_equal(turn, np.float32(1) / np.array(powers))
