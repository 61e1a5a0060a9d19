"""A served GGUF file: its quantized blocks generate; the reference network is built only for `explain`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import regard
import serving
from regard.serve.response_schema import TextCompletion

WISH: dict[str, Any] = {"model": "toy", "prompt": "The old king", "temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module", params=["q8_0", "q4_1"])
def served(request, tmp_path_factory, page) -> Iterator[tuple[httpx.Client, regard.Model]]:
    place: Path = tmp_path_factory.mktemp("gguf") / "toy.gguf"
    regard.load("toy-gpt").save(place, format="gguf", quantize=request.param)
    app = serving.server_of([place], page, slots=2)
    with serving.running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client, app.state.served.model("toy")


def test_generating_and_scoring_do_not_build_the_reference(served):
    client, model = served
    whole = client.post("/v1/completions", json=WISH | {"logprobs": 2, "echo": True}).json()
    told: Any = TextCompletion.model_validate(whole).choices[0]
    client.post("/v1/completions", json=WISH | {"stream": True, "temperature": 1, "n": 2})
    assert model._net is None
    assert model.nbytes < 3_000_000  # of 3.6 MB in float32
    again = regard.load(model.path)
    (answer,) = again.answers(WISH["prompt"], temperature=0, max_new_tokens=8)[0]
    assert told.text == WISH["prompt"] + answer.text
    n = len(told.logprobs.tokens) - len(answer.ids)
    assert told.logprobs.token_logprobs[n:] == answer.logprobs
    reference = regard.load(model.path, engine="torch").score(WISH["prompt"])
    assert told.logprobs.token_logprobs[1:n] == pytest.approx(list(reference), abs=0.05)


def test_an_echoed_text_has_the_log_probabilities_of_its_generation(served):
    """Prefill and decode steps run on the same engine: the same numbers, to the bit."""
    client, _ = served
    wish = WISH | {"max_tokens": 90, "logprobs": 0}
    written = client.post("/v1/completions", json=wish).json()["choices"][0]
    prompt = client.post("/tokenize", json={"model": "toy", "prompt": WISH["prompt"]}).json()["tokens"]
    answer = client.post("/tokenize", json={"model": "toy", "prompt": WISH["prompt"] + written["text"]}).json()[
        "tokens"
    ]
    echoed = client.post("/v1/completions", json=wish | {"prompt": answer, "max_tokens": 0, "echo": True}).json()
    found, n = echoed["choices"][0]["logprobs"], len(prompt)
    assert found["tokens"][n : n + 64] == written["logprobs"]["tokens"][:64]
    assert found["token_logprobs"][n : n + 64] == written["logprobs"]["token_logprobs"][:64]


def test_the_replay_reports_its_difference_from_the_engine(served):
    """The reference computes with the same weights in float32 on the generated text and reports how close it is."""
    client, model = served
    wish = WISH | {"temperature": 1, "seed": 3, "max_tokens": 24, "explain": {"layers": [1], "heads": [2]}}
    told: Any = TextCompletion.model_validate(client.post("/v1/completions", json=wish).json()).choices[0].explain
    assert 0 < told.largest_logprob_difference < 0.1
    assert told.agrees == (told.differs_at is None)
    ids = model.tokenizer.encode(WISH["prompt"])
    (answer,) = model.answers(ids, temperature=1, seed=3, max_new_tokens=24)[0]
    assert told.tokens == model.tokenizer.pieces([*ids, *answer.ids])
    weights = model.trace([*ids, *answer.ids[:-1]])["decoder.1.attention.weights"][2, len(ids) - 1 :]
    np.testing.assert_allclose(told.attention[0][0], weights, rtol=0, atol=1e-6)
    assert model._reference is not None


ALONE = """
import sys
from starlette.testclient import TestClient
from regard.engine.threads import use_threads
from regard.serve.served_models import ServedModels
from regard.serve.openai import make_server
from regard.serve.model_registry import ModelRegistry
use_threads(1)
wish = {"model": "tiny", "temperature": 0, "max_tokens": 6, "messages": [{"role": "user", "content": "the sea"}]}
app = make_server(ServedModels(ModelRegistry([sys.argv[1]]), threads=1))
with TestClient(app, base_url="http://127.0.0.1:8000") as client:
    said = client.post("/v1/chat/completions", json=wish).json()["choices"][0]["message"]["content"]
    print(ascii(said), "torch" in sys.modules)
    client.post("/v1/chat/completions", json=wish | {"explain": {}}).raise_for_status()
    print("torch" in sys.modules)
"""


def test_a_server_does_not_import_pytorch(tmp_path, chat_model):
    """Neither for generation nor for traces."""
    place = tmp_path / "tiny.gguf"
    regard.load(chat_model).save(place, format="gguf", quantize="f16")
    ran = subprocess.run([sys.executable, "-c", ALONE, str(place)], capture_output=True, text=True, check=True)
    said = regard.load(place).chat("the sea", temperature=0, max_new_tokens=6)
    assert ran.stdout.splitlines() == [f"{said!a} False", "False"]
