"""Generation as events, over a real connection where that matters."""

import json
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

import regard
from regard.api import Model
from regard.engine.generate import Token
from regard.errors import GenerationError
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry

WISH: dict[str, Any] = {
    "model": "toy-gpt",
    "text": "One day the cat",
    "max_new_tokens": 8,
    "temperature": 0.9,
    "seed": 11,
}


def events(text: str) -> list[dict]:
    blocks = [block for block in text.split("\n\n") if block]
    assert all(block.startswith("data: ") for block in blocks)
    return [json.loads(block[6:]) for block in blocks]


def test_the_events_are_the_tokens_of_generate(client):
    answer = client.post("/api/generate", json=WISH)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *tokens, done = events(answer.text)
    settings = {"max_new_tokens": 8, "temperature": 0.9, "seed": 11}
    (own,) = regard.load("toy-gpt").answers(WISH["text"], **settings)[0]
    assert [each["id"] for each in tokens] == own.ids
    assert done == {"done": True, "text": own.text, "seed": 11}
    assert "".join(each["text"] for each in tokens) == own.text
    for each, logprob in zip(tokens, own.logprobs, strict=True):
        assert each["probability"] == pytest.approx(math.exp(logprob), rel=1e-4)
        likely = [p for _, _, p in each["candidates"]]
        assert len(likely) == 10
        assert likely == sorted(likely, reverse=True)


def test_a_fresh_seed_is_reported_and_reproduces_the_text(client):
    first = client.post("/api/generate", json=WISH | {"seed": None}).text
    seed = events(first)[-1]["seed"]
    assert events(client.post("/api/generate", json=WISH | {"seed": seed}).text) == events(first)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"text": ""}, "The text is empty"),
        ({"temperature": -1}, "temperature is -1"),
        ({"top_p": 0}, "top_p is 0"),
        ({"max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"model": "toy-bert"}, "cannot generate text"),
        ({"num_beams": 4}, "num_beams"),
        ({"stop": ["x"] * 100}, "stop has 100 strings"),
    ],
)
def test_an_invalid_request_is_refused_before_the_stream(client, wrong, words):
    answer = client.post("/api/generate", json=WISH | wrong)
    assert answer.status_code == 400
    assert words in answer.json()["error"]


def test_an_error_during_generation_is_the_last_event(client, monkeypatch):
    def broken(self: Model, *given: object, **more: object) -> Iterator[Token]:
        yield Token(0, 5, -1.0, "a")
        raise GenerationError("The logits of row 0 hold nan.")

    monkeypatch.setattr(Model, "stream_tokens", broken)
    first, last = events(client.post("/api/generate", json=WISH).text)
    assert (first["id"], last) == (5, {"error": "The logits of row 0 hold nan."})


@pytest.fixture
def address(page) -> Iterator[str]:
    """A real server on a real socket."""
    server = uvicorn.Server(uvicorn.Config(make_app(ModelRegistry(), page=page), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_generation_ends_when_the_client_disconnects(address, monkeypatch):
    written: list[int] = []

    def endless(self: Model, *given: object, **more: object) -> Iterator[Token]:
        try:
            while True:
                time.sleep(0.01)
                written.append(len(written))
                yield Token(0, 5, -1.0, "a")
        finally:
            written.append(-1)

    monkeypatch.setattr(Model, "stream_tokens", endless)
    with httpx.stream("POST", f"{address}/api/generate", json=WISH, timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(6):
            next(lines)
    deadline = time.monotonic() + 30
    while written[-1] != -1:
        assert time.monotonic() < deadline, "still writing for nobody"
        time.sleep(0.01)


def test_a_slow_request_does_not_block_the_page(address, monkeypatch):
    begun, release = threading.Event(), threading.Event()

    def slow(self: ModelRegistry, name: str) -> Model:
        begun.set()
        release.wait(60)
        raise GenerationError("Waited.")

    monkeypatch.setattr(ModelRegistry, "model", slow)
    asked: dict[str, Any] = {"json": {"model": "toy-gpt", "text": "a"}, "timeout": 90}
    waiting = threading.Thread(target=lambda: httpx.post(f"{address}/api/trace", **asked))
    waiting.start()
    try:
        assert begun.wait(60)
        assert httpx.get(f"{address}/page/main.js", timeout=30).status_code == 200
        assert httpx.get(f"{address}/api/lessons", timeout=30).status_code == 200
        assert waiting.is_alive()
    finally:
        release.set()
        waiting.join()
