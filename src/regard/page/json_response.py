"""Responses as JSON or server-sent events. Errors are `{"error": one sentence}`, or OpenAI's error object on the paths of
its interface.

JSON cannot represent infinity, and masked scores are infinite: they are sent as strings, as `Why.to_json` does.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse


class JsonResponse(JSONResponse):
    """Compact JSON, with infinities and NaN as strings."""

    def render(self, content: Any) -> bytes:
        try:
            text = _dumps(content)
        except ValueError:
            from regard.explain.why import plain_values

            text = _dumps(plain_values(content))
        return text.encode("utf-8", "backslashreplace")  # a lone surrogate cannot be sent otherwise


class Events(StreamingResponse):
    """Server-sent events made by `event`, with headers against caching and against buffering by proxies."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n".encode("utf-8", "backslashreplace")


def _dumps(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


PUBLIC = ("/v1", "/tokenize", "/detokenize", "/metrics", "/health", "/openapi.json")  # with OpenAI's error object
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_response(
    status: int,
    message: str,
    *,
    path: str = "",
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error response. `param` and `code` tell a program which field is wrong, and what is wrong with it."""
    error: Any = message
    if path.startswith(PUBLIC):
        error = error_object(status, message, param, code)
    return JsonResponse({"error": error}, status_code=status, headers=dict(headers or {}))


def error_object(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = KINDS.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return {"message": message, "type": kind, "param": param, "code": code}
