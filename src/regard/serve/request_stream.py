"""A completion request while it is being generated: events from the scheduler's thread to the event loop.

Events wait in a queue of the request's own, which holds at most as many as the request may have tokens. So a client that
reads slowly delays no other request, and one that disconnects releases its slots before the next step.
"""

import asyncio
import time
from collections.abc import Sequence

from fastapi import Request

from regard.engine.generate import Answer, Token
from regard.engine.sampling import RowState
from regard.engine.scheduler import Event, Ticket
from regard.serve.openai_format import Choice
from regard.serve.served_models import ServedModel, ServedModels

CLIENT_CLOSED_REQUEST = 499  # nginx's status, logged when the client disconnected before the answer


class ClientGone(Exception):
    """The client disconnected."""


class RequestStream:
    """The events of one request. Call `close` in any case: it releases the request's slots."""

    def __init__(self, request: Request, choices: Sequence[Choice]) -> None:
        self.choices = list(choices)
        self.unfinished = len(self.choices)
        self.first_token_at: float | None = None  # by time.perf_counter()
        self._ticket: Ticket | None = None
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._disconnect = self._loop.create_task(self._wait_for_disconnect(request))

    def submit(self, served: ServedModels, target: ServedModel, rows: Sequence[RowState], alternatives: int) -> None:
        self._ticket = served.submit(target, rows, self._enqueue, alternatives)

    async def next(self) -> tuple[Choice, Token | Answer]:
        """Wait for the next token or finished answer and add it to its choice. Raises what the scheduler raised, or
        `ClientGone` after the client disconnected."""
        index, event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        choice = self.choices[index]
        if isinstance(event, Answer):
            self.unfinished -= 1
            choice.answer = event
        else:
            self.first_token_at = self.first_token_at or time.perf_counter()
            choice.tokens.append(event)
        return choice, event

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)

    def close(self) -> None:
        self._disconnect.cancel()
        if self._ticket is not None:
            self._ticket.cancel()

    def _enqueue(self, index: int, event: Event) -> None:
        """The scheduler's callback, called in its thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

    async def _wait_for_disconnect(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if self._ticket is not None:
            self._ticket.cancel()
        self._events.put_nowait((0, ClientGone()))
