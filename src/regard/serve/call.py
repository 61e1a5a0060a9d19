"""A request for text while it is served: from the scheduler's thread to the event loop, until it is over or nobody listens.

Events wait in a queue of the request's own, which holds at most what the request may be long. So a client that reads slowly
delays nobody, and one that goes away gives back its slots before the next step.
"""

import asyncio
import time
from collections.abc import Sequence

from fastapi import Request

from regard.engine.generate import Answer, Token
from regard.engine.sample import RowState
from regard.engine.schedule import Event, Ticket
from regard.serve.engines import Engine, Engines
from regard.serve.speak import Choice

NOBODY = 499  # the status in the log of an answer that nobody waited for


class Gone(Exception):
    """The client went away."""


class Call:
    """Give back what it holds by `close`, whatever happens."""

    def __init__(self, request: Request, choices: Sequence[Choice]) -> None:
        self.choices = list(choices)
        self.open = len(self.choices)
        self.first: float | None = None  # when the first token came
        self._ticket: Ticket | None = None
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._watch = self._loop.create_task(self._listen(request))

    def begin(self, engines: Engines, engine: Engine, rows: Sequence[RowState], alternatives: int) -> None:
        self._ticket = engines.submit(engine, rows, self._tell, alternatives)

    async def next(self) -> tuple[Choice, Token | Answer]:
        """What happens next, entered into its choice. Raises what went wrong, and `Gone` if nobody listens any more."""
        index, event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        choice = self.choices[index]
        if isinstance(event, Answer):
            self.open -= 1
            choice.answer = event
        else:
            self.first = self.first or time.perf_counter()
            choice.tokens.append(event)
        return choice, event

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)

    def close(self) -> None:
        self._watch.cancel()
        if self._ticket is not None:
            self._ticket.cancel()

    def _tell(self, index: int, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

    async def _listen(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if self._ticket is not None:
            self._ticket.cancel()
        self._events.put_nowait((0, Gone()))
