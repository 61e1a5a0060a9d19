"""A model whose numbers are NaN or infinite gives an error in place of an answer, which JSON could not hold anyway."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import regard
import serving
import tiny_text
from regard.engine.encode import pool
from regard.errors import GenerationError

GOOD, BAD = "the cat", "the dog"


@pytest.fixture
def spoilt(tiny_model: Any, tmp_path: Path) -> Callable[..., Path]:
    """`spoilt(name)`: a tiny model in which a token of "the dog" has an embedding that is no number."""
    return lambda name, value=float("nan"): tiny_text.spoil(tiny_model(name), tmp_path / name, value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
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
    states, real = torch.randn(2, 3, 4), torch.tensor([[True, True, False], [True, True, True]])
    clean = pool(states, real, "mean", True)
    states[0, 2] = torch.nan
    assert torch.equal(pool(states, real, "mean", True), clean)
