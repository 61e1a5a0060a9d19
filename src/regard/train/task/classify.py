"""Text classification: one label for a text."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.model.build import Network
from regard.model.transformer import class_logits
from regard.train.task.base import Batch, Example, Loss, Task, padded, real_of
from regard.train.task.mlm import encoder_config


class Classify(Task):
    defaults: ClassVar[dict[str, Any]] = {
        "tokenizer": "wordpiece",
        "batch_size": 32,
        "block_size": 128,
        "learning_rate": 5e-4,
        "weight_decay": 0.01,
    }
    best_metric, higher_is_better = "accuracy", True
    weights: Tensor | None = None  # per class, when --class-weights is on

    def config(self) -> dict[str, Any]:
        return encoder_config(self, "BertForSequenceClassification")

    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        rows = [e["ids"] for e in examples]
        labels = torch.tensor([int(e["label"][0]) for e in examples])
        real = real_of(rows)
        tensors = {"ids": padded(rows, self.pad_id), "labels": labels, **({} if real is None else {"real": real})}
        return Batch(tensors, len(rows), sum(map(len, rows)))

    def loss(self, net: Network, batch: Batch) -> Loss:
        logits, labels = class_logits(net, batch["ids"], batch.get("real")).float(), batch["labels"]
        total = F.cross_entropy(
            logits, labels, self.weights, reduction="sum", label_smoothing=self.settings.label_smoothing
        )
        return Loss(total, F.cross_entropy(logits.detach(), labels, reduction="sum"))

    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        counts = torch.zeros(len(self.labels), len(self.labels))  # confusion matrix: true label × predicted label
        loss = 0.0
        for batch in batches:
            logits = class_logits(net, batch["ids"], batch.get("real")).float()
            loss += float(F.cross_entropy(logits, batch["labels"], reduction="sum"))
            counts.index_put_((batch["labels"], logits.argmax(-1)), torch.ones(len(logits)), accumulate=True)
        return {"loss": loss / max(1.0, float(counts.sum())), **confusion_metrics(counts)}


def confusion_metrics(counts: Tensor) -> dict[str, float]:
    """Accuracy, and macro F1: the mean, over the classes that occur, of the harmonic mean of precision and recall."""
    right, true, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    f1 = 2 * right / (true + predicted).clamp_min(1)
    present = (true + predicted) > 0
    return {"accuracy": float(right.sum() / counts.sum().clamp_min(1)), "macro_f1": float(f1[present].mean())}
