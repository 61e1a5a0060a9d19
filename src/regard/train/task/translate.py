"""Translation (sequence to sequence): each target token is predicted from the source and the target tokens before it."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.errors import require
from regard.model.build import Network, Seq2Seq
from regard.train.loss import linear_cross_entropy
from regard.train.task.base import Batch, Example, Loss, Task, mean_loss, padded, real_of

ARCHITECTURES = {
    "m2m_100": "M2M100ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "marian": "MarianMTModel",
    "vaswani": "Vaswani",
    "gru": "Recurrent",
}


class Translate(Task):
    defaults: ClassVar[dict[str, Any]] = {
        "tokenizer": "bpe",
        "batch_tokens": 2048,
        "block_size": 128,
        "schedule": "noam",
        "warmup_steps": 400,
        "label_smoothing": 0.1,
        "weight_decay": 0.01,
        "beta_2": 0.98,
    }
    families = tuple(ARCHITECTURES)
    best_metric, higher_is_better = "chrf", True

    def config(self) -> dict[str, Any]:
        s, t = self.settings, self.tokenizer
        family = s.family or "m2m_100"
        return {
            "model_type": family,
            "architectures": [ARCHITECTURES[family]],
            "vocab_size": t.n_vocab,
            **({"share_all_embeddings": True} if family == "vaswani" else {}),
            "d_model": s.width,
            **({"hidden_size": s.d_ff or s.width} if family == "gru" else self.blocks()),
            "max_position_embeddings": s.block_size,
            "dropout": s.dropout,
            "pad_token_id": t.pad_id,
            "bos_token_id": t.bos_id,
            "eos_token_id": t.eos_id,
            "decoder_start_token_id": t.eos_id,
            "tie_word_embeddings": True,
        }

    def blocks(self) -> dict[str, Any]:
        """The part of the configuration that describes a Transformer's stacks; a recurrent network has none."""
        s = self.settings
        sizes = (("layers", s.layers), ("attention_heads", s.heads), ("ffn_dim", s.d_ff or 4 * s.width))
        return {
            **{f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in sizes},
            "activation_function": "relu",
            "scale_embedding": True,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
        }

    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        sources, targets = [e["source"] for e in examples], [e["target"] for e in examples]
        written = padded(targets, self.pad_id)
        start = torch.full((len(written), 1), self.tokenizer.eos_id or 0)
        wanted = real_of(targets)
        tensors = {
            "ids": padded(sources, self.pad_id),
            "inputs": torch.cat([start, written[:, :-1]], 1),
            "targets": written,
            "wanted": torch.ones_like(written, dtype=torch.bool) if wanted is None else wanted,
        }
        real = real_of(sources)
        if real is not None:
            tensors["real"] = real
        count = int(tensors["wanted"].sum())
        return Batch(tensors, count, count + sum(map(len, sources)))

    def loss(self, net: Network, batch: Batch) -> Loss:
        assert isinstance(net, Seq2Seq)
        assert net.unembed is not None
        memory = net.encode(batch["ids"], batch.get("real"))
        X = net.states(batch["inputs"], memory, batch.get("real"))[batch["wanted"]]
        targets = batch["targets"][batch["wanted"]]
        total, plain = linear_cross_entropy(
            X, net.unembed.weight, net.unembed.bias, targets, smoothing=self.settings.label_smoothing
        )
        return Loss(total, plain)

    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        """Loss over all batches; BLEU and chrF (sacrebleu) of translations generated for the first pairs."""
        require("sacrebleu", "BLEU")
        from sacrebleu.metrics import BLEU, CHRF

        loss = mean_loss(self, net, batches)
        guesses, references = self.translations(net, batches, self.max_generated)
        metrics = {"loss": loss}
        if guesses:
            metrics["bleu"] = BLEU().corpus_score(guesses, [references]).score
            metrics["chrf"] = CHRF().corpus_score(guesses, [references]).score
        return metrics

    def translations(self, net: Network, batches: Sequence[Batch], limit: int) -> tuple[list[str], list[str]]:
        guesses, references = list[str](), list[str]()
        if self.generate is None:
            return guesses, references
        for batch in batches:
            if len(guesses) >= limit:
                break
            rows = unpadded(batch["ids"], batch.get("real"))
            targets = unpadded(batch["targets"], batch["wanted"])
            max_new_tokens = min(self.settings.block_size - 1, 2 * max(map(len, rows)) + 20)
            guesses += [self.tokenizer.decode(ids) for ids in self.generate(net, rows, max_new_tokens)]
            references += [self.tokenizer.decode(row) for row in targets]
        return guesses[:limit], references[:limit]


def unpadded(ids: Tensor, real: Tensor | None) -> list[list[int]]:
    if real is None:
        return ids.tolist()
    return [row[keep].tolist() for row, keep in zip(ids, real, strict=True)]
