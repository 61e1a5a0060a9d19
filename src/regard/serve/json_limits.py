"""Limits on the JSON of a request: how deeply it may be nested and how many parts it may have.

Deep nesting makes a parser recurse until it fails. Hundreds of thousands of lists, or of fields that are each invalid, take
seconds to parse and validate while the GIL is held, so that no other request is served. Large bodies within these limits
are parsed in a thread, so that the event loop continues, and one at a time: several would compete for the GIL with each
other and with the schedulers.
"""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.to_thread
import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

MAX_DEPTH = 32
MAX_PARTS = 1 << 15  # lists, objects and their fields; numbers and strings in a list are cheap
LARGE = 16 << 10  # bytes; parsing a smaller body costs less than a thread switch
PARSERS = 1  # threads that parse large bodies
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)  # the last string may be unterminated
NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{}:"))


def structure(body: bytes) -> bytes:
    """The brackets and colons outside of strings. Linear time for any input: bodies may be hostile."""
    return STRINGS.sub(b"", body).translate(None, NOT_STRUCTURE)


def depth(found: bytes) -> int:
    """The deepest nesting of brackets."""
    text = np.frombuffer(found, np.uint8)
    steps = np.isin(text, list(b"[{")).astype(np.int32) - np.isin(text, list(b"]}"))
    return int(steps.cumsum().max(initial=0))


def parts(found: bytes) -> int:
    """How many lists, objects and fields there are."""
    return found.count(b"[") + found.count(b"{") + found.count(b":")


def parse(body: bytes) -> Any:
    # Most requests are below the limits even with the brackets in strings, which is ten times faster to count
    few = body.count(b"[") + body.count(b"{") <= MAX_DEPTH and parts(body) <= MAX_PARTS
    found = b"" if few else structure(body)
    if depth(found) > MAX_DEPTH:
        raise HTTPException(400, f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    if parts(found) > MAX_PARTS:
        raise HTTPException(400, f"The JSON has more than {MAX_PARTS:,} lists, objects and fields.")
    return json.loads(body)


class LimitedJsonRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= LARGE:
            return parse(body)
        return await anyio.to_thread.run_sync(parse, body, limiter=self.app.state.parser_limiter)


class LimitedJsonRoute(APIRoute):
    """A route whose JSON body is checked against the limits before it is parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            return await handle(LimitedJsonRequest(request.scope, request.receive))

        return checked
