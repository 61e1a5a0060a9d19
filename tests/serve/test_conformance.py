"""Conformance with OpenAI's interface besides its answers: answers sent back as messages, methods, errors, metrics."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

import regard
import serving
from regard.serve.metrics import Metrics
from regard.serve.model_registry import ModelRegistry
from regard.serve.served_models import ServedModels

CHAT = {"model": serving.CHAT, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0}
PLAIN = {"model": "toy-gpt", "prompt": "The old king", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def http(live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live}/v1", api_key="none", max_retries=0) as client:
        yield client


# ── conversations ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("as_sent", [lambda message: message, lambda message: message.model_dump()])
def test_an_answer_can_be_sent_back_as_a_message(client, chat_model, as_sent):
    """As the client's users do: `messages.append(answer.choices[0].message)`, or that with every field it could have."""
    messages: list[Any] = [{"role": "user", "content": "the quick brown fox"}]
    first = client.chat.completions.create(model=serving.CHAT, messages=messages, max_tokens=6, seed=1)
    messages += [as_sent(first.choices[0].message), {"role": "user", "content": "and then?"}]
    second = client.chat.completions.create(model=serving.CHAT, messages=messages, max_tokens=6, seed=1)
    plain = [{"role": "assistant", "content": first.choices[0].message.content}]
    ids = regard.load(chat_model).chat_ids([messages[0], *plain, messages[2]])
    assert second.usage.prompt_tokens == len(ids)


def test_max_completion_tokens_is_max_tokens(client):
    told = client.chat.completions.create(**(CHAT | {"max_tokens": openai.NOT_GIVEN, "max_completion_tokens": 2}))
    assert told.usage.completion_tokens == 2
    assert client.chat.completions.create(**CHAT, max_completion_tokens=3).usage.completion_tokens == 3


def test_a_logit_bias_of_plus_or_minus_100_decides(client):
    always = client.completions.create(**(PLAIN | {"temperature": 1}), logit_bias={"44": 100}, logprobs=0)
    assert len(set(always.choices[0].logprobs.tokens)) == 1
    first = client.completions.create(**PLAIN, logprobs=0).choices[0].logprobs.tokens[0]
    (id,) = regard.load("toy-gpt").tokenizer.encode(first)
    never = client.completions.create(**PLAIN, logit_bias={str(id): -100}, logprobs=0)
    assert first not in never.choices[0].logprobs.tokens


def test_the_answers_of_a_stream_have_indices_and_each_ends_once(client):
    chunks = list(client.completions.create(**(PLAIN | {"n": 3, "temperature": 1, "seed": 5}), stream=True))
    whole = client.completions.create(**(PLAIN | {"n": 3, "temperature": 1, "seed": 5}))
    for choice in whole.choices:
        mine = [c.choices[0] for c in chunks if c.choices[0].index == choice.index]
        assert "".join(part.text for part in mine) == choice.text
        assert [part.finish_reason for part in mine if part.finish_reason] == [choice.finish_reason]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"top_logprobs": 1}, "top_logprobs", "top_logprobs goes with logprobs."),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
        ({"max_completion_tokens": 4}, "max_tokens", "max_tokens and max_completion_tokens mean the same and differ."),
        ({"stream_options": {}}, "stream_options", "stream_options goes with stream."),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options", "'stream_options.x' is not a field"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "messages.0.role: Input should be 'system'"),
        ({"messages": [{"role": "user", "content": None}]}, "messages", "messages.0.content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]},
            "messages",
            "messages.0.content.0.type: Input should be 'text'.",
        ),
        ({"messages": [{"role": "user", "content": "x", "name": "me"}]}, "messages", "'messages.0.name'"),
        ({"messages": [{"role": "assistant", "content": "x", "refusal": "no"}]}, "messages", "messages.0.refusal"),
        ({"logit_bias": {"5": -100.5}}, "logit_bias", "greater than or equal to -100"),
        ({"stop": ["x"] * 65}, "stop", "at most 64"),
    ],
)
def test_an_error_names_the_field_and_the_reason(http, change, param, words):
    answer = http.post("/v1/chat/completions", json=CHAT | change)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert words in error["message"]
    assert "Value error" not in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": "the sea " * 2000}]}, "messages"),
        ("/v1/completions", PLAIN | {"prompt": "The old king " * 2000}, "prompt"),
    ],
)
def test_a_prompt_beyond_the_context_has_the_error_code_of_openai(http, path, body, param):
    answer = http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, "context_length_exceeded")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_than_json_is_refused(http, kind):
    answer = http.post("/v1/completions", content=b'{"model": "toy-gpt"}', headers={"Content-Type": kind})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(
        "A request is a JSON object, sent with Content-Type: application"
    )


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/chat/completions", 405, "POST"),
        ("OPTIONS", "/v1/completions", 405, "POST"),
        ("HEAD", "/v1/embeddings", 405, "POST"),
        ("POST", "/v1/models", 405, "GET"),
        ("DELETE", "/v1/models/toy-gpt", 405, "GET"),
        ("GET", "/v1", 404, None),
        ("POST", "/v1/responses", 404, None),
        ("HEAD", "/v1/nothing", 404, None),
    ],
)
def test_other_methods_are_refused_and_allow_names_the_right_one(http, method, path, status, allow):
    answer = http.request(method, path)
    assert (answer.status_code, answer.headers.get("allow")) == (status, allow)
    if method != "HEAD":
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/toy-gpt", "/metrics", "/"])
def test_head_is_get_without_the_body(http, path):
    head, get = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path.startswith("/v1"):
        assert head.headers["content-length"] == str(len(get.content))
    route = "/v1/models/{name}" if path.endswith("toy-gpt") else path
    assert f'regard_requests_total{{route="{route}",status="200"}}' in http.get("/metrics").text


# ── metrics ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse(text: str) -> dict[str, tuple[str, str, list[tuple[str, dict[str, str], float]]]]:
    """Prometheus' text format: family → its type, its help, its samples."""
    assert text.endswith("\n")
    families: dict[str, tuple[str, str, list[Any]]] = {}
    helps: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert name not in helps
            helps[name] = words
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped")
            families[name] = (kind, helps[name], [])
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            labels = LABEL.findall(found["labels"] or "")
            assert ",".join(f'{k}="{v}"' for k, v in labels) == (found["labels"] or "")
            last = next(reversed(families))  # samples stand behind their family
            suffixes = ("_bucket", "_sum", "_count") if families[last][0] == "histogram" else ("",)
            assert found["name"] in [last + suffix for suffix in suffixes]
            families[last][2].append((found["name"], dict(labels), float(found["value"])))
    return families


def test_metrics_are_in_prometheus_format(http, client):
    client.completions.create(**PLAIN)
    families = parse(http.get("/metrics").text)
    assert all(name.startswith("regard_") and words.endswith(".") for name, (_, words, _) in families.items())
    assert all(name.endswith("_total") == (kind == "counter") for name, (kind, _, _) in families.items())
    histograms = [name for name, (kind, _, _) in families.items() if kind == "histogram"]
    assert sorted(histograms) == ["regard_request_seconds", "regard_time_to_first_token_seconds"]
    for name in histograms:
        samples = families[name][2]
        counted = [each for each in samples if each[0] == f"{name}_count"]
        assert {"toy-gpt"} <= {labels.get("model", "toy-gpt") for _, labels, _ in counted}
        for count in counted:
            mine = [s for s in samples if s[0] == f"{name}_bucket" and {**s[1], "le": ""} == {**count[1], "le": ""}]
            values = [value for _, _, value in mine]
            bounds = [float(labels["le"]) for _, labels, _ in mine]
            assert values == sorted(values)
            assert bounds == sorted(bounds)
            assert (bounds[-1], values[-1]) == (float("inf"), count[2])
    gauges = {name: samples for name, (kind, _, samples) in families.items() if kind == "gauge"}
    assert {labels["model"] for _, labels, _ in gauges["regard_slots"]} >= {"toy-gpt"}


def test_a_label_may_have_any_characters():
    metrics = Metrics(ServedModels(ModelRegistry()))
    metrics.requests.labels(route='q"\\\n', status="é").inc(2.5)
    _, _, samples = parse(metrics.text().decode())["regard_requests_total"]
    assert samples == [("regard_requests_total", {"route": r"q\"\\\n", "status": "é"}, 2.5)]


FAMILIES = (
    *("regard_requests_total", "regard_time_to_first_token_seconds", "regard_request_seconds", "regard_answers_total"),
    *("regard_refused_total", "regard_steps_total", "regard_prompt_tokens_total", "regard_reused_tokens_total"),
    *("regard_generated_tokens_total", "regard_slots", "regard_slots_busy", "regard_waiting"),
    "regard_cache_bytes_most",
)


def test_two_servers_of_a_process_have_separate_metrics():
    one, other = (Metrics(ServedModels(ModelRegistry())) for _ in range(2))
    one.requests.labels(route="/health", status="200").inc()
    one.seconds.labels(route="/health").observe(0.02)
    assert 'regard_requests_total{route="/health",status="200"} 1.0\n' in one.text().decode()
    empty = {name: samples for name, (_, _, samples) in parse(other.text().decode()).items()}
    assert empty == {name: [] for name in FAMILIES}
