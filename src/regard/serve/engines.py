"""The models of a server at work: for each that has been asked to write, a scheduler with its slots.

A model is loaded when it is first asked for and its scheduler stays as long as the model does. What its slots may take is
known beforehand and counts, with its weights, against the memory that the shelf may hold; no model's slots take more than a
quarter of that.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from regard.api import Model
from regard.engine.sample import RowState
from regard.engine.schedule import Full, Scheduler, Tell, Ticket
from regard.errors import ConfigError, NotFound, TaskError, quoted
from regard.model.spec import Spec
from regard.serve.shelf import Shelf
from regard.text.tokenizer import Tokenizer

SLOTS, QUEUE = 8, 64

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Engine:
    name: str
    model: Model
    scheduler: Scheduler

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self.scheduler.lanes.room


class Engines:
    """`slots`, `queue` and `context` are of each model; `threads` of each scheduler."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        slots: int = SLOTS,
        queue: int = QUEUE,
        context: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.shelf, self.slots, self.queue, self.context, self.threads = shelf, slots, queue, context, threads
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()
        self._reading = 0
        shelf.beside = self._beside
        shelf.on_drop.append(self._put_away)

    def check(self, name: str) -> None:
        """Only what the server's owner named is served, though the page may show more."""
        if name not in self.shelf.named:
            raise NotFound(f"There is no model {quoted(name)} here; there are {', '.join(self.shelf.named)}.")

    def tokenizer(self, name: str) -> Tokenizer:
        self.check(name)
        tokenizer = self.shelf.offer(name).opened.tokenizer
        if tokenizer is None:
            raise TaskError(f"{name} has no tokenizer, so it neither reads nor writes text.")
        return tokenizer

    def model(self, name: str) -> Model:
        self.tokenizer(name)
        return self.shelf.model(name)

    def engine(self, name: str) -> Engine:
        """A model that continues texts, with its slots."""
        model = self.model(name)
        if model.spec.kind != "decoder" or model.spec.head.kind != "lm":
            other = " Ask /v1/translations." if model.spec.kind == "encoder-decoder" else ""
            raise TaskError(f"{name} does not continue texts; this needs a decoder (GPT-2, Llama, …).{other}")
        with self._lock:
            found = self._engines.get(name)
            if found is None or found.model is not model:
                if found is not None:
                    found.scheduler.close(wait=False)
                found = self._engines[name] = Engine(name, model, self._scheduler(model))
            return found

    def room(self, spec: Spec) -> int:
        """Tokens of the longest text: where texts are continued, no more than the server's owner allows."""
        return min(self.context or spec.context, spec.context) if spec.kind == "decoder" else spec.context

    def make_sure(self, name: str, answers: int) -> None:
        """Refuse at once, and at no cost, what there is no room for now."""
        engine = self._engines.get(name)
        if engine is not None:
            self._check_size(engine, answers)
            engine.scheduler.make_sure(answers)

    def _check_size(self, engine: Engine, answers: int) -> None:
        most = engine.scheduler.lanes.slots + self.queue
        if answers > most:
            raise TaskError(f"The request asks for {answers} answers; this server holds {most} at once.")

    def submit(self, engine: Engine, rows: Sequence[RowState], tell: Tell, alternatives: int) -> Ticket:
        """Raises `Closed` if the model had to go a moment ago: the next `engine` brings it back."""
        self._check_size(engine, len(rows))
        return engine.scheduler.submit(rows, tell, alternatives=alternatives)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Whole texts (vectors, translations, replays) are read beside the slots, by as many as may wait for those."""
        with self._lock:
            if self._reading >= max(self.queue, 1):
                raise Full("As much is being read as there is room for: try again in a moment.", 1)
            self._reading += 1
        try:
            yield
        finally:
            with self._lock:
                self._reading -= 1

    def running(self) -> list[Engine]:
        with self._lock:
            return list(self._engines.values())

    def close(self) -> None:
        for engine in self.running():
            engine.scheduler.close(wait=False)

    def _scheduler(self, model: Model) -> Scheduler:
        room = self.room(model.spec)
        size = model.slot_bytes(room)
        fitting = self.shelf.most_bytes // 4 // size
        if not fitting:
            raise ConfigError(
                f"A text of {room:,} tokens takes {size / 1e9:.3g} GB with {model.name}, over a quarter of the server's "
                f"{self.shelf.most_bytes / 1e9:.3g} GB; its owner can give a smaller --context or more --memory."
            )
        slots = min(self.slots, fitting)
        if slots < self.slots:
            log.warning(
                "%s has %d slots instead of %d, since more do not fit into memory.", model.name, slots, self.slots
            )
        return Scheduler(model.lanes(slots, room), model.tokenizer, queue=self.queue, threads=self.threads)

    def _beside(self, model: Model) -> int:
        return sum(e.scheduler.lanes.most_bytes for e in list(self._engines.values()) if e.model is model)

    def _put_away(self, model: Model) -> None:
        """Whoever is being served by a model that had to go is still served."""
        with self._lock:
            for engine in [e for e in self._engines.values() if e.model is model]:
                del self._engines[engine.name]
                engine.scheduler.close(wait=False)
