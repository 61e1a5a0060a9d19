"""The shapes of what the OpenAI-compatible interface answers, for its description (`/openapi.json`) and for tests."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Finish = Literal["stop", "length"]


class Told(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Usage(Told):
    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class Likely(Told):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(Likely):
    top_logprobs: list[Likely]


class ChatLogprobs(Told):
    content: list[ChatLogprob]
    refusal: None


class Said(Told):
    role: Literal["assistant"]
    content: str
    refusal: None


class Explained(Told):
    """`attention[l][h][i][j]`: how much, in `layers[l]` and `heads[h]`, the position that wrote answer token i looked at
    token j. `agrees`: the reference, run on the same ids, chose the same tokens."""

    tokens: list[str]
    answer_begins: int
    layers: list[int]
    heads: list[int]
    attention: list[list[list[list[float]]]]
    agrees: bool
    differs_at: int | None
    largest_logprob_difference: float


class ChatChoice(Told):
    index: int
    message: Said
    logprobs: ChatLogprobs | None
    finish_reason: Finish
    explain: Explained | None = None


class TextLogprobs(Told):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class TextChoice(Told):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Finish
    explain: Explained | None = None


class Completion(Told):
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


class Vector(Told):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Vectors(Told):
    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: Usage


class Translated(Told):
    object: Literal["translation"]
    index: int
    text: str
    finish_reason: Finish


class Translations(Told):
    object: Literal["list"]
    data: list[Translated]
    model: str
    usage: Usage


class Card(Told):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Cards(Told):
    object: Literal["list"]
    data: list[Card]


class Tokens(Told):
    tokens: list[int]
    count: int
    max_model_len: int


class Text(Told):
    prompt: str


class Health(Told):
    status: Literal["ok"]


class Problem(Told):
    message: str
    type: str
    param: str | None
    code: str | None


class Refused(Told):
    error: Problem


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refused, "description": words}
    for status, words in {
        400: "Something about the request is wrong, and the sentence says what.",
        401: "The key is missing or wrong.",
        403: "The request comes from another site.",
        404: "There is no such model.",
        413: "The body is too large.",
        421: "The request names another host.",
        429: "There is no room; Retry-After says when to come again.",
        431: "The headers are too large.",
        503: "The server is stopping, and the answer was not ready in time.",
    }.items()
}
