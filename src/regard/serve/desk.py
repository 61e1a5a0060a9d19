"""The runs that lie open: made from a text, looked at by id, put away when there are too many.

An id is a secret that cannot be guessed, so that who did not make a run cannot look into it. A run takes memory as one
looks into it, so all are weighed again after every look; what was looked at longest ago goes first, and whoever asks for it
is told to run the text again.
"""

import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.api import Model
from regard.engine.choose import trim
from regard.errors import NotFound, TaskError, quoted
from regard.serve.bounded import Bounded
from regard.serve.shelf import Shelf
from regard.store.memory import available_memory

if TYPE_CHECKING:
    from regard.explain.trace import Trace

MOST_TRACES, MOST_BYTES = 24, 3 << 30
TRACE_BYTES, WIDE_BYTES = 512 << 20, 2 << 30  # of one run, little and most; beyond it, insides are computed again
MOST_CHARACTERS = 20_000
MOST_TOKENS = 1024
MOST_NEW = 256
NEW = 32  # generated unless the request says
SAMPLING = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop")


@dataclass
class Look:
    """A run, and whose it is."""

    trace: "Trace"
    model: Model
    name: str
    text: str
    milliseconds: float
    plain: "Trace"  # the run without edits
    id: str = field(default_factory=lambda: secrets.token_urlsafe(18))


class Desk:
    def __init__(self, shelf: Shelf, *, most: int = MOST_TRACES, most_bytes: int = MOST_BYTES) -> None:
        self.shelf = shelf
        self.most_bytes = most_bytes
        self._looks: Bounded[Look] = Bounded(most, self.room, weight)
        shelf.on_drop.append(self._put_away)

    def _put_away(self, model: Model) -> None:
        """A model that goes takes its runs with it, or its weights would stay."""
        self._looks.drop(lambda look: look.model is model)

    @property
    def held(self) -> int:
        return self._looks.nbytes

    def room(self) -> int:
        """Bytes for all runs: what the models leave of the server's memory, or a quarter of it if they leave less, and
        no more than half of what is free on the machine."""
        whole, free = self.shelf.most_bytes, available_memory()
        left = max(whole - self.shelf.nbytes, whole // 4)
        return min(self.most_bytes, left, left if free is None else self.held + free // 2)

    def run_room(self) -> int:
        """What one run may hold: an eighth of the memory that is free, within limits, and so that it fits twice, since an
        edited run keeps the one it was made from."""
        free = available_memory() or 0
        return min(WIDE_BYTES, max(TRACE_BYTES, free // 8), self.room() // 2)

    @contextmanager
    def looking(self, *ids: str) -> Iterator[list[Look]]:
        """The runs, which may grow meanwhile."""
        try:
            yield [self.find(id) for id in ids]
        finally:
            self.settle()

    def settle(self) -> None:
        self.shelf.settle()
        if self._looks.settle():
            trim()

    def find(self, id: str) -> Look:
        look = self._looks.get(id)
        if look is None:
            raise NotFound("That run is no longer kept here; run the text again.")
        return look

    def look(
        self,
        name: str,
        text: str,
        target: str | None = None,
        generate: Mapping[str, Any] | None = None,
        edits: Mapping[str, Any] | None = None,
    ) -> Look:
        """Run a text (and what is generated after it, if asked for), watched."""
        model = self.shelf.model(name)
        begin = time.perf_counter()
        source = ids_of(model, text, "text")
        written = ids_of(model, target, "target") if target else None
        settings = {} if generate is None or target else {"num_beams": 1, "n": 1, **sampling(generate)}
        trace = model.trace(source, written, memory_limit=self.run_room(), **settings)
        return self._keep(trace, edits or {}, model, name, text, begin)

    def fork(self, look: Look, edits: Mapping[str, Any]) -> Look:
        """The same run with these edits and no others."""
        begin = time.perf_counter()
        return self._keep(look.plain, edits, look.model, look.name, look.text, begin)

    def _keep(self, plain: "Trace", edits: Mapping[str, Any], model: Model, name: str, text: str, begin: float) -> Look:
        trace = plain.edit(edits) if edits else plain
        trace.steps = plain.steps  # the text was generated without the edits
        look = Look(trace, model, name, text, 1000 * (time.perf_counter() - begin), plain)
        self._looks.put(look.id, look)
        self.settle()  # its network may be new, too
        return look


def weight(looks: Collection[Look]) -> int:
    """Bytes of all together; an edited run keeps the one it was made from, which others may share."""
    return sum(trace.nbytes for trace in {trace for look in looks for trace in (look.trace, look.plain)})


def ids_of(model: Model, text: str, what: str) -> list[int]:
    """A text's ids, refused if it is empty or long. Where masks are filled, they may be spelt in the text."""
    if len(text) > MOST_CHARACTERS:
        raise TaskError(f"The {what} has {len(text):,} characters; {MOST_CHARACTERS:,} can be looked into at once.")
    ids = model.tokenizer.encode(text, allow_control=model.spec.head.kind == "mlm")
    most = min(MOST_TOKENS, model.spec.context if what == "target" else model.spec.source_context)
    if len(ids) > most:
        raise TaskError(f"The {what} has {len(ids):,} tokens; with {model.name}, {most:,} can be looked into at once.")
    if not ids:
        raise TaskError(f"The {what} is empty: write something for the model to read.")
    return ids


def sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for generation out of a request: none unknown, and never for too long."""
    unknown = next((key for key in given if key not in SAMPLING), None)
    if unknown is not None:
        raise TaskError(f"generate has {quoted(unknown)}; it may have {', '.join(SAMPLING)}.")
    settings = {key: value for key, value in given.items() if value is not None}
    wished = settings.setdefault("max_new_tokens", NEW)
    settings["max_new_tokens"] = min(wished, MOST_NEW) if isinstance(wished, int) else wished
    return settings
