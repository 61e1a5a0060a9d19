"""Supervised fine-tuning on conversations: the loss is on the assistant's tokens, not on the prompts."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from regard.model.build import Network
from regard.model.transformer import DecoderOnly
from regard.train.loss import linear_cross_entropy
from regard.train.task.base import Batch, Example, Loss, Task, mean_loss, padded, real_of
from regard.train.task.lm import DECODERS, decoder_config


class Chat(Task):
    defaults: ClassVar[dict[str, Any]] = {"batch_size": 8, "block_size": 512, "learning_rate": 1e-4}
    families = DECODERS

    def config(self) -> dict[str, Any]:
        return decoder_config(self)

    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        rows = [e["ids"] for e in examples]
        ids, said = padded(rows, self.pad_id), padded([e["said"] for e in examples], 0).bool()
        wanted = said[:, 1:]
        tensors = {"ids": ids[:, :-1], "targets": ids[:, 1:], "wanted": wanted}
        real = real_of(rows)
        if real is not None:
            tensors["real"] = real[:, :-1]
        return Batch(tensors, int(wanted.sum()), sum(map(len, rows)))

    def loss(self, net: Network, batch: Batch) -> Loss:
        assert isinstance(net, DecoderOnly)
        X = net.states(batch["ids"], batch.get("real"))[batch["wanted"]]  # (M, d): the assistant's positions only
        targets = batch["targets"][batch["wanted"]]
        total, plain = linear_cross_entropy(X, net.unembed.weight, net.unembed.bias, targets)
        return Loss(total, plain)

    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        loss = mean_loss(self, net, batches)
        return {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
