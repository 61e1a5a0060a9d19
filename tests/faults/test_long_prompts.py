"""Texts of megabytes: refused or read without holding up the event loop, a few at a time, in little memory."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

import regard
import serving
from hostile import cheap
from regard.serve import json_limits
from regard.serve.embeddings import LONG_TEXTS
from regard.serve.request_schema import ChatRequest, CompletionRequest, DetokenizeRequest, EmbeddingRequest
from regard.text.tokenizer import Tokenizer

LONG = "the cat sat on the mat, 12 times " * 60_000  # close to the most that a body may have
UNCUT = "!?" * 900_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    chat = serving.make_chat_model(tmp_path_factory.mktemp("models"))
    app = serving.server_of([chat, "toy-bert", "toy-translate"], folder)
    with serving.running(app) as address, httpx.Client(base_url=address, timeout=120) as client:
        for model in (serving.CHAT, "toy-bert", "toy-translate"):
            assert client.post("/tokenize", json={"model": model, "prompt": "the"}).status_code == 200
        assert client.post("/v1/completions", json={"model": serving.CHAT, "prompt": "the", "max_tokens": 1}).is_success
        yield client


def asked(path: str, text: str) -> dict[str, Any]:
    model = {"/v1/embeddings": "toy-bert", "/v1/translations": "toy-translate"}.get(path, serving.CHAT)
    given = {"/v1/embeddings": "input", "/v1/translations": "input", "/v1/chat/completions": "messages"}
    text_or_messages = [{"role": "user", "content": text}] if "/chat/" in path else text
    return {"model": model, given.get(path, "prompt"): text_or_messages}


WRITING, READING = ("/v1/completions", "/v1/chat/completions"), ("/v1/embeddings", "/v1/translations")


@pytest.mark.parametrize("text", [LONG, UNCUT, LONG[:-40] + "<|im_end|>"], ids=["words", "signs", "control"])
@pytest.mark.parametrize("path", [*WRITING, *READING])
def test_a_text_of_megabytes_is_refused_cheaply(server: httpx.Client, path: str, text: str) -> None:
    if path == "/v1/embeddings" and text is UNCUT:
        text = "! " * 900_000  # a word of any length is one token to WordPiece
    with cheap(seconds=4, megabytes=150):
        answer = server.post(path, json=asked(path, text))
    error = answer.json()["error"]
    assert answer.status_code == 400
    if path in WRITING:
        param = "messages" if "/chat/" in path else "prompt"
        assert (error["param"], error["code"]) == (param, "context_length_exceeded")
    else:
        assert error["param"] == "input"
    assert "has more than" in error["message"]


@pytest.mark.parametrize("path", [*WRITING, *READING, "/tokenize"])
def test_no_text_is_tokenised_on_the_event_loop_and_long_ones_a_few_at_a_time(
    server: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The server answers others while all that it may tokenise at once is held up."""
    at_work, most, on_loop, gate, lock = 0, 0, False, threading.Event(), threading.Lock()
    encode = Tokenizer.encode_by

    def held(self: Tokenizer, *given: Any) -> list[int]:
        nonlocal at_work, most, on_loop
        with lock:
            at_work, on_loop = at_work + 1, on_loop or loop_runs_here()
            most = max(most, at_work)
        if len(given[2]) > 100_000:
            gate.wait(60)
        with lock:
            at_work -= 1
        return encode(self, *given)

    monkeypatch.setattr(Tokenizer, "encode_by", held)
    monkeypatch.setattr(Tokenizer, "check_length", lambda *given, **more: None)  # which would refuse it before
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(server.post, path, json=asked(path, LONG[:120_000])) for _ in range(6)]
        try:
            while not most:
                assert not any(each.done() for each in waiting)
            assert server.get("/health").is_success
            short = server.post("/v1/completions", json={"model": serving.CHAT, "prompt": "the", "max_tokens": 1})
            assert short.is_success
        finally:
            gate.set()
        answers = [each.result() for each in waiting]
    assert {answer.status_code for answer in answers} == {200 if path == "/tokenize" else 400}
    assert most <= max(LONG_TEXTS, 2) + 1  # and the short one
    assert not on_loop


def loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_a_long_text_is_tokenised_and_ids_are_read_back(server: httpx.Client) -> None:
    text = LONG[:400_000]
    with cheap(seconds=20, megabytes=150):
        found = server.post("/tokenize", json={"model": serving.CHAT, "prompt": text}).json()
        back = server.post("/detokenize", json={"model": serving.CHAT, "tokens": found["tokens"]}).json()
    assert back["prompt"] == text
    assert found["count"] == len(found["tokens"]) > 100_000


@pytest.mark.parametrize("text", ["the cat " * 70_000, "字" * 200_000, "\ud800" * 200_000])
def test_what_is_tokenised_without_a_context_has_a_limit_of_its_own(server: httpx.Client, text: str) -> None:
    with cheap(seconds=1, megabytes=50):
        body = json.dumps({"model": serving.CHAT, "prompt": text})
        answer = server.post("/tokenize", content=body, headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "prompt")
    assert re.fullmatch(
        r"prompt has [56]\d\d,000 bytes; 524,288 are tokenised at once: send it in parts\.", error["message"]
    )


@pytest.mark.parametrize(
    ("wish", "given"),
    [
        (CompletionRequest, {"prompt": [-1] * 500_000}),
        (CompletionRequest, {"prompt": [[1]] * 500_000}),
        (EmbeddingRequest, {"input": [""] * 500_000}),
        (DetokenizeRequest, {"tokens": ["x"] * 500_000}),
        (ChatRequest, {"messages": [{"role": "user", "content": [{"type": "picture"}] * 60_000}]}),
        (ChatRequest, {"messages": [{}] * 500_000}),
    ],
)
def test_many_bad_items_are_refused_for_the_first(wish: Any, given: dict[str, Any]) -> None:
    """Checking is done on the event loop, where a million errors would take seconds and gigabytes."""
    with cheap(seconds=1), pytest.raises(ValidationError) as caught:
        wish(model="x", **given)
    assert caught.value.error_count() < 20


def test_a_large_body_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch, server: httpx.Client) -> None:
    threads = list[bool]()
    parsed = json_limits.parse

    def seen(body: bytes) -> Any:
        threads.append(loop_runs_here())
        return parsed(body)

    monkeypatch.setattr(json_limits, "parse", seen)
    for text in ("the", LONG):
        server.post("/v1/completions", json=asked("/v1/completions", text))
    assert threads == [True, False]


def test_large_bodies_are_parsed_one_at_a_time(monkeypatch: pytest.MonkeyPatch, server: httpx.Client) -> None:
    """Several threads that hold Python's lock would leave little of it to those that write."""
    at_work, most, lock, parsed = 0, 0, threading.Lock(), json_limits.parse

    def counted(body: bytes) -> Any:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02)  # in which another would begin
        with lock:
            at_work -= 1
        return parsed(body)

    monkeypatch.setattr(json_limits, "parse", counted)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: server.post("/v1/completions", json=asked("/v1/completions", LONG)), range(6)))
    assert most == 1


def test_a_body_with_few_brackets_is_not_searched_for_those_in_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = list[bytes]()
    structure = json_limits.structure

    def noted(body: bytes) -> bytes:
        searched.append(body)
        return structure(body)

    monkeypatch.setattr(json_limits, "structure", noted)
    for text in ("很久以前" * 10_000, "[" * 100, "[{" * 40_000, ":" * 40_000):
        assert json_limits.parse(json.dumps({"prompt": text}).encode()) == {"prompt": text}
    assert len(searched) == 3


def test_a_text_to_embed_is_tokenised_once(monkeypatch: pytest.MonkeyPatch, server: httpx.Client) -> None:
    again, encode_batch = list[str](), Tokenizer.encode_batch

    def seen(self: Tokenizer, texts: Any, **given: Any) -> list[list[int]]:
        again.extend(texts)
        return encode_batch(self, texts, **given)

    monkeypatch.setattr(Tokenizer, "encode_batch", seen)
    texts = ["the cat " * 10, "a" * 500_000]
    found = server.post("/v1/embeddings", json={"model": "toy-bert", "input": texts}).json()["data"]
    assert not again
    for each, vector in zip(found, regard.load("toy-bert").embed(texts).tolist(), strict=True):
        assert each["embedding"] == pytest.approx(vector, abs=1e-6)


@pytest.mark.parametrize("body", [b'"\\' * 700_000, b'"' * 1_400_000, b"[" * 1_400_000, b"\\" * 1_400_000])
def test_the_depth_of_any_body_is_found_in_linear_time_and_memory(body: bytes) -> None:
    with cheap(seconds=5, megabytes=200):  # what is quadratic takes hours
        json_limits.depth(json_limits.structure(body))
    assert json_limits.depth(json_limits.structure(json.dumps({"a": ['\\["[' * 1000]}).encode())) == 2


def test_the_page_reads_long_texts_no_further_than_it_may(server: httpx.Client) -> None:
    answer = server.post("/api/trace", json={"model": serving.CHAT, "text": "the cat " * 2400})
    assert answer.status_code == 400
    assert re.search(r"has [\d,]+ tokens; with tiny-chat, at most 256 can be traced", answer.text)
