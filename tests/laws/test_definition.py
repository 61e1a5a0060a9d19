"""The networks themselves: each engine computes what the lectures' formulas give, written out in tests/oracle.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oracle
import regard
from regard.api import Model
from regard.engine.decoder import Decoder
from regard.engine.native.library import library
from regard.engine.native_engine import NativeDecoder, NativeEngine, NativeTranslator
from regard.engine.pack_network import NetworkWeights
from regard.engine.reference_decoder import ReferenceDecoder, ReferenceTranslator
from regard.explain.lens import logit_lens

Saved = Callable[[str], Path]
ROWS = [[7, 9, 12, 40, 33, 8, 21, 15, 6, 30, 11], [8, 14, 9], [22, 6, 19, 45, 7]]
START = [2, 5]
CLOSE = 1e-4  # float32 through three layers, against float64
DECODERS = ["gpt2", "gpt2-untied", "gpt2-unscaled", "llama", "llama-gqa-tied", "mistral"]
SEQ2SEQ = ["bart", "bart-scaled"]
needs_native = pytest.mark.skipif(library() is None, reason="the native engine is not built here")
ENGINES = [pytest.param("native", marks=needs_native), "numpy", "torch"]


def following(net: Any, row: list[int]) -> oracle.Next:
    """What the oracle says comes after a prompt, or in the translation of a source."""
    if isinstance(net, oracle.Bart):
        return lambda written: net.logits(net.stream(row, [*START, *written])[-1])[-1]
    return lambda written: net.logits(net.stream([*row, *written])[-1])[-1]


def stepper(model: Model, engine: str) -> Decoder:
    """All rows at once, with a cache."""
    net: Any = model.reference if engine == "numpy" else model.net
    starts = [START] * len(ROWS)
    if engine == "native":
        packed = NativeEngine(model.spec, NetworkWeights(model.net, model.spec))
        if model.spec.kind == "decoder":
            return NativeDecoder(packed, ROWS, 12)
        return NativeTranslator(packed, ROWS, starts, 12)
    return (
        ReferenceDecoder(net, ROWS, 12) if model.spec.kind == "decoder" else ReferenceTranslator(net, ROWS, starts, 12)
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*DECODERS, *SEQ2SEQ])
@torch.no_grad()
def test_each_engine_computes_the_definition(name: str, engine: str, saved: Saved) -> None:
    """Rows of different lengths in a batch, token by token; the definition takes each text whole."""
    steps, net = stepper(regard.load(saved(name)), engine), oracle.network(saved(name))
    written = [[5 + (3 * i + j) % 40 for j in range(4)] for i in range(len(ROWS))]
    found = [steps.prefill(), *(steps.step([row[j] for row in written]) for j in range(4))]
    for j, logits in enumerate(found):
        expected = [following(net, row)(new[:j]) for row, new in zip(ROWS, written, strict=True)]
        np.testing.assert_allclose(logits, expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("name", DECODERS)
def test_every_token_has_the_logits_of_the_definition(name: str, engine: str, saved: Saved) -> None:
    model, net = regard.load(saved(name), engine=engine), oracle.network(saved(name))
    for row in ROWS:
        np.testing.assert_allclose(model(row)[0], net.logits(net.stream(row)[-1]), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_what_is_written_greedily(name: str, engine: str, saved: Saved) -> None:
    model, net = regard.load(saved(name), engine=engine), oracle.network(saved(name))
    for row in ROWS:
        (answer,) = model.answers(row, max_new_tokens=8, temperature=0.0, eos_token_id=[])[0]
        assert answer.ids == oracle.greedy(following(net, row), 8)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied"])
def test_what_beams_find(name: str, engine: str, saved: Saved) -> None:
    model, net = regard.load(saved(name), engine=engine), oracle.network(saved(name))
    ends = [4, 9, 17]
    for row in ROWS[1:]:
        asked = {"num_beams": 3, "n": 3, "eos_token_id": ends, "length_penalty": 0.6}
        answers = model.answers(row, max_new_tokens=5, **asked)[0]
        expected = oracle.beam_search(following(net, row), 3, 5, ends, 0.6)
        assert [a.ids for a in answers] == [text for _, text in expected]
        assert [a.score for a in answers] == pytest.approx([score for score, _ in expected], abs=CLOSE)


@pytest.mark.parametrize("name", [*DECODERS, *SEQ2SEQ])
def test_the_logit_lens(name: str, saved: Saved) -> None:
    """Of every layer the five likeliest tokens, best first, and how likely."""
    model, net = regard.load(saved(name)), oracle.network(saved(name))
    if isinstance(net, oracle.Bart):
        trace = model.trace(ROWS[0], ROWS[2])
        assert trace.target_ids is not None
        states = net.stream(ROWS[0], trace.target_ids)
    else:
        trace = model.trace(ROWS[0])
        states = net.stream(ROWS[0])
    rows = logit_lens(trace, 2)
    assert len(rows) == len(states)
    for row, X in zip(rows, states, strict=True):
        P = oracle.softmax(net.logits(X[2:3])[0])
        assert [guess.id for guess in row.top] == oracle.order(P)[:5]
        assert [guess.probability for guess in row.top] == pytest.approx([P[i] for i in oracle.order(P)[:5]], abs=CLOSE)
