"""Shared by the scheduler tests: prompts and settings, slots that can be paused, and a callback that records events."""

import threading
from collections import defaultdict
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, cast

from regard.api import Model
from regard.engine.generate import Token
from regard.engine.scheduler import Scheduler
from regard.engine.slots import SlotInput, Slots
from regard.engine.top_k import Floats

CHUNK, ROOM = 8, 96
TEXTS = [
    "The old king and the old woman",
    "The old king and the old woman went to the river and saw a little boat on the water near the tall trees",
    "Sara",
    "Three children want to build a little boat. They ran to the hills and the sky was dark and the birds sang",
    "Three children want to build a little boat. They ran to the hills and swam in the river",
]
WISHES: list[dict[str, Any]] = [
    {"temperature": 0.0, "max_new_tokens": 12},
    {"temperature": 1.0, "seed": 7, "max_new_tokens": 15, "n": 3},
    {"temperature": 0.8, "seed": 1, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2, "max_new_tokens": 9},
    {"temperature": 1.3, "seed": 5, "min_p": 0.02, "presence_penalty": 0.5, "max_new_tokens": 20, "stop": [" the"]},
    {"temperature": 0.0, "frequency_penalty": 1.0, "logit_bias": {44: 3.0}, "max_new_tokens": 5},
    {"temperature": 0.5, "seed": 2, "max_new_tokens": 1},
]


def slots_of(model: Model, n_slots: int, capacity: int, chunk: int) -> Slots:
    slots: Any = model.slots(n_slots, capacity)
    slots.chunk = chunk  # small enough that short texts have several
    return cast(Slots, slots)


class Scripted:
    """Slots that run actions before certain steps, and record their inputs."""

    def __init__(self, model: Model, n_slots: int) -> None:
        self.slots = slots_of(model, n_slots, ROOM, CHUNK)
        self.before: dict[int, list[Callable[[], object]]] = defaultdict(list)
        self.fed: list[list[SlotInput]] = []
        self.poison, self.again = -1, 0
        self.gate = threading.Event()
        self.gate.set()

    def feed(self, pieces: Any) -> Floats:
        if self.again:  # each alone, after a failure
            self.again -= 1
        else:
            self.gate.wait()
            for action in self.before.pop(len(self.fed), []):
                action()
            self.fed.append(list(pieces))
        if any(self.poison in piece.ids for piece in pieces):
            self.again = self.again or (len(pieces) if len(pieces) > 1 else 0)
            raise ZeroDivisionError("poison")
        return self.slots.feed(pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.slots, name)


class Heard:
    """A callback that records the events of a request."""

    def __init__(self, n: int = 1) -> None:
        self.n, self.events = n, defaultdict[int, list[Any]](list)
        self.ended: SimpleQueue[int] = SimpleQueue()

    def __call__(self, index: int, event: Any) -> None:
        self.events[index].append(event)
        if not isinstance(event, Token):
            self.ended.put(index)

    def wait(self) -> list[list[Any]]:
        for _ in range(self.n):
            self.ended.get(timeout=60)
        return [self.events[i] for i in range(self.n)]


def close(scheduler: Scheduler) -> None:
    slots: Any = scheduler.slots
    slots.gate.set()
    scheduler.close()


def rows(model: Any, text: str, wish: dict[str, Any]) -> list[Any]:
    return list(model.rows(model.tokenizer.encode(text), context=ROOM, **wish))
