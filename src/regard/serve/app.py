"""The server as an ASGI application: `make_app(shelf)`.

In: a shelf of models and the training runs to show. Out: an application for uvicorn with the page at `/`, its files at
`/page/…` and its data at `/api/…`. Whatever a person can put right is answered with a sentence and a 4xx.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from regard.errors import NotFound, RegardError, quoted
from regard.serve import frames, inspect, live, static
from regard.serve.answer import refusal
from regard.serve.desk import Desk
from regard.serve.frames import Runs
from regard.serve.guard import MOST_BODY, MOST_REQUESTS, Guard
from regard.serve.shelf import Shelf

NOT_JSON = "What was sent is not JSON."
NOT_AN_OBJECT = "A request is a JSON object, sent with Content-Type: application/json."
UNREADABLE = "There was an error parsing the body"  # FastAPI's words for the same
WORKERS = 8  # threads that compute; the event loop never does


def make_app(
    shelf: Shelf,
    *,
    runs: Runs | None = None,
    host: str = "127.0.0.1",
    page: Path = static.FOLDER,
    key: str | None = None,
    most_body: int = MOST_BODY,
    most_requests: int = MOST_REQUESTS,
    routers: Sequence[APIRouter] = (),
    **more: Any,
) -> FastAPI:
    """`host`: where the server listens, whose name it then answers to besides those of loopback. `key`: what a request
    must know. `routers`: further routes, which alone are described if `openapi_url` is among FastAPI's `more` settings.
    """

    settings = {"docs_url": None, "redoc_url": None, "openapi_url": None, "lifespan": few_threads}
    app = FastAPI(title="regard", **(settings | more))
    app.state.desk, app.state.runs = Desk(shelf), runs or Runs()
    for router in (static.page_router(page), inspect.router, live.router, frames.router):
        app.include_router(router, include_in_schema=False)
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(RegardError, on_refusal)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(MemoryError, on_no_memory)
    app.add_middleware(Guard, host=host, key=key, most_body=most_body, most_requests=most_requests)
    return app


@asynccontextmanager
async def few_threads(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
    yield


async def on_refusal(request: Request, problem: Exception) -> Response:
    return refusal(404 if isinstance(problem, NotFound) else 400, str(problem), path=request.url.path)


async def on_http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    words = {
        400: NOT_JSON if problem.detail == UNREADABLE else problem.detail,
        404: f"There is nothing at {quoted(request.url.path)}.",
        405: f"{request.method} is not a way to ask for this.",
    }
    sentence = words.get(problem.status_code) or problem.detail
    return refusal(problem.status_code, sentence, path=request.url.path, headers=problem.headers)


async def on_invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    worst = max(problem.errors(), key=nearness)
    kind, words = worst["type"], str(worst["msg"])
    where = [str(part) for part in worst["loc"][1:] if is_place(part) or kind == "extra_forbidden"]
    sentence, param = f"{'.'.join(where)}: {words}.", where[0] if where else None
    if kind == "extra_forbidden":
        sentence = f"{quoted('.'.join(where))} is not something that can be asked for here."
    elif kind == "value_error":  # two fields that contradict each other, in our own words
        sentence = words.removeprefix("Value error, ") + "."
        param = sentence.partition(" ")[0]
    elif kind == "json_invalid" or not where:
        sentence, param = NOT_JSON if kind == "json_invalid" else NOT_AN_OBJECT, None
    return refusal(400, sentence, path=request.url.path, param=param)


def nearness(error: dict[str, Any]) -> tuple[bool, int]:
    """Of the reasons why a value is none of the things that it may be, rather its size than its kind, and the deepest."""
    return not error["type"].endswith("_type"), len(error["loc"])


def is_place(part: str | int) -> bool:
    """Whether it is a field or an index, and not pydantic's name for one of the things that a value may be."""
    return isinstance(part, int) or part.isdecimal() or (part.isidentifier() and part != "str")


async def on_no_memory(request: Request, problem: Exception) -> Response:
    return refusal(
        507, "There is not enough memory for this: give a shorter text or a smaller model.", path=request.url.path
    )
