"""The server under bad requests, bad clients and too many of them: who is at fault feels it, and nobody else."""

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import ValidationError

import regard
import serving
from regard.engine.slots import NativeSlots
from regard.engine.top_k import Floats
from regard.serve import guard
from regard.serve.access_log import JsonFormatter
from regard.serve.guard import MAX_HEADERS
from regard.serve.json_limits import MAX_DEPTH, MAX_PARTS, depth, parts, structure
from regard.serve.model_registry import ModelRegistry
from regard.serve.openai import MAX_BODY
from regard.serve.request_schema import CompletionRequest
from regard.serve.served_models import ServedModels

KEY = "a key that nobody knows"
ASK: dict[str, Any] = {"model": "toy-gpt", "prompt": "The old king", "temperature": 0, "max_tokens": 8}
NOBODY: Any = None  # no application behind the door
LONG = ASK | {"max_tokens": 120, "logit_bias": {"0": -100}}  # the end token is out of reach


class Gated(NativeSlots):
    """Lanes whose steps can be stopped, slowed, or made to fail on a token."""

    gate = threading.Event()
    pause = 0.0
    poison = -1

    def feed(self, pieces: Any) -> Floats:
        self.gate.wait()
        time.sleep(self.pause)
        if any(self.poison in piece.ids for piece in pieces):
            raise ZeroDivisionError("what the user wrote")
        return super().feed(pieces)


@pytest.fixture
def gated(monkeypatch) -> Iterator[type[Gated]]:
    monkeypatch.setattr(regard.Model, "slots", lambda model, count, capacity: Gated(model.engine, count, capacity))
    Gated.gate.set()
    yield Gated
    Gated.gate.set()
    Gated.pause, Gated.poison = 0.0, -1


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    return folder


@contextmanager
def served(page: Path, *, unread: int | None = None, **settings: Any) -> Iterator[tuple[httpx.Client, Any]]:
    app = serving.server_of(["toy-gpt"], page, **settings)
    with serving.running(app, unread=unread) as address, httpx.Client(base_url=address, timeout=60) as client:
        try:
            yield client, app.state.served
        finally:
            Gated.gate.set()


@pytest.fixture(scope="module")
def plain(page) -> Iterator[httpx.Client]:
    with served(page, slots=2) as (client, _):
        yield client


def counts(models: Any) -> Any:
    return models.get("toy-gpt").scheduler.counts()


# ── too large ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("said", [True, False])
def test_a_body_over_the_limit_is_413(plain, said):
    body = json.dumps(ASK | {"prompt": "a" * MAX_BODY}).encode()
    content = body if said else iter([body[:1000], body[1000:]])
    answer = plain.post("/v1/completions", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_headers_over_the_limit_are_431(plain):
    answer = plain.get("/v1/models", headers={"X-Long": "a" * MAX_HEADERS})
    assert answer.status_code == 431
    assert "headers" in answer.json()["error"]["message"]
    many = [(f"X-{i}", "a" * 100) for i in range(MAX_HEADERS // 100)]
    assert plain.get("/v1/models", headers=many).status_code == 431
    assert plain.get("/v1/models", headers={"X-Long": "a" * (MAX_HEADERS // 2)}).status_code == 200


def test_headers_without_end_are_cut_off(plain):
    with socket.create_connection((plain.base_url.host, plain.base_url.port), timeout=30) as door:
        door.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            door.sendall(b"a" * (64 << 20))
    assert plain.get("/health").status_code == 200


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_json_nested_too_deep_is_400(plain, levels):
    body = b'{"model": "toy-gpt", "prompt": ' + b"[" * levels + b"]" * levels + b"}"
    answer = plain.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == f"The JSON is nested deeper than {MAX_DEPTH} levels."


def test_structure_is_of_brackets_and_not_of_texts():
    assert structure(b'{"a": [1, {"b": []}]}') == b"{:[{:[]}]}"
    assert structure(rb'{"a": "[[[[\"[[[[\\"}') == b"{:}"
    assert structure(b'{"a": "[[[[') == structure(b'{"a": "[[[[\\') == b"{:"
    assert structure(b'"\xff[\n\\\n["]') == b"]"
    assert (depth(b"{:[{:[]}]}"), depth(b"]]["), depth(b""), parts(b"{:[{:[]}]}")) == (4, 0, 0, 6)
    begin = time.thread_time()
    for body in (rb'"\"', rb"\"", rb'"', rb"[", rb'"a":'):
        depth(structure(body * (MAX_BODY // len(body))))
    assert time.thread_time() - begin < 3


MANY_WRONG: dict[str, dict[str, Any]] = {
    "objects for prompts": {"prompt": [{}] * 500_000},
    "lists for prompts": {"prompt": [["x"]] * 290_000},
    "numbers and texts": {"prompt": [1] * 690_000 + ["a"]},
    "texts": {"prompt": ["a"] * 400_000},
    "biases": {"logit_bias": {str(i): "x" for i in range(120_000)}},
    "fields": {str(i): 0 for i in range(120_000)},
    "stops": {"stop": [0] * 600_000},
    "layers": {"explain": {"layers": ["x"] * 400_000}},
}


@pytest.mark.parametrize("name", MANY_WRONG)
def test_a_body_of_a_million_mistakes_is_refused_for_the_first(plain, name):
    """While it is checked nobody else is served."""
    body = json.dumps(ASK | MANY_WRONG[name]).encode()
    assert len(body) <= MAX_BODY
    said = plain.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert said.status_code == 400
    assert len(said.content) < 1000
    begin = time.process_time()
    with pytest.raises(ValidationError) as wrong:
        CompletionRequest.model_validate(json.loads(body) if parts(structure(body)) <= MAX_PARTS else {})
    assert wrong.value.error_count() < 10
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"', b'{"model": "toy-gpt"'])
def test_what_is_not_a_request_is_400_with_the_error_object(plain, body):
    ways = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/translations", "/tokenize", "/detokenize")
    for path in ways:
        answer = plain.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, path
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# ── who may ask ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def keyed(page) -> Iterator[httpx.Client]:
    with served(page, slots=2, key=KEY) as (client, _):
        yield client


PATHS = [
    *("/", "/page/main.js", "/api/models", "/api/trace", "/openapi.json", "/metrics", "/tokenize", "/detokenize"),
    *(
        "/v1/models",
        "/v1/models/toy-gpt",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/translations",
        "/nothing",
    ),
]


@pytest.mark.parametrize("path", PATHS)
def test_every_route_wants_the_key(keyed, path):
    wrong = [None, "", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"Token {KEY}", "Basic !!!", "Basic YTpi"]
    for header in wrong:
        headers = {} if header is None else {"Authorization": header}
        for method in ("GET", "POST"):
            answer = keyed.request(method, path, headers=headers)
            assert answer.status_code == 401, header
            assert answer.headers["www-authenticate"].startswith("Basic" if path == "/" else "Bearer")


def test_health_does_not_want_it_and_the_right_key_opens(keyed):
    assert keyed.get("/health").status_code == 200
    assert keyed.get("/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
    assert keyed.get("/", auth=("anybody", KEY)).status_code == 200  # a browser sends it as a password
    with openai.OpenAI(base_url=f"{keyed.base_url}/v1", api_key=KEY, max_retries=0) as client:
        assert client.completions.create(**ASK).choices[0].text
    with (
        openai.OpenAI(base_url=f"{keyed.base_url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        client.completions.create(**ASK)
    assert refused.value.code == "invalid_api_key"


def test_keys_are_compared_in_constant_time(monkeypatch):
    """Digests of equal length go through compare_digest, whatever was sent."""
    compared = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return a == b

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    door = guard.Guard(NOBODY, "127.0.0.1", key=KEY)
    headers = ["", "Bearer x", f"Bearer {KEY}", f"Basic {'A' * 400}", f"Digest {KEY}", "Bearer " + "y" * 1000]
    assert [door.is_authorized(header) for header in headers] == [False, False, True, False, False, False]
    assert compared == [(32, 32)] * len(headers)


def test_logs_have_no_key_no_prompt_and_no_answer(page, caplog, gated):
    with caplog.at_level(logging.DEBUG), served(page, slots=2, key=KEY) as (client, _):
        good = {"Authorization": f"Bearer {KEY}"}
        said = client.post("/v1/completions", json=ASK, headers=good).json()["choices"][0]["text"]
        client.post("/v1/completions?q=secret-query", json=ASK, headers={"Authorization": "Bearer wrong-key"})
        client.post("/v1/completions", json=ASK | {"surprise": "private words"}, headers=good)
        gated.poison = regard.load("toy-gpt").tokenizer.encode(" king")[0]
        assert client.post("/v1/completions", json=ASK, headers=good).status_code == 500
        client.request("SECRETMETHOD", "/secret-path", headers=good)
    lines = [
        JsonFormatter().format(record) for record in caplog.records if record.name.startswith(("regard", "uvicorn"))
    ]
    facts = [json.loads(line) for line in lines]
    requests = [line for line in facts if line.get("event") == "request"]
    assert [line["status"] for line in requests] == [200, 401, 400, 500, 404]
    assert requests[0]["prompt_tokens"] == 4
    assert requests[0]["completion_tokens"] == 8
    assert requests[0]["model"] == "toy-gpt"
    whole = "\n".join(lines)
    for secret in (
        KEY,
        "wrong-key",
        "old king",
        said.strip(),
        "private",
        "secret-query",
        "what the user wrote",
        "SECRET",
    ):
        assert secret not in whole


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.7"])
def test_another_host_is_refused_on_loopback(plain, host):
    answer = plain.get("/v1/models", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_another_origin_is_refused(plain, origin):
    assert plain.post("/v1/completions", json=ASK, headers={"Origin": origin}).status_code == 403


def test_behind_a_name_the_key_is_what_counts():
    """Listening to the world with a key, any name will do; without one, only addresses."""
    assert guard.Guard(NOBODY, "0.0.0.0", key=KEY).is_own_host("models.example:8000")
    assert not guard.Guard(NOBODY, "0.0.0.0").is_own_host("models.example:8000")
    assert not guard.Guard(NOBODY, "127.0.0.1", key=KEY).is_own_host("models.example:8000")


# ── too many, too slow, gone ────────────────────────────────────────────────────────────────────────────────────────


def test_when_the_queue_is_full_the_rest_are_429_and_the_accepted_are_served(page, gated):
    with served(page, slots=2, queue=2) as (client, models):
        expected = client.post("/v1/completions", json=ASK).json()["choices"][0]["text"]
        gated.gate.clear()
        with ThreadPoolExecutor(8) as pool:
            first = [pool.submit(client.post, "/v1/completions", json=ASK) for _ in range(4)]
            serving.until(lambda: counts(models).busy + counts(models).waiting == 4)
            refused = [client.post("/v1/completions", json=ASK | {"stream": stream}) for stream in (False, True)]
            gated.gate.set()
            accepted = [future.result() for future in first]
        for answer in refused:
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.json()["error"]["type"] == "rate_limit_error"
        assert [answer.json()["choices"][0]["text"] for answer in accepted] == [expected] * 4
        assert client.post("/v1/completions", json=ASK).status_code == 200


def send(door: socket.socket, wish: dict[str, Any]) -> None:
    """A request by hand, so that its answer can be left unread."""
    body = json.dumps(wish).encode()
    head = ["POST /v1/completions HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    door.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)


@pytest.mark.parametrize("stream", [True, False])
def test_when_the_client_is_gone_its_slot_is_free_within_a_step(page, gated, stream):
    with served(page, slots=1, queue=4) as (client, models):
        client.post("/v1/completions", json=ASK)
        gated.pause = 0.05
        before = counts(models)
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as door:
            send(door, LONG | {"stream": stream})
            serving.until(lambda: counts(models).generated_tokens >= before.generated_tokens + 3)
        serving.until(lambda: counts(models).busy == 0)
        serving.until(lambda: counts(models).cancelled == before.cancelled + 1)
        after = counts(models)
        assert after.generated_tokens - before.generated_tokens < 60  # of 120
        gated.pause = 0.0
        assert client.post("/v1/completions", json=ASK).status_code == 200


def test_a_client_that_goes_while_it_waits_leaves_the_queue(page, gated):
    with served(page, slots=1, queue=1) as (client, models):
        client.post("/v1/completions", json=ASK)
        gated.gate.clear()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(client.post, "/v1/completions", json=ASK)
            serving.until(lambda: counts(models).busy == 1)
            with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=client.base_url, timeout=0.5) as hasty:
                hasty.post("/v1/completions", json=ASK)
            serving.until(lambda: counts(models).waiting == 0)
            gated.gate.set()
            assert first.result().status_code == 200


def test_a_client_that_reads_nothing_holds_up_nobody(page):
    """Its answer waits in its own queue; its slot is free as soon as the text is written, and others are served."""
    with served(page, unread=4096, slots=2, queue=8) as (client, models):
        expected = client.post("/v1/completions", json=ASK).json()["choices"][0]["text"]
        doors = []
        for _ in range(2):
            door = socket.socket()
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            door.settimeout(60)
            door.connect((client.base_url.host, client.base_url.port))
            send(door, LONG | {"stream": True, "logprobs": 20, "n": 2})
            doors.append(door)
        for _ in range(3):
            assert client.post("/v1/completions", json=ASK).json()["choices"][0]["text"] == expected
        serving.until(lambda: counts(models).busy == 0, 60)
        assert counts(models).finished >= 2 * 2 + 4
        alone = client.post("/v1/completions", json=LONG).json()["choices"][0]["text"]
        for door in doors:  # and when it reads at last, nothing is missing
            received = b""
            while b"data: [DONE]" not in received:
                received += door.recv(1 << 16)
            parts = [json.loads(event)["choices"][0] for event in re.findall(rb"data: (\{.*\})\n\n", received)]
            for index in range(2):
                assert "".join(part["text"] for part in parts if part["index"] == index) == alone
            door.close()


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_weights_that_are_cut_short_while_they_are_served_are_a_sentence(page, tmp_path, kind):
    """What writes has its weights; the network, which is made when somebody looks, is refused. Through a map it would be
    the end of the process."""
    place = regard.load("toy-gpt").save(tmp_path / ("model" if kind == "hf" else "model.gguf"), kind)
    app = serving.server_of([place], page, slots=2)
    with serving.running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        ask = ASK | {"model": "model"}
        before = client.post("/v1/completions", json=ask).json()["choices"][0]["text"]
        file = next(place.glob("*.safetensors")) if place.is_dir() else place
        os.truncate(file, file.stat().st_size // 2)
        asked = [("/v1/completions", ask | {"explain": {}}), ("/api/trace", {"model": "model", "text": "The old king"})]
        for path, wish in asked:
            answer = client.post(path, json=wish)
            assert answer.status_code == 400
            assert "has been written to since it was opened" in answer.text
        assert client.post("/v1/completions", json=ask).json()["choices"][0]["text"] == before


# ── failures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_request_fails_alone(page, gated):
    with served(page, slots=4) as (client, models):
        model = regard.load("toy-gpt")
        other = ASK | {"prompt": "Sara loved a red ring", "max_tokens": 30}
        expected = client.post("/v1/completions", json=other).json()["choices"][0]["text"]
        (gated.poison,) = model.tokenizer.encode(" king")
        assert gated.poison not in model.tokenizer.encode(other["prompt"] + expected)
        gated.gate.clear()
        with ThreadPoolExecutor(4) as pool:
            good = [pool.submit(client.post, "/v1/completions", json=other) for _ in range(2)]
            bad = pool.submit(client.post, "/v1/completions", json=ASK)
            serving.until(lambda: counts(models).busy + counts(models).waiting == 3)
            gated.gate.set()
            assert [future.result().json()["choices"][0]["text"] for future in good] == [expected] * 2
            failed = bad.result()
        assert failed.status_code == 500
        assert failed.json()["error"] == {
            "message": "Something inside went wrong with this request.",
            "type": "server_error",
            "param": None,
            "code": None,
        }
        assert (counts(models).busy, counts(models).failed) == (0, 1)


def test_what_fails_after_the_first_token_ends_the_stream_in_words(page, gated):
    with served(page, slots=1) as (client, _):
        model = regard.load("toy-gpt")
        prompt = model.tokenizer.encode(ASK["prompt"])
        ids = model.answers(prompt, temperature=0, max_new_tokens=8)[0][0].ids
        gated.poison = next(id for i, id in enumerate(ids) if i >= 3 and id not in [*prompt, *ids[:i]])
        body = client.post("/v1/completions", json=ASK | {"stream": True}).text
        *chunks, error, done, _ = body.split("\n\n")
        assert len(chunks) >= 3
        assert json.loads(error.removeprefix("data: "))["error"]["type"] == "server_error"
        assert done == "data: [DONE]"
        gated.poison = -1
        with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="-", max_retries=0) as official:
            assert official.completions.create(**ASK).choices[0].text


def test_a_model_that_must_make_room_finishes_what_it_has_begun(page, tmp_path, gated):
    """Two models in the memory of one: the one in use is dropped, serves its request to the end, and comes back."""
    chat = serving.make_chat_model(tmp_path)
    app = serving.server_of(["toy-gpt", chat], page, slots=1)
    registry = app.state.served.registry
    registry._loaded.max_items = 1
    with serving.running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        expected = client.post("/v1/completions", json=LONG).json()["choices"][0]["text"]
        first = app.state.served.get("toy-gpt")
        gated.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(client.post, "/v1/completions", json=LONG)
            serving.until(lambda: first.scheduler.counts().busy == 1)
            app.state.served.get(serving.CHAT)
            assert [each.name for each in app.state.served.running()] == [serving.CHAT]
            gated.gate.set()
            assert running.result().json()["choices"][0]["text"] == expected
        assert client.post("/v1/completions", json=LONG).json()["choices"][0]["text"] == expected
        assert app.state.served.get("toy-gpt") is not first
        assert not first.scheduler._thread.is_alive()


def test_caches_have_a_bound_and_what_cannot_fit_is_refused(page, caplog):
    token = 2 * 4 * 128 * 4
    with caplog.at_level(logging.WARNING):
        models = ServedModels(ModelRegistry(["toy-gpt"], max_bytes=4 * 128 * token * 3), slots=8)
        assert models.get("toy-gpt").scheduler.slots.n_slots == 3
        models.close()
    assert "3 slots instead of 8" in caplog.text
    small = ServedModels(ModelRegistry(["toy-gpt"], max_bytes=4 * 100 * token))
    with pytest.raises(regard.RegardError, match="smaller --context"):
        small.get("toy-gpt")
    fits = ServedModels(ModelRegistry(["toy-gpt"], max_bytes=4 * 100 * token), context=50)
    assert fits.get("toy-gpt").context == 50
    fits.close()


# ── many at once ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_streams_with_cancellations_are_each_what_they_are_alone(page):
    """The short form of `python -m bench.load`."""
    from bench.load import Load, serial_reference

    model = regard.load("toy-gpt")
    expected = serial_reference(model, model.spec.context, distinct=12)
    app = serving.server_of(["toy-gpt"], page, slots=6, queue=64)
    with serving.running(app) as address:
        load = Load(address, "toy-gpt", expected, streams=64, cancelled=0.2)
        serving.run_async(load.run(requests=96))
        final = counts(app.state.served)
    assert load.wrong == []
    assert load.finished + load.disconnected == 96
    assert load.disconnected >= 5
    assert load.refused == 0
    assert (final.busy, final.waiting, final.failed) == (0, 0, 0)
