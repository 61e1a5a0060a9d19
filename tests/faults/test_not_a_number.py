"""A model whose numbers are NaN or infinite gives an error in place of an answer, which JSON could not hold anyway."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import regard
import serving
import tiny_text
from regard.engine.encode import pool
from regard.errors import GenerationError, RegardError
from regard.explain import lens

GOOD, BAD = "the cat", "the dog"
LENSES = (
    lens.head_scores,
    lens.attention_rollout,
    lambda trace: lens.contribution(trace, trace.graph.sites[0].site, 0),
    lens.logit_lens,
    lens.attribution,
    lens.ablation,
    lens.gradient_times_input,
)


@pytest.fixture
def spoilt(tiny_model: Any, tmp_path: Path) -> Callable[..., Path]:
    """`spoilt(name)`: a tiny model in which a token of "the dog" has an embedding that is no number."""
    return lambda name, value=float("nan"): tiny_text.spoil(tiny_model(name), tmp_path / name, value)


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize(("task", "name"), [("embed", "encoder"), ("classify", "classifier"), ("tag", "tagger")])
def test_no_answer_is_not_a_number(spoilt: Any, task: str, name: str, engine: str) -> None:
    run = getattr(regard.load(spoilt(name), engine=engine), task)
    assert len(run([GOOD, "a cat"])) == 2
    with pytest.raises(GenerationError, match=r"of 'the dog' holds nan: the model's weights are damaged"):
        run([GOOD, BAD])


def test_infinite_vectors(spoilt: Any) -> None:
    with pytest.raises(GenerationError, match="'the dog' holds"):
        regard.load(spoilt("encoder", float("inf"))).embed(BAD)


def test_the_server(spoilt: Any, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    folder = spoilt("encoder")
    app = serving.server_of([folder], tmp_path / "page")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for format in ("float", "base64"):
            asked = {"model": folder.name, "input": [GOOD, BAD], "encoding_format": format}
            answer = client.post("/v1/embeddings", json=asked)
            assert answer.status_code == 400  # as of logits that are no numbers
            assert "holds nan" in answer.json()["error"]["message"]
            assert client.post("/v1/embeddings", json={**asked, "input": [GOOD]}).status_code == 200


def test_padding_does_not_count() -> None:
    """What stands where there is no token may be anything."""
    states = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    real = np.array([[True, True, False], [True, True, True]])
    for mode in ("mean", "max"):
        states[0, 2] = -9
        clean = pool(states, real, mode, True)
        states[0, 2] = np.nan
        assert np.array_equal(pool(states, real, mode, True), clean)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("name", ["decoder", "chat", "encoder", "classifier", "tagger", "mlm", "translator"])
def test_what_looks_inside_says_nothing_of_its_own(spoilt: Any, name: str, value: float, tmp_path: Path) -> None:
    """No warning of numpy's reaches a person: an answer, or a sentence."""
    model = regard.load(spoilt(name, value))
    trace = model.trace(BAD, GOOD) if name == "translator" else model.trace(BAD)
    for node in trace.nodes():
        assert trace[node].size
        trace.why(node, (0,) * trace[node].ndim)
    edited = trace.edit({trace.nodes()[0]: "zero"})
    trace.compare(edited)
    trace.html(tmp_path / "trace.html")
    for look in LENSES:
        try:
            look(trace)
        except RegardError:
            continue
