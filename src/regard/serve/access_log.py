"""The access log: one line of JSON per request, and the request metrics. It never records the content of a request.

A line has the route, the status, the duration, the model and the token counts. It has no query string, no header, no
prompt, no generated text and no key.
"""

import json
import logging
import secrets
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import clean
from regard.serve.metrics import Metrics

log = logging.getLogger("regard.requests")


class AccessLog:
    """The outermost ASGI middleware. Routes add fields to the log line through `scope["facts"]`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status, id = time.perf_counter(), 0, f"req-{secrets.token_hex(8)}"
        facts: dict[str, Any] = {}
        scope["facts"] = facts

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            seconds, route = time.perf_counter() - begin, getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(route=route, status=str(status)).inc()
            self.metrics.seconds.labels(route=route).observe(seconds)
            ended = {
                "event": "request",
                "id": id,
                "method": method_label(scope["method"]),
                "route": route,
                "status": status,
            }
            log.info("request", extra={"facts": ended | {"seconds": round(seconds, 4)} | facts})


def method_label(method: str) -> str:
    """The HTTP method for the log: a client may send any word, so unknown methods are logged as "other"."""
    return method if method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE") else "other"


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = getattr(record, "facts", None) or {"event": "remark", "message": record.getMessage()}
        return clean(json.dumps({"time": when, "level": record.levelname.lower(), **facts}, ensure_ascii=False))


def log_json_lines(stream: TextIO) -> None:
    """Send the logs of this package and of uvicorn to `stream`, one JSON object per line."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    for name, level in (("regard", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
