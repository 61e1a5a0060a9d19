"""Answers as JSON, and refusals as `{"error": one sentence}`, or as OpenAI's error object on the paths of its interface.

JSON has no word for an infinite number, and masked scores are infinite: they are sent as words, as a `Why` writes them.
"""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response


class Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        try:
            text = _dumps(content)
        except ValueError:
            text = _dumps(spelt(content))
        return text.encode("utf-8", "backslashreplace")  # a lone surrogate cannot be sent otherwise


def _dumps(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def spelt(value: Any) -> Any:
    """The same with numbers that JSON lacks written as words."""
    from regard.explain.why import plain

    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {key: spelt(item) for key, item in value.items()}
    return [spelt(item) for item in value] if isinstance(value, list | tuple) else value


PUBLIC = ("/v1", "/tokenize", "/detokenize", "/metrics", "/health", "/openapi.json")  # where programs ask
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def refusal(
    status: int,
    sentence: str,
    *,
    path: str = "",
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """`param` and `code` say to a program which field was wrong, and what was wrong with it."""
    error: Any = sentence
    if path.startswith(PUBLIC):
        error = error_object(status, sentence, param, code)
    return Json({"error": error}, status_code=status, headers=dict(headers or {}))


def error_object(status: int, sentence: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = KINDS.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return {"message": sentence, "type": kind, "param": param, "code": code}
