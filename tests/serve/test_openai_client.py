"""The official client against a live server: chat, completions, embeddings, streams, log-probabilities, errors."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

import regard
import serving
from regard.serve.response_schema import ChatCompletion, TextCompletion, Vectors

ASK = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the quick brown fox"}]


@pytest.fixture(scope="module")
def client(live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def toy():
    return regard.load("toy-gpt")


@pytest.fixture(scope="module")
def chatty(chat_model):
    return regard.load(chat_model)


# ── chat ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_chat_equals_the_librarys(client, chatty):
    told = client.chat.completions.create(model=serving.CHAT, messages=ASK, temperature=0, max_completion_tokens=12)
    ids = chatty.chat_ids(ASK)
    (answer,) = chatty.answers(ids, max_new_tokens=12)[0]
    (choice,) = told.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == answer.text
    assert choice.finish_reason == answer.finished
    assert (told.usage.prompt_tokens, told.usage.completion_tokens) == (len(ids), len(answer.ids))
    assert told.usage.total_tokens == len(ids) + len(answer.ids)
    assert told.object == "chat.completion"
    assert told.model == serving.CHAT
    ChatCompletion.model_validate(told.model_dump(exclude_unset=True))


def test_a_streamed_chat_equals_the_whole_chat(client):
    body = {"model": serving.CHAT, "messages": ASK, "temperature": 1, "seed": 11, "max_tokens": 14, "n": 2}
    whole = client.chat.completions.create(**body)
    texts, finishes, roles = {0: "", 1: ""}, dict[int, Any](), dict[int, Any]()
    usage = None
    for chunk in client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == "chat.completion.chunk"
        if chunk.usage is not None:
            assert chunk.choices == []
            usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] = roles.get(choice.index) or choice.delta.role
            finishes[choice.index] = choice.finish_reason or finishes.get(choice.index)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert finishes == {choice.index: choice.finish_reason for choice in whole.choices}
    assert set(roles.values()) == {"assistant"}
    assert usage == whole.usage
    assert texts[0] != texts[1]


def test_chat_logprobs(client, chatty):
    told = client.chat.completions.create(
        model=serving.CHAT, messages=ASK, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3
    )
    (answer,) = chatty.answers(chatty.chat_ids(ASK), max_new_tokens=6)[0]
    content = told.choices[0].logprobs.content
    assert [each.logprob for each in content] == pytest.approx(answer.logprobs, abs=1e-4)
    assert b"".join(bytes(each.bytes) for each in content).decode(errors="replace") == chatty.tokenizer.decode(
        answer.ids, skip_special=False
    )
    for each in content:
        likely = [other.logprob for other in each.top_logprobs]
        assert len(likely) == 3
        assert likely == sorted(likely, reverse=True)
        assert each.top_logprobs[0].token == each.token  # greedy
        assert each.top_logprobs[0].logprob == each.logprob


def test_without_top_logprobs_there_are_none(client):
    told = client.chat.completions.create(model=serving.CHAT, messages=ASK, max_tokens=2, logprobs=True)
    assert [each.top_logprobs for each in told.choices[0].logprobs.content] == [[], []]
    plain = client.chat.completions.create(model=serving.CHAT, messages=ASK, max_tokens=2)
    assert plain.choices[0].logprobs is None


def test_parts_of_a_message_and_the_developer_are_read(client, chatty):
    parts = [{"type": "text", "text": "the quick"}, {"type": "text", "text": "brown fox"}]
    odd = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    plain = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the quick\nbrown fox"}]
    body = {"model": serving.CHAT, "temperature": 0, "max_tokens": 8}
    one, two = (client.chat.completions.create(messages=messages, **body) for messages in (odd, plain))
    assert one.choices[0].message.content == two.choices[0].message.content
    assert one.usage.prompt_tokens == len(chatty.chat_ids(plain))


# ── completions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_completion_is_what_the_model_generates(client, toy):
    told = client.completions.create(model="toy-gpt", prompt="The old king", temperature=0, max_tokens=12)
    assert told.choices[0].text == toy.generate("The old king", temperature=0, max_new_tokens=12)
    TextCompletion.model_validate(told.model_dump(exclude_unset=True))


def test_the_default_is_sixteen_tokens(client):
    told = client.completions.create(model="toy-gpt", prompt="The old king", temperature=0, logit_bias={"0": -100})
    assert told.usage.completion_tokens == 16
    assert told.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("body", "ours"),
    [
        ({"temperature": 1, "seed": 3}, {"temperature": 1.0, "seed": 3}),
        ({"temperature": 0.7, "seed": 4, "top_p": 0.8}, {"temperature": 0.7, "seed": 4, "top_p": 0.8}),
        (
            {"temperature": 0, "presence_penalty": 1.5, "frequency_penalty": 0.5},
            {"presence_penalty": 1.5, "frequency_penalty": 0.5},
        ),
        ({"temperature": 0, "logit_bias": {"44": 5}}, {"logit_bias": {44: 5.0}}),
        (
            {"temperature": 1, "seed": 5, "extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.3}},
            {"temperature": 1.0, "seed": 5, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.3},
        ),
    ],
)
def test_every_setting_means_what_it_means_in_the_library(client, toy, body, ours):
    told = client.completions.create(model="toy-gpt", prompt="Three children want", max_tokens=15, **body)
    assert told.choices[0].text == toy.generate("Three children want", max_new_tokens=15, **ours)


def test_several_prompts_and_several_answers_each(client, toy):
    prompts = ["The old king", "Sara loved"]
    told = client.completions.create(model="toy-gpt", prompt=prompts, n=2, temperature=1, seed=9, max_tokens=8)
    assert [choice.index for choice in told.choices] == [0, 1, 2, 3]
    expected = [text for p in prompts for text in toy.generate(p, n=2, temperature=1, seed=9, max_new_tokens=8)]
    assert [choice.text for choice in told.choices] == expected
    ids = [toy.tokenizer.encode(p) for p in prompts]
    assert told.usage.prompt_tokens == sum(map(len, ids))
    by_ids = client.completions.create(model="toy-gpt", prompt=ids, n=2, temperature=1, seed=9, max_tokens=8)
    assert [choice.text for choice in by_ids.choices] == expected


def test_a_random_seed_is_in_the_response(client):
    body = {"model": "toy-gpt", "prompt": "The old king", "temperature": 1, "max_tokens": 12}
    first = client.completions.create(**body)
    again = client.completions.create(**body, seed=first.seed)
    assert first.choices[0].text == again.choices[0].text
    assert client.completions.create(**body).seed != first.seed


def test_stop_strings_end_the_text_before_them(client, toy):
    body = {"model": "toy-gpt", "prompt": "The old king", "temperature": 0, "max_tokens": 40}
    whole = client.completions.create(**body).choices[0].text
    cut = client.completions.create(**body, stop=["woman", "xyz"]).choices[0]
    assert cut.text == whole.partition("woman")[0]
    assert cut.finish_reason == "stop"
    streamed = client.completions.create(**body, stop="woman", stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == cut.text


def test_completion_logprobs_and_echo(client, toy):
    told = client.completions.create(
        model="toy-gpt", prompt="The old king", temperature=0, max_tokens=4, logprobs=2, echo=True
    )
    choice, scores = told.choices[0], toy.score("The old king")
    assert choice.text == "The old king" + toy.generate("The old king", temperature=0, max_new_tokens=4)
    found = choice.logprobs
    n = told.usage.prompt_tokens
    assert found.token_logprobs[0] is None
    assert found.top_logprobs[0] is None
    assert found.token_logprobs[1:n] == pytest.approx(list(scores), abs=1e-4)
    assert len(found.tokens) == n + 4
    assert "".join(found.tokens) == choice.text
    for token, offset in zip(found.tokens, found.text_offset, strict=True):
        assert choice.text[offset:].startswith(token)
    for token, logprob, likely in list(zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True))[n:]:
        assert likely[token] == logprob  # greedy
        assert len(likely) == 2


@pytest.mark.parametrize("prompt", ["The old king", "", [0, 5, 9]])
def test_echo_in_a_stream(client, prompt):
    body = {
        "model": "toy-gpt",
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 4,
        "echo": True,
        "logprobs": 1,
    }
    whole = client.completions.create(**body).choices[0]
    chunks = list(client.completions.create(**body, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    assert [offset for part in parts for offset in part.text_offset] == whole.logprobs.text_offset
    answer = "".join(whole.logprobs.tokens[-4:])
    assert whole.text[whole.logprobs.text_offset[-4] :] == answer
    assert [x for part in parts for x in part.token_logprobs] == whole.logprobs.token_logprobs


@pytest.mark.parametrize("echo", [False, True])
def test_no_new_tokens(client, echo):
    told = client.completions.create(model="toy-gpt", prompt="The old king", max_tokens=0, echo=echo, logprobs=1)
    assert told.choices[0].text == ("The old king" if echo else "")
    assert told.choices[0].finish_reason == "length"
    assert told.usage.completion_tokens == 0
    assert len(told.choices[0].logprobs.tokens) == (told.usage.prompt_tokens if echo else 0)


def test_an_empty_prompt_starts_with_the_first_token(client, toy):
    told = client.completions.create(model="toy-gpt", prompt="", temperature=0, max_tokens=5)
    assert told.choices[0].text == toy.generate("", temperature=0, max_new_tokens=5)


def test_a_prompt_as_long_as_the_context_and_one_more_or_less(client, toy):
    context, ids = toy.spec.context, toy.tokenizer.encode("The old king and the old woman " * 40)
    told = client.completions.create(model="toy-gpt", prompt=ids[: context - 1], max_tokens=9, temperature=0)
    assert told.usage.completion_tokens == 1
    for length in (context, context + 1):
        with pytest.raises(openai.BadRequestError, match=f"shorten the prompt to at most {context - 1} tokens"):
            client.completions.create(model="toy-gpt", prompt=ids[:length], max_tokens=9)


# ── embeddings and models ───────────────────────────────────────────────────────────────────────────────────────────


def test_embeddings_equal_the_librarys(client):
    texts = ["I loved the movie.", "The story was boring, but the actors were good.", "bad"]
    model = regard.load("toy-bert")
    expected = model.embed(texts)
    for format in ("float", openai.NOT_GIVEN):  # without one, the client asks for base64 and decodes it
        told = client.embeddings.create(model="toy-bert", input=texts, encoding_format=format)
        assert [each.index for each in told.data] == [0, 1, 2]
        np.testing.assert_allclose([each.embedding for each in told.data], expected, rtol=0, atol=1e-6)
    assert told.usage.prompt_tokens == sum(len(model.tokenizer.encode(text)) for text in texts)
    one = client.embeddings.create(model="toy-bert", input=texts[0], encoding_format="float")
    np.testing.assert_allclose(one.data[0].embedding, expected[0], rtol=0, atol=1e-5)
    Vectors.model_validate(one.model_dump(exclude_unset=True))


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert names == ["toy-gpt", serving.CHAT, "toy-bert"]
    assert client.models.retrieve("toy-gpt").owned_by == "regard"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("toy-translate")  # on the page, but its owner did not name it


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
def test_errors_come_before_the_first_token(client, stream):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="nothing", prompt="a", stream=stream)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="toy-gpt", prompt="a", max_tokens=100_000, stream=stream)
    assert long.value.param == "max_tokens"
    assert "context of 128 tokens" in long.value.message
    with pytest.raises(openai.BadRequestError, match="toy-bert does not continue texts"):
        client.completions.create(model="toy-bert", prompt="a", stream=stream)
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        client.chat.completions.create(model="toy-gpt", messages=ASK, stream=stream)


@pytest.mark.parametrize(
    "unsupported",
    [
        {"tools": []},
        {"response_format": {"type": "text"}},
        {"user": "me"},
        {"best_of": 1},
        {"functions": None},
        {"x": 1},
    ],
)
def test_unsupported_fields_are_refused_and_never_ignored(client, unsupported):
    (name,) = unsupported
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=serving.CHAT, messages=ASK, extra_body=unsupported)
    assert refused.value.param == name
    assert name in refused.value.message


def test_temperature_0_is_greedy_and_not_unset(client):
    body = {"model": "toy-gpt", "prompt": "Once upon", "max_tokens": 24}
    greedy = {client.completions.create(**body, temperature=0, seed=seed).choices[0].text for seed in range(3)}
    unset = {client.completions.create(**body, seed=seed).choices[0].text for seed in range(3)}
    one = {client.completions.create(**body, temperature=1, seed=seed).choices[0].text for seed in range(3)}
    assert len(greedy) == 1
    assert unset == one
    assert len(unset) > 1
