"""Tokens and answers in OpenAI's format: the choices of a whole response, the chunks of a stream.

`ChatFormat` makes the objects of /v1/chat/completions, `CompletionFormat` those of /v1/completions, from the same tokens.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from regard import __version__
from regard.engine.generate import Answer, Token
from regard.text.tokenizer import Tokenizer

LOWEST = -9999.0  # for a log-probability of -infinity, which JSON has no number for


@dataclass
class Choice:
    """One answer while it is generated."""

    index: int
    echoed: str = ""  # the prompt, if `echo` was requested
    # the echoed prompt's tokens; the first has no context and so no log-probability
    prompt_tokens: list[Token] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    answer: Answer | None = None

    @property
    def finish(self) -> str | None:
        return self.answer.finished if self.answer else None


class ResponseFormat(Protocol):
    """What both formats have: `object` and `chunk_object` are the values of the field "object"."""

    object: str
    chunk_object: str

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        """The chunk of a choice before its first token, if there is one."""
        ...

    def piece(self, choice: Choice, token: Token) -> dict[str, Any]: ...
    def closing(self, choice: Choice) -> dict[str, Any]: ...
    def choice(self, choice: Choice) -> dict[str, Any]: ...


class ChatFormat:
    object, chunk_object, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, tokenizer: Tokenizer, alternatives: int | None) -> None:
        self.tokenizer, self.alternatives = tokenizer, alternatives

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        return self._choice(choice, {"role": "assistant", "content": ""}, None)

    def piece(self, choice: Choice, token: Token) -> dict[str, Any]:
        return self._choice(choice, {"content": token.text}, self._logprobs([token]))

    def closing(self, choice: Choice) -> dict[str, Any]:
        return self._choice(choice, {}, None, choice.finish)

    def choice(self, choice: Choice) -> dict[str, Any]:
        assert choice.answer is not None
        message = {"role": "assistant", "content": choice.answer.text, "refusal": None}
        logprobs = self._logprobs(choice.tokens)
        return {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": choice.finish}

    def _choice(
        self, choice: Choice, delta: dict[str, Any], logprobs: Any, finish: str | None = None
    ) -> dict[str, Any]:
        return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self.alternatives is None:
            return None
        content = [
            self._likely(token.id, token.logprob)
            | {"top_logprobs": [self._likely(*each) for each in token.alternatives]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _likely(self, id: int, logprob: float) -> dict[str, Any]:
        name = self.tokenizer.pieces([id])[0]
        return {"token": name, "logprob": max(logprob, LOWEST), "bytes": list(self.tokenizer.token_bytes(id))}


class CompletionFormat:
    object, chunk_object, prefix = "text_completion", "text_completion", "cmpl"

    def __init__(self, tokenizer: Tokenizer, alternatives: int | None) -> None:
        self.tokenizer, self.alternatives = tokenizer, alternatives
        self._sent: dict[int, int] = {}  # characters of each choice that the stream has sent

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        if not (choice.echoed or choice.prompt_tokens):
            return None
        return self._choice(choice, choice.echoed, self._logprobs(choice.prompt_tokens, 0))

    def piece(self, choice: Choice, token: Token) -> dict[str, Any]:
        before = self._sent.get(choice.index, len(choice.echoed))
        self._sent[choice.index] = before + len(token.text)
        return self._choice(choice, token.text, self._logprobs([token], before))

    def closing(self, choice: Choice) -> dict[str, Any]:
        return self._choice(choice, "", None, choice.finish)

    def choice(self, choice: Choice) -> dict[str, Any]:
        assert choice.answer is not None
        logprobs = self._logprobs(
            [*choice.prompt_tokens, *choice.tokens], 0 if choice.prompt_tokens else len(choice.echoed)
        )
        return self._choice(choice, choice.echoed + choice.answer.text, logprobs, choice.finish)

    def _choice(self, choice: Choice, text: str, logprobs: Any, finish: str | None = None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, tokens: Sequence[Token], offset: int) -> dict[str, Any] | None:
        if self.alternatives is None:
            return None
        names = self.tokenizer.pieces([token.id for token in tokens])
        offsets, likely = list[int](), list[dict[str, float] | None]()
        for token in tokens:
            offsets.append(offset)
            offset += len(token.text)
            likely.append(self._likely(token) if token.alternatives else None)
        return {
            "tokens": names,
            "token_logprobs": [None if t.logprob != t.logprob else max(t.logprob, LOWEST) for t in tokens],
            "top_logprobs": likely if self.alternatives else None,
            "text_offset": offsets,
        }

    def _likely(self, token: Token) -> dict[str, float]:
        """By the text of the token; of tokens with the same text, the likeliest."""
        named: dict[str, float] = {}
        for name, (_, logprob) in zip(
            self.tokenizer.pieces([i for i, _ in token.alternatives]), token.alternatives, strict=True
        ):
            named.setdefault(name, max(logprob, LOWEST))
        return named


class Envelope:
    """The fields around the choices, the same in every chunk of a stream."""

    def __init__(self, format: ChatFormat | CompletionFormat, model: str, seed: int, prompt_tokens: int) -> None:
        self.format, self.prompt_tokens = format, prompt_tokens
        self._common = {
            "id": f"{format.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"regard-{__version__}",
            "seed": seed,
        }

    def response(self, choices: Sequence[dict[str, Any]], completion_tokens: int) -> dict[str, Any]:
        usage = self.usage(completion_tokens)
        return {**self._common, "object": self.format.object, "choices": list(choices), "usage": usage}

    def chunk(self, choice: dict[str, Any] | None, **usage: Any) -> dict[str, Any]:
        return {**self._common, "object": self.format.chunk_object, "choices": [choice] if choice else [], **usage}

    def usage(self, completion_tokens: int) -> dict[str, int]:
        total = self.prompt_tokens + completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": total,
        }
