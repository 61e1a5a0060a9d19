"""The traces that the page has open: made from a text, found by id, evicted when there are too many.

An id is a secret that cannot be guessed, so that only the client that made a trace can read it. A trace takes more memory
as its nodes are computed on request, so the total is measured again after every use; the least recently used trace is
evicted first, and a request for it gets an error that says to run the text again.
"""

import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.engine.select import trim
from regard.errors import NotFound, TaskError, quoted
from regard.lru import LRU
from regard.store.system_memory import available_memory

if TYPE_CHECKING:
    from regard.api import Model
    from regard.explain.trace import Trace
    from regard.serve.model_registry import ModelRegistry
    from regard.teach.tour import Tour

MAX_TRACES, MAX_BYTES = 24, 3 << 30
TRACE_BYTES, WIDE_BYTES = 512 << 20, 2 << 30  # limits of one trace; beyond them, nodes are recomputed instead of stored
MAX_CHARACTERS = 20_000
MAX_TOKENS = 1024
MAX_NEW = 256
DEFAULT_NEW = 32
SAMPLING = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop")


@dataclass
class TraceSession:
    """A trace, with the model and the text that it was made from."""

    trace: "Trace"
    model: "Model"
    name: str
    text: str
    milliseconds: float
    plain: "Trace"  # the trace without edits
    id: str = field(default_factory=lambda: secrets.token_urlsafe(18))


class TraceSessions:
    """The open traces of a server, by id."""

    def __init__(self, registry: "ModelRegistry", *, max_traces: int = MAX_TRACES, max_bytes: int = MAX_BYTES) -> None:
        self.registry = registry
        self.tours: dict[str, Tour] = {}  # of files, by name
        self.max_bytes = max_bytes
        self._sessions: LRU[TraceSession] = LRU(max_traces, self.capacity, total_bytes)
        registry.on_evict.append(self._on_evict)

    def _on_evict(self, model: "Model") -> None:
        """Drop the traces of an evicted model, which would keep its weights in memory."""
        self._sessions.remove_if(lambda session: session.model is model)

    @property
    def nbytes(self) -> int:
        return self._sessions.nbytes

    def capacity(self) -> int:
        """Bytes for all traces: what the models leave of the server's memory, or a quarter of it if they leave less, and
        no more than half of the machine's available memory."""
        total, free = self.registry.max_bytes, available_memory()
        left = max(total - self.registry.nbytes, total // 4)
        return min(self.max_bytes, left, left if free is None else self.nbytes + free // 2)

    def trace_capacity(self) -> int:
        """Bytes for one trace: an eighth of the available memory, within limits, and at most half of `capacity`, since an
        edited trace also holds the one it was made from."""
        free = available_memory() or 0
        return min(WIDE_BYTES, max(TRACE_BYTES, free // 8), self.capacity() // 2)

    @contextmanager
    def using(self, *ids: str) -> Iterator[list[TraceSession]]:
        """The sessions with these ids; afterwards the memory limits are applied, since traces grow as they are used."""
        try:
            yield [self.find(id) for id in ids]
        finally:
            self.evict()

    def evict(self) -> None:
        """Evict the least recently used models and traces that exceed their limits."""
        self.registry.evict()
        if self._sessions.evict():
            trim()

    def find(self, id: str) -> TraceSession:
        session = self._sessions.get(id)
        if session is None:
            raise NotFound("That run is no longer stored here; run the text again.")
        return session

    def run(
        self,
        name: str,
        text: str,
        target: str | None = None,
        generate: Mapping[str, Any] | None = None,
        edits: Mapping[str, Any] | None = None,
    ) -> TraceSession:
        """Trace a text (and what is generated after it, if `generate` has settings) and store the session."""
        model = self.registry.model(name)
        begin = time.perf_counter()
        source = ids_of(model, text, "text")
        target_ids = ids_of(model, target, "target") if target else None
        settings = {} if generate is None or target else {"num_beams": 1, "n": 1, **sampling(generate)}
        trace = model.trace(source, target_ids, memory_limit=self.trace_capacity(), **settings)
        return self._store(trace, edits or {}, model, name, text, begin)

    def fork(self, session: TraceSession, edits: Mapping[str, Any]) -> TraceSession:
        """A new session: the same run with these edits and no others."""
        begin = time.perf_counter()
        return self._store(session.plain, edits, session.model, session.name, session.text, begin)

    def _store(
        self, plain: "Trace", edits: Mapping[str, Any], model: "Model", name: str, text: str, begin: float
    ) -> TraceSession:
        trace = plain.edit(edits) if edits else plain
        trace.steps = plain.steps  # the text was generated without the edits
        session = TraceSession(trace, model, name, text, 1000 * (time.perf_counter() - begin), plain)
        self._sessions.put(session.id, session)
        self.evict()  # also the models: the trace may have made this one's reference network
        return session


def total_bytes(sessions: Collection[TraceSession]) -> int:
    """Bytes of all traces together. Edited traces may share the trace that they were made from, which counts once."""
    return sum(trace.nbytes for trace in {trace for each in sessions for trace in (each.trace, each.plain)})


def ids_of(model: "Model", text: str, what: str) -> list[int]:
    """A text's ids; refused if it is empty or too long. For masked language models the text may contain [MASK]."""
    if len(text) > MAX_CHARACTERS:
        raise TaskError(f"The {what} has {len(text):,} characters; at most {MAX_CHARACTERS:,} can be traced.")
    ids = model.tokenizer.encode(text, allow_control=model.spec.head.kind == "mlm")
    limit = min(MAX_TOKENS, model.spec.context if what == "target" else model.spec.source_context)
    if len(ids) > limit:
        raise TaskError(f"The {what} has {len(ids):,} tokens; with {model.name}, at most {limit:,} can be traced.")
    if not ids:
        raise TaskError(f"The {what} is empty: write something for the model to read.")
    return ids


def sampling(request: Mapping[str, Any]) -> dict[str, Any]:
    """The generation settings of a request; unknown ones are refused, and max_new_tokens is limited."""
    unknown = next((key for key in request if key not in SAMPLING), None)
    if unknown is not None:
        raise TaskError(f"generate has {quoted(unknown)}; it may have {', '.join(SAMPLING)}.")
    settings = {key: value for key, value in request.items() if value is not None}
    requested = settings.setdefault("max_new_tokens", DEFAULT_NEW)
    settings["max_new_tokens"] = min(requested, MAX_NEW) if isinstance(requested, int) else requested
    return settings
