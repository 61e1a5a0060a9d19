"""The request bodies of the OpenAI-compatible interface, as pydantic models that FastAPI validates and documents.

An unknown field is refused: a client that sends one expects something that would not happen. Numbers are checked again,
against the model, by `engine/settings.py`. A list is refused at its first invalid item (`fail_fast`): a body may hold a
million of them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from regard.engine.settings import MAX_ANSWERS, MAX_STOP_LENGTH, MAX_STOPS, MAX_TOKENS

MAX_LOGPROBS = 20
MAX_INPUTS = 2048  # texts in one request
MAX_BEAMS = 16

Finite = Annotated[float, Field(allow_inf_nan=False)]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Ids = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
IdLists = Annotated[list[Ids], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
NonEmptyTexts = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)
]
Indices = Annotated[list[Annotated[int, Field(ge=0)]], Field(fail_fast=True)]  # of layers or heads


def as_list(value: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """A list of texts: the request may have one or several, each as text or as ids."""
    if isinstance(value, str):
        return [value]
    return [value] if isinstance(value[0], int) else list(value)


class StrictRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(StrictRequest):
    include_usage: bool = False


class ExplainOptions(StrictRequest):
    """Which attention to return; all layers and heads by default."""

    layers: Indices | None = None
    heads: Indices | None = None


class TextRequest(StrictRequest):
    """The fields that chat and text completions have in common."""

    model: str
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    temperature: Annotated[Finite, Field(ge=0)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[Finite, Field(ge=1e-3, le=1e3)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        dict[Annotated[str, Field(pattern=r"^[0-9]{1,10}$")], Annotated[Finite, Field(ge=-100, le=100)]] | None
    ) = None
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    explain: ExplainOptions | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "TextRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options goes with stream")
        if self.explain is not None and self.stream:
            raise ValueError("explain comes with a whole answer, so it does not go with stream")
        return self

    @property
    def usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def max_new_tokens(self) -> int | None:
        """Tokens to generate at most; None if the request leaves it open."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many likely alternatives to list with each token; None if log-probabilities were not requested."""
        return None

    def sampling(self) -> dict[str, Any]:
        """The request as the engine's settings."""
        same = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "n", "stop", "seed")
        settings = {name: getattr(self, name) for name in (*same, "presence_penalty", "frequency_penalty")}
        bias = {int(id): value for id, value in (self.logit_bias or {}).items()}
        return settings | {"logit_bias": bias or None, "max_new_tokens": self.max_new_tokens}


# A dictionary: a request may have tens of thousands, and making objects of them would block the event loop
class TextPart(TypedDict):
    __pydantic_config__ = StrictRequest.model_config  # type: ignore[misc]

    type: Literal["text"]
    text: str


class Message(StrictRequest):
    """`developer` means `system`; parts of a text are joined by line breaks. The fields that must be null are accepted
    because some clients send an answer back as a message with every field that it could have had."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, fail_fast=True)]
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: None = None

    def plain(self) -> dict[str, str]:
        parts = [self.content] if isinstance(self.content, str) else [part["text"] for part in self.content]
        return {"role": "system" if self.role == "developer" else self.role, "content": "\n".join(parts)}


class ChatRequest(TextRequest):
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _check_chat_fields(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs goes with logprobs")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens mean the same and differ")
        return self

    @property
    def max_new_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(TextRequest):
    prompt: str | Texts | Ids | IdLists
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None

    @property
    def max_new_tokens(self) -> int | None:
        return 16 if self.max_tokens is None else self.max_tokens  # OpenAI's default for this route

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    def prompts(self) -> list[str | list[int]]:
        return as_list(self.prompt)


class EmbeddingRequest(StrictRequest):
    """`input`: a text or several, each as text or as ids."""

    model: str
    input: Annotated[str, Field(min_length=1)] | NonEmptyTexts | Ids | IdLists
    encoding_format: Literal["float", "base64"] | None = None

    def texts(self) -> list[str | list[int]]:
        return as_list(self.input)


class TranslationRequest(StrictRequest):
    model: str
    input: Annotated[str, Field(min_length=1)] | NonEmptyTexts
    num_beams: Annotated[int, Field(ge=1, le=MAX_BEAMS)] = 4
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    length_penalty: Annotated[Finite, Field(ge=-20, le=20)] | None = None

    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input

    def sampling(self) -> dict[str, Any]:
        """The request as the engine's settings."""
        return {
            "num_beams": self.num_beams,
            "temperature": 0.0,
            "max_new_tokens": self.max_tokens,
            "length_penalty": self.length_penalty,
        }


class TokenizeRequest(StrictRequest):
    model: str
    prompt: str
    add_special_tokens: bool = True


class DetokenizeRequest(StrictRequest):
    model: str
    tokens: Annotated[list[TokenId], Field(max_length=1 << 20, fail_fast=True)]
