"""What a lesson is made of, and how it comes by a model when it needs one.

In: nothing, or a function that loads a model by name. Out: steps, each with its numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.model.transformer import Network
from regard.nn.attention import attend
from regard.nn.see import watching
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Step:
    """A sentence, a formula, and a matrix (rows, columns) with the names of its rows and columns where they have any."""

    say: str
    formula: str
    value: Tensor
    by_hand: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    bars: Literal["", "linear", "log"] = ""  # lengths say more than digits: a row's bar per column, on this scale
    state: dict[str, Any] | None = None  # where the page shows the same: model, text, stage, site, head …

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
    """−∞ has no number in JSON: null stands for it."""
    if isinstance(value, list):
        return [with_nulls(item) for item in value]
    return None if value == -torch.inf else value


class Ready(Protocol):
    """A model that can run: what a lesson needs of one."""

    @property
    def net(self) -> Network: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


class Opened(NamedTuple):
    net: Network
    tokenizer: Tokenizer


Load = Callable[[str], Ready]


def open_by_name(name: str) -> Ready:
    """From its files, in float32 on the processor; a caller who keeps models open gives a function of its own."""
    from regard.store.network import load_network
    from regard.store.open import open_model

    opened = open_model(name)
    assert opened.tokenizer is not None
    return Opened(load_network(opened, torch.float32, "cpu"), opened.tokenizer)


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


# ── what several lessons use ────────────────────────────────────────────────────────────────────────────────────────


def on_page(text: str, stage: str = "attention", **more: Any) -> dict[str, Any]:
    """Where the page shows the same in the bundled language model."""
    site = {"site": "decoder.0.attention", "head": 0} if stage == "attention" else {}
    return {"model": "toy-gpt", "text": text, "stage": stage, **site, **more}


def matrix(text: str) -> Tensor:
    return torch.tensor([[float(x) for x in row.split()] for row in text.split(";")], dtype=torch.float64)


def seen_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> dict[str, Tensor]:
    """Every intermediate of one attention, as `attend` itself computes it."""
    return seen_while(lambda: attend(Q, K, V, mask, scale=scale))


def seen_while(run: Callable[[], object]) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x
        return x

    with watching(keep):
        run()
    return seen
