"""Answers as JSON, and refusals as `{"error": one sentence}`.

JSON has no word for an infinite number, and masked scores are infinite: they are sent as words, as a `Why` writes them.
"""

import json
from typing import Any

from starlette.responses import JSONResponse, Response

from regard.explain.why import plain


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
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {key: spelt(item) for key, item in value.items()}
    return [spelt(item) for item in value] if isinstance(value, list | tuple) else value


def refusal(status: int, sentence: str) -> Response:
    return Json({"error": sentence}, status_code=status)
