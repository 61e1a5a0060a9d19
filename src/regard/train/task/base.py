"""What the loop asks of a task, and what tasks share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.model.transformer import Network
from regard.text.tokenizer import Tokenizer
from regard.train.settings import TrainSettings

Writer = Callable[[Network, list[list[int]], int], list[list[int]]]  # network, sources, most new tokens → targets
Row = Mapping[str, Any]  # as read from a file
Example = Mapping[str, "np.ndarray[Any, Any]"]  # as prepared: columns of ids


@dataclass
class Batch:
    """Tensors by name, and over how many targets the loss is a mean."""

    tensors: dict[str, Tensor]
    count: int
    tokens: int  # of the text itself, without padding
    weight: float = 1.0

    def without_weight(self) -> "Batch":
        """The same tensors, counting for nothing."""
        return Batch(self.tensors, 0, 0, 0.0)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        return self.tensors.get(name)


@dataclass
class Loss:
    """Sums over a batch's targets: what is minimised, and what is reported (the same without smoothing or weights)."""

    total: Tensor
    plain: Tensor


class Task(ABC):
    defaults: ClassVar[dict[str, Any]] = {}
    families: ClassVar[tuple[str, ...]] = ("bert",)  # of networks from scratch; the first unless --family says another
    judged_by: ClassVar[str] = "loss"  # the metric that decides which checkpoint is best
    higher_is_better: ClassVar[bool] = False

    scored: int = 200  # examples of which an answer is written out at an evaluation, where that takes long
    write: Writer | None = None  # encoder-decoders: what the model writes for sources, given by whoever can generate

    def __init__(self, settings: TrainSettings, tokenizer: Tokenizer, labels: Sequence[str] = ()) -> None:
        self.settings, self.tokenizer, self.labels = settings, tokenizer, tuple(labels)
        self.pad_id = tokenizer.pad_id if tokenizer.pad_id is not None else 0

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The config.json of a network of the size that was asked for."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch: ...

    @abstractmethod
    def loss(self, net: Network, batch: Batch) -> Loss: ...

    @abstractmethod
    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        """Metrics over held-out batches; `judged_by` is among them."""


def padded(rows: Sequence[Any], fill: int) -> Tensor:
    """Rows of different lengths as one (B, N) tensor, flush left."""
    N = max(1, max(len(row) for row in rows))
    out = np.full((len(rows), N), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def real_of(rows: Sequence[Any]) -> Tensor | None:
    """Where the padded rows are not padding; None when nowhere is."""
    lengths = torch.tensor([len(row) for row in rows])
    N = max(1, int(lengths.max()))
    return None if bool((lengths == N).all()) else torch.arange(N)[None] < lengths[:, None]


def mean_loss(task: Task, net: Network, batches: Sequence[Batch]) -> float:
    total, count = 0.0, 0
    for batch in batches:
        total += float(task.loss(net, batch).plain)
        count += batch.count
    return total / max(1, count)
