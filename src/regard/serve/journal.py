"""One line of JSON for every request, and the counts of it: who asked for what and how it ended, never what was said.

A line has the route, the status, the time it took, the model and the numbers of tokens. It has no address with a query, no
header, no prompt, no answer and no key.
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
from regard.serve.metrics import REQUESTS, WHOLE, Metrics

log = logging.getLogger("regard.requests")


class Journal:
    """Outermost of all. Routes may add to `scope["facts"]` what should be written down."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status, id = time.perf_counter(), 0, f"req-{secrets.token_hex(8)}"
        facts: dict[str, Any] = {}
        scope["facts"] = facts

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = id
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        finally:
            seconds, route = time.perf_counter() - begin, getattr(scope.get("route"), "path", "none")
            self.metrics.count(REQUESTS, route=route, status=str(status))
            self.metrics.observe(WHOLE, seconds, route=route)
            ended = {"event": "request", "id": id, "method": known(scope["method"]), "route": route, "status": status}
            log.info("request", extra={"facts": ended | {"seconds": round(seconds, 4)} | facts})


def known(method: str) -> str:
    """A method is a word of the client's choosing; only those that mean something are written down."""
    return method if method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE") else "other"


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = getattr(record, "facts", None) or {"event": "remark", "message": record.getMessage()}
        return clean(json.dumps({"time": when, "level": record.levelname.lower(), **facts}, ensure_ascii=False))


def log_as_lines(stream: TextIO) -> None:
    """Everything that this package and its server say from now on is a line of JSON on the stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines())
    for name, level in (("regard", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
