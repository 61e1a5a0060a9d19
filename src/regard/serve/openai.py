"""The OpenAI-compatible interface: `make_server(engines)` is the page's application with /v1 and its companions added.

Texts are continued by the schedulers (`engine/schedule.py`), whose answers `writing.py` brings; vectors and translations
are computed beside them (`reading.py`). Whatever a person can put right is answered with a 4xx and the error object.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import PlainTextResponse, Response

from regard import __version__
from regard.engine.schedule import Full
from regard.errors import GenerationError, NotFound, RegardError, TaskError, TooLong
from regard.serve import answers, reading, static
from regard.serve.answer import Json, refusal
from regard.serve.app import few_threads, make_app
from regard.serve.call import NOBODY, Gone
from regard.serve.engines import Engine, Engines
from regard.serve.frames import Runs
from regard.serve.guard import MOST_REQUESTS
from regard.serve.journal import Journal
from regard.serve.metrics import Metrics
from regard.serve.shallow import Shallow
from regard.serve.speak import Chat, Plain
from regard.serve.wire import ChatWish, DetokenizeWish, EmbeddingWish, TextWish, TokenizeWish, TranslationWish
from regard.serve.writing import write

MOST_BODY = 2 << 20
WISHES = (ChatWish, TextWish, EmbeddingWish, TranslationWish, TokenizeWish, DetokenizeWish)

router = APIRouter(route_class=Shallow, responses=answers.REFUSALS)


def make_server(
    engines: Engines,
    *,
    host: str = "127.0.0.1",
    key: str | None = None,
    runs: Runs | None = None,
    page: Path = static.FOLDER,
    most_requests: int = MOST_REQUESTS,
) -> FastAPI:
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.readers = anyio.CapacityLimiter(reading.READERS)
        app.state.long_texts = anyio.CapacityLimiter(reading.LONG_TEXTS)
        async with few_threads(app):
            yield
        engines.close()

    app = make_app(
        engines.shelf,
        runs=runs,
        host=host,
        page=page,
        key=key,
        most_body=MOST_BODY,
        most_requests=most_requests,
        routers=[router],
        openapi_url="/openapi.json",
        lifespan=lifespan,
    )
    app.state.engines, app.state.metrics = engines, metrics
    app.add_exception_handler(RegardError, on_refusal)
    app.add_exception_handler(Gone, on_gone)
    app.add_middleware(Journal, metrics=metrics)
    app.openapi = lambda: described(app, key is not None)  # type: ignore[method-assign]
    return app


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


EVENTS: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


@router.post("/v1/chat/completions", responses={200: {"model": answers.ChatCompletion, **EVENTS}})
async def chat(request: Request, wish: ChatWish) -> Response:
    """The assistant's next message in a conversation."""

    def read(engine: Engine) -> list[tuple[list[int], str]]:
        if engine.model.tokenizer.chat_template is None:
            raise TaskError(
                f"{wish.model} has no chat template; ask /v1/completions, or a model trained on conversations."
            )
        messages = [message.plain() for message in wish.messages]
        return [(engine.model.chat_ids(messages, context=engine.context), "")]

    return await write(request, wish, Chat, read)


@router.post("/v1/completions", responses={200: {"model": answers.TextCompletion, **EVENTS}})
async def complete(request: Request, wish: TextWish) -> Response:
    """What follows a text, or each of several."""

    def read(engine: Engine) -> list[tuple[list[int], str]]:
        tokenizer, found = engine.model.tokenizer, list[tuple[list[int], str]]()
        for prompt in wish.prompts():
            if isinstance(prompt, str):
                ids, text = tokenizer.encode(prompt, most=engine.context), prompt
            else:
                ids = reading.known(tokenizer, prompt, "prompt")
                text = tokenizer.decode(ids, skip_special=False) if wish.echo else ""
            found.append((ids, text if wish.echo else ""))
        return found

    return await write(request, wish, Plain, read)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.post("/v1/embeddings", responses={200: {"model": answers.Vectors}})
async def embed(request: Request, wish: EmbeddingWish) -> Response:
    """A vector for each text."""
    return Json(await reading.embed(request, wish))


@router.post("/v1/translations", responses={200: {"model": answers.Translations}})
async def translate(request: Request, wish: TranslationWish) -> Response:
    """What an encoder-decoder writes for each text. (OpenAI's interface has no such route.)"""
    return Json(await reading.translate(request, wish))


@router.post("/tokenize", responses={200: {"model": answers.Tokens}})
async def tokenize(request: Request, wish: TokenizeWish) -> Response:
    """A text's ids. Control tokens that are spelt in it stay text, as in a prompt."""
    engines: Engines = request.app.state.engines

    def read() -> Response:
        ids = engines.tokenizer(wish.model).encode(wish.prompt, add_special=wish.add_special_tokens)
        room = engines.room(engines.shelf.offer(wish.model).opened.spec)
        return Json({"tokens": ids, "count": len(ids), "max_model_len": room})

    return await reading.beside(request, read)


@router.post("/detokenize", responses={200: {"model": answers.Text}})
async def detokenize(request: Request, wish: DetokenizeWish) -> Response:
    """The text of ids, control tokens included."""

    def read() -> Response:
        tokenizer = request.app.state.engines.tokenizer(wish.model)
        return Json({"prompt": tokenizer.decode(reading.known(tokenizer, wish.tokens, "tokens"), skip_special=False)})

    return await reading.beside(request, read)


# ── about the server ────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/v1/models", responses={200: {"model": answers.Cards}})
def models(request: Request) -> Response:
    engines: Engines = request.app.state.engines
    return Json({"object": "list", "data": [card(engines, name) for name in engines.shelf.named]})


@router.get("/v1/models/{name}", responses={200: {"model": answers.Card}})
def model(request: Request, name: str) -> Response:
    engines: Engines = request.app.state.engines
    engines.check(name)
    return Json(card(engines, name))


def card(engines: Engines, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": engines.shelf.offer(name).made, "owned_by": "regard"}


@router.get("/health", responses={200: {"model": answers.Health}})
async def health() -> Response:
    return Json({"status": "ok"})


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
def metrics(request: Request) -> Response:
    text = request.app.state.metrics.text(request.app.state.engines)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def on_refusal(request: Request, problem: Exception) -> Response:
    """A refusal with what a program wants to know of it besides the sentence."""
    path, sentence = request.url.path, str(problem).replace("max_new_tokens", "max_tokens")
    if isinstance(problem, Full):
        return refusal(429, sentence, path=path, code="busy", headers={"Retry-After": str(problem.seconds)})
    if isinstance(problem, NotFound):
        return refusal(404, sentence, path=path, param="model", code="model_not_found")
    if isinstance(problem, TooLong):
        param = "messages" if "/chat/" in path else "prompt"
        return refusal(400, sentence, path=path, param=param, code="context_length_exceeded")
    first = sentence.partition(" ")[0].partition(".")[0]
    known = isinstance(problem, GenerationError) and any(first in wish.model_fields for wish in WISHES)
    return refusal(400, sentence, path=path, param=first if known else None)


async def on_gone(request: Request, problem: Exception) -> Response:
    return Response(status_code=NOBODY)


def described(app: FastAPI, keyed: bool) -> dict[str, Any]:
    """The description of the interface. What FastAPI would say of invalid requests (422) is never answered here."""
    if app.openapi_schema is None:
        schema = get_openapi(title="regard", version=__version__, routes=app.routes)
        for path, ways in schema["paths"].items():
            for way in ways.values():
                way["responses"].pop("422", None)
                if keyed and path != "/health":
                    way["security"] = [{"key": []}]
        if keyed:
            schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for unused in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(unused, None)
        app.openapi_schema = schema
    return app.openapi_schema
