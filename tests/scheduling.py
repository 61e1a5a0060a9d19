"""What the tests of the scheduler share: texts and wishes, lanes that can be held up, and a listener that remembers."""

import threading
from collections import defaultdict
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch

from regard.api import Model
from regard.engine.generate import Token
from regard.engine.lanes import Lanes, Piece
from regard.engine.schedule import Scheduler

CHUNK, ROOM = 8, 96
TEXTS = [
    "The old king and the old woman",
    "The old king and the old woman went to the river and saw a little boat on the water near the tall trees",
    "Sara",
    "Three children want to build a little boat. They ran to the hills and the sky was dark and the birds sang",
    "Three children want to build a little boat. They ran to the hills and swam in the river",
]
WISHES = [
    {"temperature": 0.0, "max_new_tokens": 12},
    {"temperature": 1.0, "seed": 7, "max_new_tokens": 15, "n": 3},
    {"temperature": 0.8, "seed": 1, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2, "max_new_tokens": 9},
    {"temperature": 1.3, "seed": 5, "min_p": 0.02, "presence_penalty": 0.5, "max_new_tokens": 20, "stop": [" the"]},
    {"temperature": 0.0, "frequency_penalty": 1.0, "logit_bias": {44: 3.0}, "max_new_tokens": 5},
    {"temperature": 0.5, "seed": 2, "max_new_tokens": 1},
]


def lanes_of(model: Model, slots: int, room: int, chunk: int) -> Lanes:
    lanes = model.lanes(slots, room)
    lanes.chunk = chunk  # small enough that short texts have several
    return lanes


class Scripted:
    """Lanes that do something before certain steps, and remember what they were fed."""

    def __init__(self, model: Model, slots: int) -> None:
        self.lanes = lanes_of(model, slots, ROOM, CHUNK)
        self.before: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self.fed: list[list[Piece]] = []
        self.poison, self.again = -1, 0
        self.gate = threading.Event()
        self.gate.set()

    def feed(self, pieces: Any) -> torch.Tensor:
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
        return self.lanes.feed(pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lanes, name)


class Heard:
    """What a request was told."""

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
    scheduler.lanes.gate.set()
    scheduler.close()


def rows(model: Any, text: str, wish: dict[str, Any]) -> list[Any]:
    return model.rows(model.tokenizer.encode(text), context=ROOM, **wish)
