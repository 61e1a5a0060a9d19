"""The HTTP interface: the format of streams, the other routes, attention on request, and the OpenAPI schema."""

import base64
import json
import re
import shutil
import struct
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import regard
import serving
from regard.serve.response_schema import ChatCompletion, Refused, TextCompletion

PLAIN = {"model": "toy-gpt", "prompt": "The old king", "temperature": 0, "max_tokens": 5}


@pytest.fixture(scope="module")
def http(live):
    with httpx.Client(base_url=live, timeout=60) as client:
        yield client


def test_a_stream_is_data_lines_that_end_in_done(http):
    with http.stream("POST", "/v1/completions", json=PLAIN | {"stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        body = answer.read().decode()
    events = body.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"


def test_usage_comes_last_and_is_null_before(http):
    body = PLAIN | {"stream": True, "stream_options": {"include_usage": True}}
    events = http.post("/v1/completions", json=body).text.split("\n\n")[:-2]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "explain": {}}, "explain"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": True}, "n"),
        ({"stop": ["a"] * 10_000}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 129}, "max_tokens"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"800": 1}}, "logit_bias"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [800]}, "prompt"),
        ({"prompt": [800], "echo": True}, "prompt"),
        ({"explain": {"layers": [4]}}, "explain"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"logprobs": 21}, "logprobs"),
        ({"seed": 2**64}, "seed"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"model": None}, "model"),
        ({"n": 100}, None),  # more than slots and queue hold
    ],
)
def test_values_out_of_range_are_refused_with_the_error_object(http, change, param):
    answer = http.post("/v1/completions", json=PLAIN | change)
    assert answer.status_code == 400, answer.text
    error = Refused.model_validate(answer.json()).error
    assert (error.type, error.param) == ("invalid_request_error", param)
    assert error.message.endswith(".")
    assert "Traceback" not in error.message
    assert "/" not in error.message  # where the model's files lie is nobody's business


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/detokenize", {"model": "toy-gpt", "tokens": [5, 10**6]}, "tokens"),
        ("/v1/embeddings", {"model": "toy-bert", "input": [2, 10**6]}, "input"),
        ("/v1/embeddings", {"model": "toy-bert", "input": "good " * 500}, "input"),
        ("/v1/embeddings", {"model": "toy-bert", "input": ["good"] * 2049}, "input"),
    ],
)
def test_errors_of_other_routes_name_the_field_and_no_file(http, path, body, param):
    answer = http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert "/" not in error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "toy-bert", "input": ["a"] * 2049}),
        ("/v1/completions", PLAIN | {"prompt": ["a"] * 2049}),
    ],
)
def test_the_error_for_too_many_texts_is_their_number_not_their_type(http, path, body):
    assert "at most 2048 items" in http.post(path, json=body).json()["error"]["message"]


def test_the_error_for_invalid_json_names_no_field(http):
    answer = http.post("/v1/completions", content=b'{"model":', headers={"Content-Type": "application/json"})
    assert answer.json()["error"] | {"type": ""} == {
        "message": "The body of the request is not JSON.",
        "type": "",
        "param": None,
        "code": None,
    }


def test_the_servers_context_limits_the_models(chat_model, page):
    with serving.running(serving.server_of([chat_model], page, context=32)) as address:
        told = httpx.post(f"{address}/tokenize", json={"model": serving.CHAT, "prompt": "a"}).json()
        assert told["max_model_len"] == 32
        for name in ("max_tokens", "max_completion_tokens"):
            body = {"model": serving.CHAT, "messages": [{"role": "user", "content": "a"}], name: 33}
            error = httpx.post(f"{address}/v1/chat/completions", json=body).json()["error"]
            assert error["message"] == f"{name} is 33: it must be at most the context of 32 tokens."
            assert error["param"] == name


def test_a_model_whose_files_were_deleted_does_not_hide_the_others(chat_model, page, tmp_path):
    shutil.copytree(chat_model, tmp_path / "gone")
    with serving.running(serving.server_of(["toy-gpt", tmp_path / "gone"], page)) as address:
        shutil.rmtree(tmp_path / "gone")
        listed = httpx.get(f"{address}/v1/models")
    assert [card["id"] for card in listed.json()["data"]] == ["toy-gpt", "gone"]


def test_a_model_without_a_tokenizer_is_refused_by_its_name(chat_model, page, tmp_path):
    shutil.copytree(chat_model, tmp_path / "mute")
    for file in (tmp_path / "mute").glob("tokenizer*"):
        file.unlink()
    asked: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": [1, 2]},
        "/v1/embeddings": {"input": [1, 2]},
        "/tokenize": {"prompt": "a"},
        "/detokenize": {"tokens": [1]},
    }
    with serving.running(serving.server_of([tmp_path / "mute"], page)) as address:
        for path, body in asked.items():
            error = httpx.post(address + path, json={"model": "mute", **body}).json()["error"]
            assert error["message"] == "mute has no tokenizer, so it cannot process text."


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_nan_and_infinity_are_refused(http, number):
    body = json.dumps(PLAIN).replace('"temperature": 0', f'"temperature": {number}')
    answer = http.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    Refused.model_validate(answer.json())


def test_a_lone_surrogate_gets_an_error_message(http):
    body = json.dumps(PLAIN).replace("The old king", "\\ud800")
    answer = http.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "surrogate" in answer.json()["error"]["message"]


# ── the smaller routes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_tokenize_and_back(http, chat_model):
    model, text = regard.load(chat_model), "the quick <|im_end|> café 🙂"
    told = http.post("/tokenize", json={"model": serving.CHAT, "prompt": text}).json()
    assert told == {
        "tokens": model.tokenizer.encode(text),
        "count": len(model.tokenizer.encode(text)),
        "max_model_len": 256,
    }
    assert model.tokenizer.eos_id not in told["tokens"]  # what a person types stays text
    back = http.post("/detokenize", json={"model": serving.CHAT, "tokens": told["tokens"]}).json()
    assert back == {"prompt": text}
    assert http.post("/detokenize", json={"model": serving.CHAT, "tokens": [10**6]}).status_code == 400
    bare = http.post("/tokenize", json={"model": "toy-bert", "prompt": "good", "add_special_tokens": False}).json()
    assert bare["count"] == http.post("/tokenize", json={"model": "toy-bert", "prompt": "good"}).json()["count"] - 2


def test_vectors_in_base64_are_little_endian_floats(http):
    body = {"model": "toy-bert", "input": "good"}
    floats = http.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    coded = http.post("/v1/embeddings", json=body | {"encoding_format": "base64"}).json()["data"][0]["embedding"]
    assert list(struct.unpack(f"<{len(floats)}f", base64.b64decode(coded))) == pytest.approx(floats, abs=1e-7)


def test_a_text_too_long_to_embed_is_refused_and_not_cut(http):
    answer = http.post("/v1/embeddings", json={"model": "toy-bert", "input": ["a", "good " * 500]})
    assert answer.status_code == 400
    assert re.match(r"input has \d+ tokens in text 1; \d+ fit\.", answer.json()["error"]["message"])


def test_health_and_the_page(http):
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/").headers["content-type"].startswith("text/html")
    assert "models" in http.get("/api/models").json()


def test_metrics_count_what_happened(http):
    def numbers() -> dict[str, float]:
        text = http.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in text.text.splitlines() if not line.startswith("#")]
        for line in lines:
            assert re.fullmatch(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+', line), line
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    http.post("/v1/completions", json=PLAIN)
    before = numbers()
    http.post("/v1/completions", json=PLAIN | {"n": 2})
    after = numbers()

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown('regard_requests_total{route="/v1/completions",status="200"}') == 1
    assert grown('regard_answers_total{end="finished",model="toy-gpt"}') == 2
    assert grown('regard_generated_tokens_total{model="toy-gpt"}') == 10
    assert grown('regard_prompt_tokens_total{model="toy-gpt"}') == 8
    assert grown('regard_time_to_first_token_seconds_count{model="toy-gpt"}') == 1
    assert (
        after['regard_time_to_first_token_seconds_bucket{le="+Inf",model="toy-gpt"}']
        == (after['regard_time_to_first_token_seconds_count{model="toy-gpt"}'])
    )
    assert after['regard_slots{model="toy-gpt"}'] == 4
    assert after['regard_slots_busy{model="toy-gpt"}'] == 0
    assert after['regard_cache_bytes_most{model="toy-gpt"}'] == 4 * 128 * 2 * 4 * 128 * 4


# ── attention of what was written ───────────────────────────────────────────────────────────────────────────────────


def test_explain_gives_the_attention_of_the_generated_tokens(http):
    """The rows of a trace over the same text, and the replay chose the same tokens."""
    body = {"model": "toy-gpt", "prompt": "The old king", "temperature": 1, "seed": 5, "max_tokens": 6, "n": 2}
    told = http.post("/v1/completions", json=body | {"explain": {"layers": [2, 0], "heads": [3]}})
    answer = TextCompletion.model_validate(told.json())
    model = regard.load("toy-gpt")
    prompt = model.tokenizer.encode("The old king")
    written = model.answers(prompt, n=2, temperature=1, seed=5, max_new_tokens=6)[0]
    for choice, expected in zip(answer.choices, written, strict=True):
        found: Any = choice.explain
        assert found.agrees
        assert found.differs_at is None
        assert found.largest_logprob_difference < 1e-4
        assert found.tokens == model.tokenizer.pieces([*prompt, *expected.ids])
        assert (found.answer_begins, found.layers, found.heads) == (len(prompt), [2, 0], [3])
        trace = model.trace([*prompt, *expected.ids])
        for layer, rows in zip((2, 0), found.attention, strict=True):
            n = len(expected.ids)
            weights = trace[f"decoder.{layer}.attention.weights"][3, len(prompt) - 1 : -1, :-1]
            assert weights.shape == (n, len(prompt) + n - 1)
            np.testing.assert_allclose(rows[0], weights, rtol=0, atol=1e-5)
            assert np.sum(rows[0], -1) == pytest.approx(np.ones(n), abs=1e-5)


def test_explain_of_a_chat_has_all_layers_and_heads_by_default(http):
    body = {"model": serving.CHAT, "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 3, "explain": {}}
    answer = ChatCompletion.model_validate(http.post("/v1/chat/completions", json=body).json())
    found: Any = answer.choices[0].explain
    assert (found.layers, found.heads) == ([0, 1, 2], [0, 1, 2, 3, 4, 5])
    assert found.agrees


def test_a_replay_that_chose_other_tokens_reports_it():
    """The check can fail: for an answer that the model would not have generated."""
    from regard.serve.explain_answer import explain

    model = regard.load("toy-gpt")
    (row,) = model.rows(model.tokenizer.encode("The old king"), temperature=0.0, max_new_tokens=4)
    (answer,) = model.answers(list(row.ids), temperature=0, max_new_tokens=4)[0]
    assert explain(model, row, answer, [0], [0])["agrees"]
    answer.ids[2] = (answer.ids[2] + 1) % 800
    told = explain(model, row, answer, [0], [0])
    assert (told["agrees"], told["differs_at"]) == (False, 2)


@pytest.mark.parametrize(
    ("explain", "words"),
    [
        ({"layers": [4]}, "explain.layers has 4, but toy-gpt has those from 0 to 3."),
        ({"heads": [9]}, "explain.heads has 9, but toy-gpt has those from 0 to 3."),
    ],
)
def test_invalid_explain_options_are_refused(http, explain, words):
    answer = http.post("/v1/completions", json=PLAIN | {"explain": explain})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, words)


def test_too_much_attention_is_refused_before_generation(http):
    answer = http.post("/v1/completions", json=PLAIN | {"max_tokens": 100, "n": 16, "explain": {}})
    assert answer.status_code == 400
    assert "1,000,000 can be returned" in answer.json()["error"]["message"]


# ── the description ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def described(http) -> dict[str, Any]:
    return http.get("/openapi.json").json()


def test_the_schema_has_every_public_route_and_nothing_else(described):
    assert set(described["paths"]) == {
        *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/translations"),
        *("/v1/models", "/v1/models/{name}", "/tokenize", "/detokenize", "/health", "/metrics"),
    }
    for ways in described["paths"].values():
        for way in ways.values():
            assert "200" in way["responses"]
            assert "422" not in way["responses"]
            assert {"400", "401", "404", "413", "429", "431"} <= set(way["responses"])


def test_every_reference_of_the_schema_resolves_and_every_component_is_used(described):
    text = json.dumps(described)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named == set(described["components"]["schemas"])


def test_the_schema_has_every_field_of_the_conventions(described):
    shapes = described["components"]["schemas"]
    both = {
        *("model", "max_tokens", "temperature", "top_p", "n", "stop", "stream", "stream_options", "seed", "logit_bias"),
        *("presence_penalty", "frequency_penalty", "logprobs", "top_k", "min_p", "repetition_penalty", "explain"),
    }
    assert set(shapes["ChatRequest"]["properties"]) == both | {"messages", "max_completion_tokens", "top_logprobs"}
    assert set(shapes["CompletionRequest"]["properties"]) == both | {"prompt", "echo"}
    for name in (
        "ChatRequest",
        "CompletionRequest",
        "EmbeddingRequest",
        "TranslationRequest",
        "TokenizeRequest",
        "DetokenizeRequest",
    ):
        assert shapes[name]["additionalProperties"] is False


def test_schemathesis_finds_no_invalid_response(live):
    """Requests generated from the schema, valid and invalid: every one is answered, none with a 5xx."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    schema = schemathesis.openapi.from_url(f"{live}/openapi.json")
    for operation in schema.get_all_operations():
        body = "requestBody" in operation.ok().definition.raw  # without one, nothing can be wrong
        for mode in list(schemathesis.GenerationMode) if body else [schemathesis.GenerationMode.POSITIVE]:

            @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.ok().as_strategy(generation_mode=mode))
            def answered(case: Any) -> None:
                assert case.call(timeout=60).status_code < 500

            answered()
