"""The models of a server, by name: those bundled or installed, and those named when the server was started.

A request contains a name and never a path, so that nothing else on the machine can be opened through the server. Weights
are loaded on first use; when memory runs out, the least recently used models are evicted.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from regard.api import Model, load
from regard.engine.select import cache_format
from regard.errors import CheckpointError, NotFound, quoted
from regard.lru import LRU
from regard.store.hub import INSTALLABLE, bundled, installed, resolve
from regard.store.open_model import Opened, open_model
from regard.store.system_memory import available_memory

MAX_MODELS = 8

ABOUT = {
    "toy-gpt": "small stories, trained here",
    "toy-translate": "English to French, trained here",
    "toy-bert": "fills masks in movie reviews, trained here",
    "toy-bert-sentiment": "is a review positive, negative or neutral, trained here",
    "toy-bert-tags": "parts of speech, trained here",
}


@dataclass
class ModelEntry:
    """A model that can be requested: its name, its path, and a lock held while it is loaded."""

    name: str
    path: Path
    about: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    created: int = field(init=False)  # Unix time of the files; read once, since they may be deleted while we run

    def __post_init__(self) -> None:
        self.created = int(self.path.stat().st_mtime)

    @cached_property
    def opened(self) -> Opened:
        """Its files, read except for the weights."""
        return open_model(self.path)

    def current(self) -> Opened:
        """The same, opened again if the weights have been written to since."""
        try:
            self.opened.file.check()
        except CheckpointError:
            del self.opened
        return self.opened


class ModelRegistry:
    """models: names, directories or .gguf files; they are listed before the models that every installation has.

    max_models: how many are loaded at once. max_bytes: of the weights loaded at once, together with what
    `extra_bytes(model)` adds for each; half of the available memory unless given. cache: the format of the KV cache, as in
    `regard.load`.
    """

    def __init__(
        self,
        models: Sequence[str | Path] = (),
        *,
        max_models: int = MAX_MODELS,
        max_bytes: int | None = None,
        cache: str | None = None,
    ) -> None:
        cache_format(cache)  # an unknown format is refused now, not when a model is loaded
        self.cache = cache
        self.entries: dict[str, ModelEntry] = {}
        half = (available_memory() or 16 << 30) // 2
        self.max_bytes = half if max_bytes is None else max_bytes
        self.extra_bytes: Callable[[Model], int] = lambda model: 0
        self._loaded: LRU[Model] = LRU(
            max_models,
            lambda: self.max_bytes,
            lambda loaded: sum(model.nbytes + self.extra_bytes(model) for model in loaded),
        )
        self.on_evict: list[Callable[[Model], None]] = []  # called with every evicted model
        known = dict(installed_models())
        for where in models:
            name = str(where)
            if name in known:
                self.entries[name] = known[name]
            else:
                self._add(resolve(where))
        self.served_names = tuple(self.entries) or tuple(known)  # what the API serves: the models given, or all
        for name, entry in known.items():
            self.entries.setdefault(name, entry)

    def _add(self, path: Path) -> None:
        path = path.resolve()
        if any(entry.path == path for entry in self.entries.values()):
            return
        plain = path.stem if path.is_file() else path.name
        name, n = plain, 2
        while name in self.entries or name in INSTALLABLE or name in bundled():
            name, n = f"{plain}-{n}", n + 1
        entry = ModelEntry(name, path, "a file on this machine" if path.is_file() else "a directory on this machine")
        _ = entry.opened  # files that cannot be opened are refused now
        self.entries[name] = entry

    def entry(self, name: str) -> ModelEntry:
        if name not in self.entries:
            known = ", ".join(self.entries)
            raise NotFound(f"There is no model {quoted(name)} here; there are {known}.")
        return self.entries[name]

    def model(self, name: str) -> Model:
        """The model with its weights, loaded by the first request for it while others wait."""
        entry = self.entry(name)
        with entry.lock:
            model = self._loaded.get(name)
            if model is None:
                model = load(entry.current(), cache=self.cache)
                model.name = name
                model.prepare()  # now, and not while another request traces it
                self._report_evicted(self._loaded.put(name, model))
            return model

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded models, `extra_bytes` included."""
        return self._loaded.nbytes

    def evict(self) -> None:
        """Evict the least recently used models if the loaded ones have grown beyond `max_bytes`: tracing a model makes its
        reference network."""
        self._report_evicted(self._loaded.evict())

    def _report_evicted(self, models: list[Model]) -> None:
        for model in models:
            for callback in self.on_evict:
                callback(model)

    def warm(self, name: str) -> None:
        """Load in the background, so that the first request finds the model ready."""
        threading.Thread(target=self.model, args=(name,), daemon=True).start()


def installed_models() -> Iterator[tuple[str, ModelEntry]]:
    """The bundled models, and those that `regard pull` has installed."""
    for name, path in bundled().items():
        yield name, ModelEntry(name, path, ABOUT.get(name, "bundled"))
    for name, known in INSTALLABLE.items():
        place = installed(known)
        if place is not None:
            yield name, ModelEntry(name, place, known.about)
