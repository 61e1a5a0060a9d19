"""Token classification (tagging): a label for every word. A word's first piece has its tag; the others have none."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from regard.model.build import Network
from regard.model.transformer import EncoderOnly
from regard.train.task.base import Batch, Example, Loss, Task, padded, real_of
from regard.train.task.classify import Classify, confusion_metrics
from regard.train.task.mlm import encoder_config

NONE = -100  # no tag here


class Tag(Task):
    defaults: ClassVar[dict[str, Any]] = Classify.defaults
    best_metric, higher_is_better = "accuracy", True

    def config(self) -> dict[str, Any]:
        return encoder_config(self, "BertForTokenClassification")

    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        rows = [e["ids"] for e in examples]
        tags = padded([e["tags"].astype("int64") - 1 for e in examples], -1)  # stored one higher: 0 is no tag
        tags = tags.masked_fill(tags < 0, NONE)
        real = real_of(rows)
        tensors = {"ids": padded(rows, self.pad_id), "tags": tags, **({} if real is None else {"real": real})}
        return Batch(tensors, int((tags != NONE).sum()), sum(map(len, rows)))

    def loss(self, net: Network, batch: Batch) -> Loss:
        assert isinstance(net, EncoderOnly)
        logits = net(batch["ids"], batch.get("real")).float().flatten(0, 1)
        total = F.cross_entropy(logits, batch["tags"].flatten(), reduction="sum", ignore_index=NONE)
        return Loss(total, total.detach())

    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        assert isinstance(net, EncoderOnly)
        counts, loss = torch.zeros(len(self.labels), len(self.labels)), 0.0
        for batch in batches:
            logits, tags = net(batch["ids"], batch.get("real")).float(), batch["tags"]
            loss += float(F.cross_entropy(logits.flatten(0, 1), tags.flatten(), reduction="sum", ignore_index=NONE))
            wanted = tags != NONE
            pairs = (tags[wanted], logits.argmax(-1)[wanted])
            counts.index_put_(pairs, torch.ones(len(pairs[0])), accumulate=True)
        return {"loss": loss / max(1.0, float(counts.sum())), **confusion_metrics(counts)}
