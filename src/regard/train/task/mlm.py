"""Masked language modelling: masked tokens are predicted from those around them (Devlin et al., 2018).

15 % of the tokens are chosen; of those 80 % are replaced by the mask token, 10 % by a random token, and 10 % are unchanged.
With `whole_word`, all pieces of a word are chosen together.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.errors import TokenizerError
from regard.model.build import Network
from regard.model.transformer import EncoderOnly
from regard.train.loss import linear_cross_entropy
from regard.train.task.base import Batch, Example, Loss, Task, padded, real_of

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1


class MaskedLanguageModel(Task):
    defaults: ClassVar[dict[str, Any]] = {"tokenizer": "wordpiece", "batch_size": 32, "block_size": 128}

    def config(self) -> dict[str, Any]:
        return encoder_config(self, "BertForMaskedLM")

    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        rows = [e["ids"] for e in examples]
        ids, real = padded(rows, self.pad_id), real_of(rows)
        words = padded([e["words"] for e in examples], -1) if self.settings.whole_word else None
        hidden, chosen = self.hide(ids, real, words, generator)
        tensors = {"ids": hidden, "targets": ids, "chosen": chosen, **({} if real is None else {"real": real})}
        return Batch(tensors, int(chosen.sum()), sum(map(len, rows)))

    def hide(
        self, ids: Tensor, real: Tensor | None, words: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        mask = self.tokenizer.mask_id
        if mask is None:
            raise TokenizerError(f"{self.tokenizer.where} has no mask token, so nothing can be masked.")
        special = torch.isin(ids, torch.tensor(sorted(self.tokenizer.special_ids)))
        free = ~special if real is None else ~special & real
        dice = torch.rand(ids.shape, generator=generator)
        if words is not None:  # one random number for all pieces of a word
            dice = torch.rand(len(ids), int(words.max()) + 2, generator=generator).gather(1, words + 1)
        chosen = free & (dice < CHOSEN)
        if not bool(chosen.any()):  # a batch of very short texts: mask at least one token
            chosen = chosen.flatten().index_fill(0, free.flatten().long().argmax()[None], True).view_as(free) & free
        fate = torch.rand(ids.shape, generator=generator)
        noise = torch.randint(0, self.tokenizer.n_vocab, ids.shape, generator=generator)
        hidden = torch.where(chosen & (fate < MASKED), mask, ids)
        return torch.where(chosen & (fate >= 1 - RANDOM), noise, hidden), chosen

    def loss(self, net: Network, batch: Batch) -> Loss:
        X, targets = self.hidden_states(net, batch)
        assert isinstance(net, EncoderOnly)
        assert net.unembed is not None
        total, plain = linear_cross_entropy(X, net.unembed.weight, net.unembed.bias, targets)
        return Loss(total, plain)

    def hidden_states(self, net: Network, batch: Batch) -> tuple[Tensor, Tensor]:
        """The head's states at the chosen positions only, (M, d), and their targets (M,)."""
        assert isinstance(net, EncoderOnly)
        assert net.head is not None
        X = net.states(batch["ids"], batch.get("real"))[batch["chosen"]]
        return net.head(X), batch["targets"][batch["chosen"]]

    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        assert isinstance(net, EncoderOnly)
        assert net.unembed is not None
        total, right, count = 0.0, 0, 0
        for batch in batches:
            X, targets = self.hidden_states(net, batch)
            logits = net.unembed(X).float()
            total += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
            right += int((logits.argmax(-1) == targets).sum())
            count += batch.count
        loss = total / max(1, count)
        return {"loss": loss, "perplexity": math.exp(min(loss, 50.0)), "accuracy": right / max(1, count)}


def encoder_config(task: Task, architecture: str) -> dict[str, Any]:
    s, t = task.settings, task.tokenizer
    labels: dict[str, Any] = {}
    if task.labels:
        labels["id2label"] = {str(i): name for i, name in enumerate(task.labels)}
        labels["label2id"] = {name: i for i, name in enumerate(task.labels)}
    return {
        "model_type": "bert",
        "architectures": [architecture],
        "vocab_size": t.n_vocab,
        "hidden_size": s.width,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "intermediate_size": s.d_ff or 4 * s.width,
        "max_position_embeddings": s.block_size,
        "hidden_dropout_prob": s.dropout,
        "attention_probs_dropout_prob": s.dropout,
        "type_vocab_size": 2,
        "pad_token_id": task.pad_id,
        **labels,
    }
