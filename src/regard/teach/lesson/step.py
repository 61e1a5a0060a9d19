"""`Lesson` and `Step`: what all lessons consist of, and how one that needs a model loads it.

In: a function that loads a model by name. Out: steps, each with its matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from regard.explain.trace import Array
from regard.nn.attention import attend
from regard.nn.part import Part, with_arrays
from regard.nn.see import watching
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Step:
    """A sentence, a formula, and a matrix (rows, columns) with the names of its rows and columns where they have any."""

    say: str
    formula: str
    value: Array
    by_hand: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    bars: Literal["", "linear", "log"] = ""  # drawn as bars on this scale, instead of printed as numbers
    state: dict[str, Any] | None = None  # the page's state that shows the same: model, text, depth, site, head …
    question: str = ""  # asked on the page before the matrix is shown, with what can be guessed
    choices: tuple[str, ...] = ()
    right: str = ""
    answer: str = ""

    def to_json(self) -> dict[str, Any]:
        named = {"rows": list(self.rows), "columns": list(self.columns), "bars": self.bars}
        value = {"shape": list(self.value.shape), "value": with_nulls(self.value.tolist())}
        return {
            "say": self.say,
            "formula": self.formula,
            **value,
            "by_hand": self.by_hand,
            **named,
            "state": self.state,
        }


def with_nulls(value: Any) -> Any:
    """The value with null for −∞, which JSON does not have."""
    if isinstance(value, list):
        return [with_nulls(item) for item in value]
    return None if value == -np.inf else value


class LoadedModel(Protocol):
    """What a lesson needs of a model: the reference network and the tokenizer."""

    @property
    def reference(self) -> Part: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


class ModelParts(NamedTuple):
    reference: Part
    tokenizer: Tokenizer


Load = Callable[[str], LoadedModel]


def open_by_name(name: str) -> LoadedModel:
    """Load a model from its files, in float32 on the CPU. A server passes its own function, which caches models."""
    from regard.model.registry import network
    from regard.store.arrays import load_arrays
    from regard.store.open_model import open_model

    opened = open_model(name)
    assert opened.tokenizer is not None
    return ModelParts(with_arrays(network(opened.spec), load_arrays(opened)), opened.tokenizer)


@dataclass(frozen=True)
class Lesson:
    title: str
    words: tuple[str, ...]  # the names of the rows, unless a step has its own
    work: Callable[[Load], list[Step]]

    def steps(self, load: Load = open_by_name) -> list[Step]:
        return self.work(load)

    def names(self, step: Step) -> tuple[str, ...]:
        """What the rows of a step's matrix are called."""
        if step.rows:
            return step.rows
        return self.words if len(step.value) == len(self.words) else ()

    def to_json(self, load: Load = open_by_name) -> dict[str, Any]:
        steps = [{**step.to_json(), "rows": list(self.names(step))} for step in self.steps(load)]
        return {"title": self.title, "words": list(self.words), "steps": steps}


# ── shared by several lessons ───────────────────────────────────────────────────────────────────────────────────────


def on_page(text: str, depth: int = 2, **more: Any) -> dict[str, Any]:
    """The state of the page's scene that shows the same in toy-gpt. depth: 0 whole, 1 the first block, 2 its first head."""
    site = {"site": "decoder.0.attention"} if depth else {}
    return {"model": "toy-gpt", "text": text, "depth": depth, **site, **({"head": 0} if depth > 1 else {}), **more}


def step_of(view: dict[str, Any], name: str) -> dict[str, Any]:
    """The same view with the matrix at a step of the attention: dots, scores, masked or weights."""
    return {**view, "matrix": f"{view['site']}.{name}"}


def matrix(text: str) -> Array:
    """ "1 0; 0 1" as a matrix: rows are separated by semicolons."""
    return np.array([[float(x) for x in row.split()] for row in text.split(";")])


def capture_attention(
    Q: Array, K: Array, V: Array, mask: Array | None = None, *, scale: float | None = None
) -> dict[str, Array]:
    """Every intermediate array of `attend`, by name."""
    return capture(lambda: attend(Q, K, V, mask, scale=scale))


def capture(run: Callable[[], object]) -> dict[str, Array]:
    """Every array that passes through `see` while `run` runs, by name."""
    captured: dict[str, Array] = {}

    def record(name: str, x: Array) -> Array:
        captured[name] = x
        return x

    with watching(record):
        run()
    return captured
