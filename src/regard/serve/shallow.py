"""Routes whose JSON may neither be nested deeply nor have very many parts.

What is deep enough makes a parser recurse until it fails. Hundreds of thousands of lists, or of fields that are each wrong,
are parsed and checked for seconds, in which nobody else is served: Python's lock is held, so no thread would help.
"""

import re
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

MOST_DEPTH = 32
MOST_PARTS = 1 << 15  # lists, objects and their fields; numbers and texts in a list are cheap
TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # the last one may lack its end
BRACKETS = bytes(set(range(256)) - set(b"[]{}:"))


def structure(body: bytes) -> bytes:
    """Brackets and colons, those in texts left out. Each character is looked at once: bodies may be hostile."""
    return TEXTS.sub(b"", body).translate(None, BRACKETS)


def depth(found: bytes) -> int:
    """How deep brackets stand inside each other."""
    text = np.frombuffer(found, np.uint8)
    steps = np.isin(text, list(b"[{")).astype(np.int32) - np.isin(text, list(b"]}"))
    return int(steps.cumsum().max(initial=0))


def parts(found: bytes) -> int:
    return found.count(b"[") + found.count(b"{") + found.count(b":")


class ShallowRequest(Request):
    async def json(self) -> Any:
        found = structure(await self.body())
        if depth(found) > MOST_DEPTH:
            raise HTTPException(400, f"The JSON is nested deeper than {MOST_DEPTH} levels.")
        if parts(found) > MOST_PARTS:
            raise HTTPException(400, f"The JSON has more than {MOST_PARTS:,} lists, objects and fields.")
        return await super().json()


class Shallow(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            return await handle(ShallowRequest(request.scope, request.receive))

        return checked
