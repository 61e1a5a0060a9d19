"""The models a server offers, by name: those bundled or installed, and those its owner named when starting it.

A request says a name and never a path, so that nothing else on the machine can be opened through the server. Weights are
loaded when they are first asked for, and the models used longest ago make room for new ones.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.api import Model, load
from regard.engine.choose import cache_format
from regard.errors import NotFound, quoted
from regard.serve.bounded import Bounded
from regard.store.hub import INSTALLABLE, bundled, installed, resolve
from regard.store.memory import available_memory
from regard.store.open import Opened, open_model

MOST_MODELS = 8

ABOUT = {
    "toy-gpt": "small stories, trained here",
    "toy-translate": "English to French, trained here",
    "toy-bert": "fills masks in movie reviews, trained here",
    "toy-bert-sentiment": "is a review positive, negative or neutral, trained here",
    "toy-bert-tags": "parts of speech, trained here",
}
REVIEW = "The movie had amazing visuals, but the story was quite boring."
EXAMPLES = {
    "toy-gpt": [
        "Sara loved a red ring more than anything.",
        "The old king and the old woman",
        "Three children want to build a little boat.",
    ],
    "toy-translate": [
        "the European Economic Area",
        "The old king does not see the two white houses.",
        "The woman eats a red apple.",
    ],
    "toy-bert": ["The movie had amazing [MASK], but the story was quite boring.", "I loved the [MASK]."],
    "toy-bert-sentiment": [REVIEW, "The actors were wonderful.", "The story was not boring."],
    "toy-bert-tags": [REVIEW, "The actors were not very good."],
}
EXAMPLES_OF_HEADS = {
    "lm": ["The capital of France is", "Once upon a time there was a small", "The cat sat on the mat because it was"],
    "mlm": ["The capital of France is [MASK].", "The cat [MASK] on the mat."],
    "classify": [REVIEW],
    "tag": ["The old man saw a small dog in Paris."],
    "none": ["The cat sat on the mat because it was tired.", "a kitten on a rug"],
}


@dataclass
class Offer:
    """A model that may be asked for: its name, its place, and a lock for what must happen to it one at a time."""

    name: str
    path: Path
    about: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    made: int = field(init=False)  # when, in seconds; asked once, since files may go while others are still served

    def __post_init__(self) -> None:
        self.made = int(self.path.stat().st_mtime)

    @cached_property
    def opened(self) -> Opened:
        """Its files, read but for the weights."""
        return open_model(self.path)

    def card(self) -> dict[str, Any]:
        """What a person chooses by."""
        spec = self.opened.spec
        examples = EXAMPLES.get(self.name) or EXAMPLES_OF_HEADS[spec.head.kind]
        mask = self.opened.tokenizer.specials.get("mask") if self.opened.tokenizer else None
        return {
            "name": self.name,
            "kind": spec.kind,
            "family": spec.family,
            "head": spec.head.kind,
            "about": self.about,
            "examples": [text.replace("[MASK]", mask or "[MASK]") for text in examples],
        }


class Shelf:
    """`given`: names, directories or .gguf files; they stand before the models that every installation has.

    most_bytes: of weights, and of what `beside` says goes with them, that are held at once; half of the memory that is
    free, unless given.
    """

    def __init__(
        self,
        given: Sequence[str | Path] = (),
        *,
        most: int = MOST_MODELS,
        most_bytes: int | None = None,
        cache: str | None = None,
    ) -> None:
        """cache: how keys and values are kept; `regard.load` says which ways there are."""
        cache_format(cache)  # or it is refused now, not when somebody asks
        self.cache = cache
        self.offers: dict[str, Offer] = {}
        half = (available_memory() or 16 << 30) // 2
        self.most_bytes = half if most_bytes is None else most_bytes
        self.beside: Callable[[Model], int] = lambda model: 0
        self._loaded: Bounded[Model] = Bounded(
            most, lambda: self.most_bytes, lambda models: sum(model.nbytes + self.beside(model) for model in models)
        )
        self.on_drop: list[Callable[[Model], None]] = []  # told of every model that had to go
        here = dict(everywhere())
        for where in given:
            name = str(where)
            if name in here:
                self.offers[name] = here[name]
            else:
                self._add(resolve(where))
        self.named = tuple(self.offers) or tuple(here)  # what its owner asked for, or all there is
        for name, offer in here.items():
            self.offers.setdefault(name, offer)

    def _add(self, path: Path) -> None:
        path = path.resolve()
        if any(offer.path == path for offer in self.offers.values()):
            return
        plain = path.stem if path.is_file() else path.name
        name, n = plain, 2
        while name in self.offers or name in INSTALLABLE or name in bundled():
            name, n = f"{plain}-{n}", n + 1
        offer = Offer(name, path, "a file on this machine" if path.is_file() else "a directory on this machine")
        _ = offer.opened  # what cannot be opened is refused now, in the words of whoever tried
        self.offers[name] = offer

    def offer(self, name: str) -> Offer:
        if name not in self.offers:
            known = ", ".join(self.offers)
            raise NotFound(f"There is no model {quoted(name)} here; there are {known}.")
        return self.offers[name]

    def model(self, name: str) -> Model:
        """The model with its weights, loaded by whoever asks first while the others wait."""
        offer = self.offer(name)
        with offer.lock:
            model = self._loaded.get(name)
            if model is None:
                model = load(offer.path, cache=self.cache)
                model.name = name
                model.prepare()  # now, and not while another request looks into it
                self._put_away(self._loaded.put(name, model))
            return model

    @property
    def nbytes(self) -> int:
        """What the loaded models take, and what is beside them."""
        return self._loaded.nbytes

    def settle(self) -> None:
        """Models grow, too, when their networks are looked into: those used longest ago make room."""
        self._put_away(self._loaded.settle())

    def _put_away(self, models: list[Model]) -> None:
        for model in models:
            for told in self.on_drop:
                told(model)

    def warm(self, name: str) -> None:
        """Load in the background, so that the first question finds the model ready."""
        threading.Thread(target=self.model, args=(name,), daemon=True).start()


def everywhere() -> Iterator[tuple[str, Offer]]:
    """What every installation has."""
    for name, path in bundled().items():
        yield name, Offer(name, path, ABOUT.get(name, "bundled"))
    for name, known in INSTALLABLE.items():
        place = installed(known)
        if place is not None:
            yield name, Offer(name, place, known.about)
