"""The models that generate text on a server, each with a scheduler and its slots.

A model is loaded on the first request for it, and its scheduler lives as long as the model does. The memory of its slots is
known beforehand and counts, with its weights, against the registry's `max_bytes`; the slots of one model take at most a
quarter of that.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from regard.api import Model
from regard.engine.sampling import RowState
from regard.engine.scheduler import OnEvent, QueueFull, Scheduler, Ticket
from regard.errors import ConfigError, NotFound, TaskError, quoted
from regard.model.spec import Spec
from regard.serve.model_registry import ModelRegistry
from regard.text.tokenizer import Tokenizer

SLOTS, QUEUE = 8, 64

log = logging.getLogger("regard")


@dataclass(frozen=True)
class ServedModel:
    """A decoder with its scheduler."""

    name: str
    model: Model
    scheduler: Scheduler

    @property
    def context(self) -> int:
        """How many tokens a prompt and its answer may have together."""
        return self.scheduler.slots.capacity


class ServedModels:
    """`slots`, `queue` and `context` are those of each model, `threads` those of each scheduler."""

    def __init__(
        self,
        registry: ModelRegistry,
        *,
        slots: int = SLOTS,
        queue: int = QUEUE,
        context: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.registry, self.slots, self.queue, self.context, self.threads = registry, slots, queue, context, threads
        self._served: dict[str, ServedModel] = {}
        self._lock = threading.Lock()
        self._admitted = 0
        registry.extra_bytes = self._slot_bytes
        registry.on_evict.append(self._on_evict)

    def check(self, name: str) -> None:
        """Refuse a name that the API does not serve, although the page may show that model."""
        if name not in self.registry.served_names:
            raise NotFound(f"There is no model {quoted(name)} here; there are {', '.join(self.registry.served_names)}.")

    def tokenizer(self, name: str) -> Tokenizer:
        self.check(name)
        tokenizer = self.registry.entry(name).opened.tokenizer
        if tokenizer is None:
            raise TaskError(f"{name} has no tokenizer, so it cannot process text.")
        return tokenizer

    def model(self, name: str) -> Model:
        self.tokenizer(name)
        return self.registry.model(name)

    def get(self, name: str) -> ServedModel:
        """The decoder with its scheduler; loaded and started if it is not running."""
        model = self.model(name)
        if model.spec.kind != "decoder" or model.spec.head.kind != "lm":
            other = " Ask /v1/translations." if model.spec.kind == "encoder-decoder" else ""
            raise TaskError(f"{name} does not continue texts; this needs a decoder (GPT-2, Llama, …).{other}")
        with self._lock:
            found = self._served.get(name)
            if found is None or found.model is not model:
                if found is not None:
                    found.scheduler.close(wait=False)
                found = self._served[name] = ServedModel(name, model, self._scheduler(model))
            return found

    def max_context(self, spec: Spec) -> int:
        """Tokens of the longest text: the model's context, for decoders limited by the server's --context."""
        return min(self.context or spec.context, spec.context) if spec.kind == "decoder" else spec.context

    def check_capacity(self, name: str, answers: int) -> None:
        """Refuse a request, before any work is done for it, if there are neither slots nor places in the queue for it."""
        served = self._served.get(name)
        if served is not None:
            self._check_size(served, answers)
            served.scheduler.check_capacity(answers)

    def _check_size(self, served: ServedModel, answers: int) -> None:
        capacity = served.scheduler.slots.n_slots + self.queue
        if answers > capacity:
            raise TaskError(f"The request asks for {answers} answers; this server holds {capacity} at once.")

    def submit(self, served: ServedModel, rows: Sequence[RowState], callback: OnEvent, alternatives: int) -> Ticket:
        """Raises `SchedulerClosed` if the model was just evicted: `get` loads it again."""
        self._check_size(served, len(rows))
        return served.scheduler.submit(rows, callback, alternatives=alternatives)

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request that runs outside the slots (embeddings, translations, replays). At most `queue` are admitted at
        a time; `QueueFull` beyond that."""
        with self._lock:
            if self._admitted >= max(self.queue, 1):
                raise QueueFull("The queue is full: try again in a moment.", 1)
            self._admitted += 1
        try:
            yield
        finally:
            with self._lock:
                self._admitted -= 1

    def running(self) -> list[ServedModel]:
        with self._lock:
            return list(self._served.values())

    def close(self) -> None:
        for served in self.running():
            served.scheduler.close(wait=False)

    def _scheduler(self, model: Model) -> Scheduler:
        context = self.max_context(model.spec)
        size = model.slot_bytes(context)
        fitting = self.registry.max_bytes // 4 // size
        if not fitting:
            raise ConfigError(
                f"A text of {context:,} tokens takes {size / 1e9:.3g} GB with {model.name}, over a quarter of the server's "
                f"{self.registry.max_bytes / 1e9:.3g} GB; its owner can give a smaller --context or more --memory."
            )
        slots = min(self.slots, fitting)
        if slots < self.slots:
            log.warning(
                "%s has %d slots instead of %d, since more do not fit into memory.", model.name, slots, self.slots
            )
        return Scheduler(model.slots(slots, context), model.tokenizer, queue=self.queue, threads=self.threads)

    def _slot_bytes(self, model: Model) -> int:
        return sum(each.scheduler.slots.max_bytes for each in list(self._served.values()) if each.model is model)

    def _on_evict(self, model: Model) -> None:
        """Close the scheduler of an evicted model; the requests it has accepted are still answered."""
        with self._lock:
            for served in [each for each in self._served.values() if each.model is model]:
                del self._served[served.name]
                served.scheduler.close(wait=False)
