"""Names and shapes from a spec equal those of the built network; the graph; rotary tables."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tiny
from regard.model.build import blueprint
from regard.model.graph import Graph
from regard.model.module import as_module
from regard.model.registry import spec_of
from regard.model.shapes import shapes
from regard.nn.position import Rotary, RotaryScaling
from regard.store.safetensors import open_checkpoint


@pytest.mark.parametrize("name", [*tiny.MODELS, *tiny.NATIVE])
def test_names_and_shapes_are_the_networks(saved: Callable[[str], Path], name: str) -> None:
    names = open_checkpoint(saved(name)).names
    spec = spec_of(json.loads((saved(name) / "config.json").read_text()), names=names)
    built = {name: tuple(p.shape) for name, p in blueprint(spec).named_parameters(remove_duplicate=False)}
    assert shapes(spec) == built


def test_a_long_recurrent_graph_is_walked_once() -> None:
    """Each step uses the state before it several times: walked as a tree, forty steps would not end."""
    graph = Graph(spec_of(tiny.NATIVE["gru"]), 40, 40)
    assert {"decoder.states", "decoder.cross.weights"} <= graph.observe_only
    assert not any(node.counts_positions for node in graph)


@pytest.mark.parametrize("theta", [5e3, 1e4, 1e5, 5e5, 1e6])
@pytest.mark.parametrize("d_k", [8, 64, 96, 128])
@pytest.mark.parametrize("kind", [None, "linear", "llama3"])
def test_frequencies_are_those_of_transformers(d_k: int, theta: float, kind: str | None) -> None:
    """PyTorch's powers are off by a unit in the last place or two, on some processors, and what follows rounds five times;
    where frequencies are blended, a difference counts up to twice."""
    part = Rotary(d_k, theta, RotaryScaling(kind, 8.0, 1.0, 4.0, 256) if kind else None)  # type: ignore[arg-type]
    ours, theirs = part.frequencies(), as_module(part).frequencies()
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=14 * float(np.finfo(np.float32).eps), atol=0)


def test_rotary_tables_are_rounded_once() -> None:
    """Each number is the float32 nearest to what Python's float64 gives, so no processor has another table: the power of
    the frequency, the cosine and the sine. Between them stand products and quotients, which IEEE 754 rounds."""
    part = Rotary(8)
    turn, (cosines, sines) = part.frequencies(), part(np.arange(4096))
    for p, i in ((0, 0), (1, 3), (17, 2), (4095, 1), (4095, 3)):
        angle = float(np.float32(p) * turn[i])
        assert cosines[p, i] == np.float32(math.cos(angle))
        assert sines[p, i] == np.float32(math.sin(angle))
    powers = [np.float32(1e4 ** float(np.float32(2 * i) / np.float32(8))) for i in range(4)]
    np.testing.assert_array_equal(turn, np.float32(1) / np.array(powers))
