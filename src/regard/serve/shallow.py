"""Routes whose JSON may not be nested deeply: what is deep enough makes a parser recurse until it fails."""

from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

MOST_DEPTH = 32


def depth(body: bytes) -> int:
    """How deep brackets stand inside each other, those in texts not counted. Whole arrays: bodies may be hostile."""
    text = np.frombuffer(body, np.uint8)
    place = np.arange(len(text))
    plain = np.maximum.accumulate(
        np.where(text != ord("\\"), place, -1)
    )  # the last character so far that is no backslash
    backslashes = place - 1 - np.concatenate([[-1], plain[:-1]])  # how many stand right before each character
    quotes = (text == ord('"')) & (backslashes % 2 == 0)
    outside = quotes.cumsum() % 2 == 0
    steps = np.isin(text, list(b"[{")).astype(np.int32) - np.isin(text, list(b"]}"))
    return int((steps * outside).cumsum().max(initial=0))


class ShallowRequest(Request):
    async def json(self) -> Any:
        if depth(await self.body()) > MOST_DEPTH:
            raise HTTPException(400, f"The JSON is nested deeper than {MOST_DEPTH} levels.")
        return await super().json()


class Shallow(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            return await handle(ShallowRequest(request.scope, request.receive))

        return checked
