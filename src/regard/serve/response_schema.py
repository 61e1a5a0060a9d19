"""The response bodies of the OpenAI-compatible interface, for its schema (`/openapi.json`) and for tests."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Finish = Literal["stop", "length"]


class StrictResponse(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Usage(StrictResponse):
    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class Likely(StrictResponse):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(Likely):
    top_logprobs: list[Likely]


class ChatLogprobs(StrictResponse):
    content: list[ChatLogprob]
    refusal: None


class Said(StrictResponse):
    role: Literal["assistant"]
    content: str
    refusal: None


class Explained(StrictResponse):
    """`attention[l][h][i][j]`: the attention weight, in `layers[l]` and `heads[h]`, from the position that generated answer
    token i to token j. `agrees`: the reference, run on the same ids, chose the same tokens."""

    tokens: list[str]
    answer_begins: int
    layers: list[int]
    heads: list[int]
    attention: list[list[list[list[float]]]]
    agrees: bool
    differs_at: int | None
    largest_logprob_difference: float


class ChatChoice(StrictResponse):
    index: int
    message: Said
    logprobs: ChatLogprobs | None
    finish_reason: Finish
    explain: Explained | None = None


class TextLogprobs(StrictResponse):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class TextChoice(StrictResponse):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Finish
    explain: Explained | None = None


class Completion(StrictResponse):
    id: str
    created: int
    model: str
    system_fingerprint: str
    seed: int
    usage: Usage


class ChatCompletion(Completion):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextCompletion(Completion):
    object: Literal["text_completion"]
    choices: list[TextChoice]


class Vector(StrictResponse):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Vectors(StrictResponse):
    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: Usage


class Translated(StrictResponse):
    object: Literal["translation"]
    index: int
    text: str
    finish_reason: Finish


class Translations(StrictResponse):
    object: Literal["list"]
    data: list[Translated]
    model: str
    usage: Usage


class Card(StrictResponse):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Cards(StrictResponse):
    object: Literal["list"]
    data: list[Card]


class Tokens(StrictResponse):
    tokens: list[int]
    count: int
    max_model_len: int


class Text(StrictResponse):
    prompt: str


class Health(StrictResponse):
    status: Literal["ok"]


class Problem(StrictResponse):
    message: str
    type: str
    param: str | None
    code: str | None


class Refused(StrictResponse):
    error: Problem


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refused, "description": description}
    for status, description in {
        400: "The request is invalid; the message says why.",
        401: "The key is missing or wrong.",
        403: "The request comes from another site.",
        404: "There is no such model.",
        413: "The body is too large.",
        421: "The request names another host.",
        429: "The queue is full; Retry-After says when to try again.",
        431: "The headers are too large.",
        503: "The server is stopping, and the answer was not ready in time.",
    }.items()
}
