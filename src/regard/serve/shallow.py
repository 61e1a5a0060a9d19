"""Routes whose JSON may not be nested deeply: what is deep enough makes a parser recurse until it fails.

Large bodies are looked at and parsed in a thread, so that the event loop goes on.
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
LARGE = 16 << 10  # bytes; what is smaller takes less than a thread does
# To its end or to that of the body, so that every quote begins a match and none is looked at twice
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def depth(body: bytes) -> int:
    """How deep brackets stand inside each other, those in texts not counted. Linear: bodies may be hostile."""
    brackets = STRING.sub(b"", body).translate(None, NOT_BRACKETS)
    opens = np.isin(np.frombuffer(brackets, np.uint8), list(b"[{"))
    return int(np.where(opens, 1, -1).cumsum(dtype=np.int32).max(initial=0))


def parsed(body: bytes) -> Any:
    if depth(body) > MOST_DEPTH:
        raise HTTPException(400, f"The JSON is nested deeper than {MOST_DEPTH} levels.")
    return json.loads(body)


class ShallowRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= LARGE:
            return parsed(body)
        return await anyio.to_thread.run_sync(parsed, body)


class Shallow(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            return await handle(ShallowRequest(request.scope, request.receive))

        return checked
