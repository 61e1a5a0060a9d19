"""The interface of a training task (collate, loss, evaluate), and what tasks share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.model.build import Network
from regard.text.tokenizer import Tokenizer
from regard.train.settings import TrainSettings

GenerateTargets = Callable[
    [Network, list[list[int]], int], list[list[int]]
]  # network, sources, max_new_tokens → targets
Row = Mapping[str, Any]  # as read from a file
Example = Mapping[str, "np.ndarray[Any, Any]"]  # as prepared: columns of ids


@dataclass
class Batch:
    """Tensors by name, and the number of targets that the loss is a mean over."""

    tensors: dict[str, Tensor]
    count: int
    tokens: int  # of the text itself, without padding
    weight: float = 1.0

    def without_weight(self) -> "Batch":
        """The same tensors with weight 0, for a rank that has no examples but must take part in the step."""
        return Batch(self.tensors, 0, 0, 0.0)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        return self.tensors.get(name)


@dataclass
class Loss:
    """Loss summed over a batch's targets: `total` is minimised; `plain`, without smoothing or class weights, reported."""

    total: Tensor
    plain: Tensor


class Task(ABC):
    """What is trained for: how examples are collated, the loss of a batch, and the metrics of an evaluation."""

    defaults: ClassVar[dict[str, Any]] = {}
    families: ClassVar[tuple[str, ...]] = ("bert",)  # for a network from scratch; the first is the default of --family
    best_metric: ClassVar[str] = "loss"  # the metric that decides which checkpoint is best
    higher_is_better: ClassVar[bool] = False

    max_generated: int = 200  # examples for which text is generated at an evaluation
    generate: GenerateTargets | None = None  # encoder-decoders: generates targets; set by the caller (engine/ has it)

    def __init__(self, settings: TrainSettings, tokenizer: Tokenizer, labels: Sequence[str] = ()) -> None:
        self.settings, self.tokenizer, self.labels = settings, tokenizer, tuple(labels)
        self.pad_id = tokenizer.pad_id if tokenizer.pad_id is not None else 0

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The config.json of a network of the requested size."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        """A padded batch of examples; random choices (masking) are drawn from `generator`."""

    @abstractmethod
    def loss(self, net: Network, batch: Batch) -> Loss:
        """The forward pass and the batch's loss."""

    @abstractmethod
    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        """Metrics over held-out batches; `judged_by` is among them."""


def padded(rows: Sequence[Any], fill: int) -> Tensor:
    """Rows of different lengths as one (B, N) tensor, padded on the right."""
    N = max(1, max(len(row) for row in rows))
    out = np.full((len(rows), N), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def real_of(rows: Sequence[Any]) -> Tensor | None:
    """The padding mask: True where the padded rows have tokens; None if there is no padding."""
    lengths = torch.tensor([len(row) for row in rows])
    N = max(1, int(lengths.max()))
    return None if bool((lengths == N).all()) else torch.arange(N)[None] < lengths[:, None]


def mean_loss(task: Task, net: Network, batches: Sequence[Batch]) -> float:
    """The loss per target over all batches."""
    total, count = 0.0, 0
    for batch in batches:
        total += float(task.loss(net, batch).plain)
        count += batch.count
    return total / max(1, count)
