"""Streamed generation for the page: `POST /api/generate` responds with a server-sent event per token.

Each decode step runs in a worker thread, so that the event loop stays free; when the client disconnects, the step that is
running is the last.
"""

import math
from collections.abc import AsyncIterator, Generator
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from regard.engine.settings import Settings
from regard.errors import RegardError
from regard.page.json_response import Events, event
from regard.page.trace_sessions import MAX_CHARACTERS, TraceSessions, ids_of, sampling

CANDIDATES = 10  # alternatives sent with each token

router = APIRouter(prefix="/api")


def get_sessions(request: Request) -> TraceSessions:
    sessions: TraceSessions = request.app.state.sessions
    return sessions


Sessions = Annotated[TraceSessions, Depends(get_sessions)]


class GenerateRequest(BaseModel):
    """A prompt and settings. Settings left out are those of the model's generation_config.json, else greedy."""

    model_config = ConfigDict(extra="forbid")

    model: str
    text: str = Field(max_length=MAX_CHARACTERS)
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None


@router.post("/generate")
async def generate(sessions: Sessions, body: GenerateRequest) -> Response:
    events = await anyio.to_thread.run_sync(start, sessions, body)
    first = await anyio.to_thread.run_sync(next, events)  # an invalid request is refused before the stream begins
    return Events(stream_events(first, events))


def start(sessions: TraceSessions, body: GenerateRequest) -> Generator[dict[str, Any]]:
    """Load the model and tokenize; returns the events, one per token and a last one."""
    model = sessions.registry.model(body.model)
    settings = sampling(body.model_dump(exclude={"model", "text"}))
    settings["seed"] = Settings().replace(seed=settings.get("seed")).seeded().seed
    ids = ids_of(model, body.text, "text")

    def pieces(ids: list[int]) -> list[str]:
        return model.tokenizer.pieces(ids)

    def events() -> Generator[dict[str, Any]]:
        text = ""
        for token in model.stream_tokens(ids, alternatives=CANDIDATES, num_beams=1, n=1, **settings):
            text += token.text
            yield {
                "piece": pieces([token.id])[0],
                "id": token.id,
                "probability": math.exp(token.logprob),
                "text": token.text,
                "candidates": [[pieces([id])[0], id, math.exp(logprob)] for id, logprob in token.alternatives],
            }
        yield {"done": True, "text": text, "seed": settings["seed"]}

    return events()


async def stream_events(first: dict[str, Any], events: Generator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """The encoded events. An error on the way becomes the last one."""
    item: dict[str, Any] | None = first
    try:
        while item is not None:
            yield event(item)
            item = await anyio.to_thread.run_sync(next, events, None)
    except RegardError as problem:
        yield event({"error": str(problem)})
    finally:
        events.close()
