"""Requests outside the slots: embeddings of texts and ids, translations, and too many of them at once."""

import asyncio
import base64
import re
import struct
import threading
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest

import regard
import serving
from regard.serve import embeddings
from regard.serve.response_schema import Translations, Vectors

TEXTS = ["the European Economic Area", "The woman eats a red apple.", "The old king does not see the two white houses."]


@pytest.fixture(scope="module")
def http(page) -> Iterator[httpx.Client]:
    app = serving.server_of(["toy-translate", "toy-bert", "toy-gpt"], page, slots=2, queue=2)
    with serving.running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def translator() -> regard.Model:
    return regard.load("toy-translate")


def ask(http: httpx.Client, status: int = 200, /, **body: object) -> dict:
    answer = http.post("/v1/translations", json={"model": "toy-translate"} | body)
    assert answer.status_code == status, answer.text
    return answer.json()


# ── translations ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_translations_equal_the_librarys(http, translator):
    told = Translations.model_validate(ask(http, input=TEXTS * 7))
    assert [each.text for each in told.data] == translator.translate(TEXTS) * 7
    assert [each.index for each in told.data] == list(range(21))
    assert {each.finish_reason for each in told.data} == {"stop"}
    answers = [best for best, *_ in translator.answers(TEXTS, num_beams=4)]
    assert told.usage.prompt_tokens == 7 * sum(len(translator.tokenizer.encode(text)) for text in TEXTS)
    assert told.usage.completion_tokens == 7 * sum(len(answer.ids) for answer in answers)
    assert told.usage.total_tokens == told.usage.prompt_tokens + told.usage.completion_tokens


def test_one_text_greedily_and_short(http, translator):
    assert ask(http, input=TEXTS[0])["data"][0]["text"] == "la zone économique européenne"
    greedy = ask(http, input=TEXTS[1], num_beams=1)["data"][0]
    assert greedy["text"] == translator.generate(TEXTS[1], num_beams=1)
    cut = ask(http, input=TEXTS[1], num_beams=1, max_tokens=2)["data"][0]
    assert (cut["finish_reason"], greedy["text"].startswith(cut["text"])) == ("length", True)


def test_the_length_penalty_means_the_same_as_in_the_library(http, translator):
    for penalty in (-5.0, 5.0):
        told = ask(http, input=TEXTS, length_penalty=penalty)["data"]
        assert [each["text"] for each in told] == translator.translate(TEXTS, length_penalty=penalty)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "toy-gpt"}, "toy-gpt does not translate; this needs an encoder-decoder"),
        ({"model": "toy-bert"}, "toy-bert does not translate"),
        ({"input": ["fine", "the old king " * 200]}, r"input has \d+ tokens in text 1; \d+ fit"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [""]}, "input"),
        ({"input": ["a"] * 2049}, "at most 2048 items"),
        ({"input": [1, 2]}, "input"),
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 17}, "num_beams"),
        ({"num_beams": "4"}, "num_beams"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**6}, "max_tokens is 1000000"),
        ({"length_penalty": 21}, "length_penalty"),
        ({"temperature": 1}, '"temperature" is not a field of this request'),
        ({"target_lang": "fr"}, '"target_lang" is not a field'),
    ],
)
def test_invalid_translation_requests_are_refused(http, body, words):
    answer = http.post("/v1/translations", json={"model": "toy-translate", "input": "the house"} | body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert re.search(words, error["message"].replace("'", '"')), error["message"]


def test_completions_of_an_encoder_decoder_are_refused_and_name_the_route(http):
    answer = http.post("/v1/completions", json={"model": "toy-translate", "prompt": "the"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].endswith("Ask /v1/translations.")


# ── embeddings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_are_embedded_as_their_text_is(http):
    model = regard.load("toy-bert")
    texts = ["I loved the movie.", "bad"]
    ids = [model.tokenizer.encode(text) for text in texts]
    with openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="-", max_retries=0) as client:
        by_text = client.embeddings.create(model="toy-bert", input=texts)
        by_ids = client.embeddings.create(model="toy-bert", input=ids)
        one = client.embeddings.create(model="toy-bert", input=ids[1])
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="toy-bert", input=texts, dimensions=8)
        assert refused.value.param == "dimensions"
    assert [each.embedding for each in by_ids.data] == [each.embedding for each in by_text.data]
    assert one.data[0].embedding == by_text.data[1].embedding
    assert by_ids.usage == by_text.usage
    assert one.usage.prompt_tokens == one.usage.total_tokens == len(ids[1])
    assert np.array_equal(model.embed(ids), model.embed(texts))


@pytest.mark.parametrize("given", [[10**6], [[5], [10**6]], [[]], [], [-1], [5, "a"], [[5], "a"], [5.5], [True]])
def test_invalid_ids_are_refused(http, given):
    answer = http.post("/v1/embeddings", json={"model": "toy-bert", "input": given})
    assert answer.status_code == 400, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("model", ["toy-bert", "toy-gpt", "toy-translate"])
def test_every_kind_of_model_embeds(http, model):
    told = http.post("/v1/embeddings", json={"model": model, "input": "the old king", "encoding_format": "base64"})
    vector = Vectors.model_validate(told.json()).data[0].embedding
    expected = regard.load(model).embed("the old king")[0]
    assert isinstance(vector, str)
    found = struct.unpack(f"<{len(expected)}f", base64.b64decode(vector))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


# ── limits and disconnects ──────────────────────────────────────────────────────────────────────────────────────────


def test_requests_beyond_the_queue_get_429(http, monkeypatch):
    """Queue 2: two compute or wait, the third is refused at once; afterwards requests are accepted again."""
    gate, inside = threading.Event(), threading.Semaphore(0)
    real = regard.Model.embed

    def slow(model: regard.Model, texts: list[str]) -> np.ndarray:
        inside.release()
        gate.wait(30)
        return real(model, texts)

    monkeypatch.setattr(regard.Model, "embed", slow)
    body = {"model": "toy-bert", "input": "good"}

    async def crowd() -> list[int]:
        async with httpx.AsyncClient(base_url=http.base_url, timeout=60) as client:
            first = [asyncio.create_task(client.post("/v1/embeddings", json=body)) for _ in range(2)]
            for _ in first:
                await asyncio.to_thread(inside.acquire, timeout=30)
            third = await client.post("/v1/embeddings", json=body)
            assert third.headers["retry-after"] == "1"
            gate.set()
            return [third.status_code, *[(await task).status_code for task in first]]

    assert serving.run_async(crowd()) == [429, 200, 200]
    assert http.post("/v1/embeddings", json=body).status_code == 200


def test_work_for_a_disconnected_client_ends_after_its_batch(http, monkeypatch):
    batches: list[int] = []
    seen, gate = threading.Event(), threading.Event()
    real = regard.Model.embed

    def watched(model: regard.Model, texts: list[str]) -> np.ndarray:
        batches.append(len(texts))
        seen.set()
        gate.wait(30)
        return real(model, texts)

    monkeypatch.setattr(regard.Model, "embed", watched)
    with httpx.Client(base_url=http.base_url, timeout=0.5) as hasty, pytest.raises(httpx.ReadTimeout):
        hasty.post("/v1/embeddings", json={"model": "toy-bert", "input": ["good"] * 100})
    assert seen.is_set()
    gate.set()
    name = 'regard_requests_total{route="/v1/embeddings",status="499"}'
    serving.until(lambda: name in http.get("/metrics").text)
    assert batches == [embeddings.BATCH]
