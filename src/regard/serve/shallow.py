"""Routes whose JSON may neither be nested deeply nor have very many parts.

What is deep enough makes a parser recurse until it fails. Hundreds of thousands of lists, or of fields that are each wrong,
are parsed and checked for seconds, in which nobody else is served: Python's lock is held, so no thread would help. Large
bodies within these limits are looked at and parsed in a thread, so that the event loop goes on.
"""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.to_thread
import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

MOST_DEPTH = 32
MOST_PARTS = 1 << 15  # lists, objects and their fields; numbers and texts in a list are cheap
LARGE = 16 << 10  # bytes; what is smaller takes less than a thread does
TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)  # the last one may lack its end
NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{}:"))


def structure(body: bytes) -> bytes:
    """Brackets and colons, those in texts left out. Each character is looked at once: bodies may be hostile."""
    return TEXTS.sub(b"", body).translate(None, NOT_STRUCTURE)


def depth(found: bytes) -> int:
    """How deep brackets stand inside each other."""
    text = np.frombuffer(found, np.uint8)
    steps = np.isin(text, list(b"[{")).astype(np.int32) - np.isin(text, list(b"]}"))
    return int(steps.cumsum().max(initial=0))


def parts(found: bytes) -> int:
    return found.count(b"[") + found.count(b"{") + found.count(b":")


def parsed(body: bytes) -> Any:
    found = structure(body)
    if depth(found) > MOST_DEPTH:
        raise HTTPException(400, f"The JSON is nested deeper than {MOST_DEPTH} levels.")
    if parts(found) > MOST_PARTS:
        raise HTTPException(400, f"The JSON has more than {MOST_PARTS:,} lists, objects and fields.")
    return json.loads(body)


class ShallowRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        return parsed(body) if len(body) <= LARGE else await anyio.to_thread.run_sync(parsed, body)


class Shallow(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            return await handle(ShallowRequest(request.scope, request.receive))

        return checked
