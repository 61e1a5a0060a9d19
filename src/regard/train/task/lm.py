"""Language modelling: each token is predicted from those before it. Texts are packed end to end and cut into blocks."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from regard.model.build import Network
from regard.model.transformer import DecoderOnly
from regard.train.loss import linear_cross_entropy
from regard.train.task.base import Batch, Example, Loss, Task, mean_loss

DECODERS = ("gpt2", "llama", "mistral", "qwen2")


class LanguageModel(Task):
    defaults: ClassVar[dict[str, Any]] = {"tokenizer": "bpe", "batch_size": 16, "block_size": 256}
    families = DECODERS

    def config(self) -> dict[str, Any]:
        return decoder_config(self)

    def collate(self, examples: Sequence[Example], generator: torch.Generator) -> Batch:
        blocks = torch.from_numpy(np.stack([e["ids"] for e in examples]).astype(np.int64))  # (B, block + 1)
        ids, targets = blocks[:, :-1].contiguous(), blocks[:, 1:].contiguous()
        return Batch({"ids": ids, "targets": targets}, targets.numel(), ids.numel())

    def loss(self, net: Network, batch: Batch) -> Loss:
        assert isinstance(net, DecoderOnly)
        X = net.states(batch["ids"]).flatten(0, 1)
        total, plain = linear_cross_entropy(X, net.unembed.weight, net.unembed.bias, batch["targets"].flatten())
        return Loss(total, plain)

    def evaluate(self, net: Network, batches: Sequence[Batch]) -> dict[str, float]:
        loss = mean_loss(self, net, batches)
        return {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}


def decoder_config(task: Task) -> dict[str, Any]:
    """The config.json of a GPT-2, or of a Llama or one of its relatives with --family."""
    s, t = task.settings, task.tokenizer
    ends = {"bos_token_id": t.bos_id if t.bos_id is not None else t.eos_id, "eos_token_id": t.eos_id}
    if (s.family or "gpt2") == "gpt2":
        return {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": t.n_vocab,
            "n_positions": s.block_size,
            "n_embd": s.width,
            "n_layer": s.layers,
            "n_head": s.heads,
            "n_inner": s.d_ff,
            "activation_function": "gelu_new",
            "resid_pdrop": s.dropout,
            "embd_pdrop": s.dropout,
            "attn_pdrop": s.dropout,
            "tie_word_embeddings": True,
            **ends,
        }
    return {
        "model_type": s.family,
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": t.n_vocab,
        "max_position_embeddings": s.block_size,
        "hidden_size": s.width,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.heads,
        "intermediate_size": s.d_ff or (8 * s.width // 3 + 31) // 32 * 32,
        "attention_dropout": s.dropout,
        "tie_word_embeddings": True,
        **ends,
    }
