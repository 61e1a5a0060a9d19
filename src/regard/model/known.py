"""Configurations of well-known models by name, so that they can be inspected without any file.

Only what differs from the family's defaults is listed, as in the config.json files these models were published with.
"""

from typing import Any

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2"},
    "gpt2-medium": {"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25},
    "bert-base": {"model_type": "bert"},
    "bert-large": {
        "model_type": "bert",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "bart-base": {
        "model_type": "bart",
        "d_model": 768,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 12,
        "decoder_attention_heads": 12,
        "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072,
    },
    "bart-large": {"model_type": "bart"},
    "llama-7b": {"model_type": "llama"},
    "llama-13b": {
        "model_type": "llama",
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "intermediate_size": 13824,
    },
    "llama-30b": {
        "model_type": "llama",
        "hidden_size": 6656,
        "num_hidden_layers": 60,
        "num_attention_heads": 52,
        "intermediate_size": 17920,
    },
    "llama-65b": {
        "model_type": "llama",
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "intermediate_size": 22016,
    },
    "transformer-base": {"model_type": "vaswani", "vocab_size": 37000, "share_all_embeddings": True},
    "transformer-big": {
        "model_type": "vaswani",
        "vocab_size": 37000,
        "share_all_embeddings": True,
        "d_model": 1024,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
    },
}

ALIASES = {
    "openai-community/gpt2": "gpt2",
    "bert-base-uncased": "bert-base",
    "bert-large-uncased": "bert-large",
    "facebook/bart-base": "bart-base",
    "facebook/bart-large": "bart-large",
}


def known_config(name: str) -> dict[str, Any] | None:
    """The config.json of a well-known model, by name or alias."""
    return CONFIGS.get(ALIASES.get(name, name))
