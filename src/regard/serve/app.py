"""The page's server as an ASGI application: `make_app(registry)`.

In: a model registry and the training runs to show. Out: an application for uvicorn with the page at `/`, its files at
`/page/…` and its data at `/api/…`. Errors that the client can correct are answered with a 4xx and a one-sentence message.
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
from regard.page import generation, routes, static_files, training_frames
from regard.page.json_response import error_response
from regard.page.trace_sessions import TraceSessions
from regard.page.training_frames import TrainingRuns
from regard.serve.guard import MAX_BODY, MAX_REQUESTS, Guard
from regard.serve.model_registry import ModelRegistry
from regard.teach.tour import Tour

NOT_JSON = "The body of the request is not JSON."
NOT_AN_OBJECT = "A request is a JSON object, sent with Content-Type: application/json."
UNREADABLE = "There was an error parsing the body"  # FastAPI's message for the same
WORKERS = 8  # threads that compute; the event loop never does


def make_app(
    registry: ModelRegistry,
    *,
    runs: TrainingRuns | None = None,
    tours: Sequence[Tour] = (),
    host: str = "127.0.0.1",
    page: Path = static_files.WEB,
    key: str | None = None,
    max_body: int = MAX_BODY,
    max_requests: int = MAX_REQUESTS,
    routers: Sequence[APIRouter] = (),
    **more: Any,
) -> FastAPI:
    """The application with all routes, exception handlers and the guard.

    tours: tours of files, in addition to the lessons. host: the address the server listens on, accepted as a Host header
    in addition to the loopback names. key: the API key that requests must send. routers: further routes; only these appear
    in the OpenAPI schema, if `openapi_url` is among `more`, FastAPI's own settings.
    """
    settings = {"docs_url": None, "redoc_url": None, "openapi_url": None, "lifespan": limit_threads}
    app = FastAPI(title="regard", **(settings | more))
    app.state.sessions, app.state.runs = TraceSessions(registry), runs or TrainingRuns()
    app.state.sessions.tours |= {tour.name: tour for tour in tours}
    for router in (static_files.page_router(page), routes.router, generation.router, training_frames.router):
        app.include_router(router, include_in_schema=False)
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(RegardError, on_regard_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(MemoryError, on_memory_error)
    app.add_middleware(Guard, host=host, key=key, max_body=max_body, max_requests=max_requests)
    return app


@asynccontextmanager
async def limit_threads(app: FastAPI) -> AsyncIterator[None]:
    """A lifespan that limits how many threads run route functions."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
    yield


async def on_regard_error(request: Request, problem: Exception) -> Response:
    return error_response(404 if isinstance(problem, NotFound) else 400, str(problem), path=request.url.path)


async def on_http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    messages = {
        400: NOT_JSON if problem.detail == UNREADABLE else problem.detail,
        404: f"There is nothing at {quoted(request.url.path)}.",
        405: f"{request.method} is not allowed for this address.",
    }
    message = messages.get(problem.status_code) or problem.detail
    return error_response(problem.status_code, message, path=request.url.path, headers=problem.headers)


async def on_invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    worst = max(problem.errors(), key=relevance)
    kind, reason = worst["type"], str(worst["msg"])
    where = [str(part) for part in worst["loc"][1:] if is_field_or_index(part) or kind == "extra_forbidden"]
    message, param = f"{'.'.join(where)}: {reason}.", where[0] if where else None
    if kind == "extra_forbidden":
        message = f"{quoted('.'.join(where))} is not a field of this request."
    elif kind == "value_error":  # two fields that contradict each other: our own message
        message = reason.removeprefix("Value error, ") + "."
        param = message.partition(" ")[0]
    elif kind == "json_invalid" or not where:
        message, param = NOT_JSON if kind == "json_invalid" else NOT_AN_OBJECT, None
    return error_response(400, message, path=request.url.path, param=param)


def relevance(error: dict[str, Any]) -> tuple[bool, int]:
    """Sort key of pydantic's errors for a union: a wrong value says more than a wrong type, and the deepest error most."""
    return not error["type"].endswith("_type"), len(error["loc"])


def is_field_or_index(part: str | int) -> bool:
    """Whether part of an error's location is a field or an index, and not pydantic's name for a member of a union."""
    return isinstance(part, int) or part.isdecimal() or (part.isidentifier() and part != "str")


async def on_memory_error(request: Request, problem: Exception) -> Response:
    return error_response(
        507, "There is not enough memory for this: give a shorter text or a smaller model.", path=request.url.path
    )
