"""Generation as it happens: `POST /api/generate` answers with an event per token.

Each token is computed in a thread of its own turn, so that the event loop stays free; when the listener goes, the turn that
is running is the last.
"""

import json
import math
from collections.abc import AsyncIterator, Generator
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from regard.engine.settings import Settings
from regard.errors import RegardError
from regard.serve.desk import MOST_CHARACTERS, Desk, ids_of, sampling

CANDIDATES = 10  # shown beside each token

router = APIRouter(prefix="/api")


def desk_of(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


TheDesk = Annotated[Desk, Depends(desk_of)]


class Wish(BaseModel):
    """What to write after. What is left out is as the model's own files say, else greedy."""

    model_config = ConfigDict(extra="forbid")

    model: str
    text: str = Field(max_length=MOST_CHARACTERS)
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None


@router.post("/generate")
async def generate(desk: TheDesk, wish: Wish) -> Response:
    events = await anyio.to_thread.run_sync(begin, desk, wish)
    first = await anyio.to_thread.run_sync(next, events)  # what is wrong with the wish is said before the stream begins
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(spoken(first, events), media_type="text/event-stream", headers=headers)


def begin(desk: Desk, wish: Wish) -> Generator[dict[str, Any]]:
    model = desk.shelf.model(wish.model)
    settings = sampling(wish.model_dump(exclude={"model", "text"}))
    settings["seed"] = Settings().replace(seed=settings.get("seed")).seeded().seed
    ids = ids_of(model, wish.text, "text")

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


async def spoken(first: dict[str, Any], events: Generator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """The events as lines of a stream. What fails on the way is its last event."""
    event: dict[str, Any] | None = first
    try:
        while event is not None:
            yield line(event)
            event = await anyio.to_thread.run_sync(next, events, None)
    except RegardError as problem:
        yield line({"error": str(problem)})
    finally:
        events.close()


def line(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()
