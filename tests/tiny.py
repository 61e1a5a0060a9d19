"""Tiny random Hugging Face models of every family, with sizes that do not divide nicely, to compare against."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

SPECIAL: dict[str, Any] = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
BART: dict[str, Any] = {
    "vocab_size": 61,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 41,
    "max_position_embeddings": 40,
    **SPECIAL,
}
BERT: dict[str, Any] = {
    "vocab_size": 59,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
}
LLAMA: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

MODELS: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=71, n_positions=40, n_embd=24, n_layer=3, n_head=3, bos_token_id=0, eos_token_id=2)
    ),
    "gpt2-untied": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=71,
            n_positions=40,
            n_embd=20,
            n_layer=2,
            n_head=5,
            n_inner=33,
            activation_function="relu",
            tie_word_embeddings=False,
            scale_attn_by_inverse_layer_idx=True,
            bos_token_id=0,
            eos_token_id=2,
        )
    ),
    "gpt2-unscaled": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=71,
            n_positions=40,
            n_embd=24,
            n_layer=2,
            n_head=4,
            scale_attn_weights=False,
            activation_function="gelu",
            bos_token_id=0,
            eos_token_id=2,
        )
    ),
    "bert": lambda: hf.BertModel(hf.BertConfig(**BERT)),
    "bert-mlm": lambda: hf.BertForMaskedLM(hf.BertConfig(**BERT)),
    "bert-mlm-untied": lambda: hf.BertForMaskedLM(
        hf.BertConfig(**BERT, tie_word_embeddings=False, hidden_act="gelu_new")
    ),
    "bert-classify": lambda: hf.BertForSequenceClassification(hf.BertConfig(**BERT, num_labels=3)),
    "bert-tag": lambda: hf.BertForTokenClassification(hf.BertConfig(**BERT, num_labels=5)),
    "roberta-mlm": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**BERT, type_vocab_size=1, **SPECIAL)),
    "roberta-classify": lambda: hf.RobertaForSequenceClassification(
        hf.RobertaConfig(**BERT, type_vocab_size=1, num_labels=4, **SPECIAL)
    ),
    "roberta-tag": lambda: hf.RobertaForTokenClassification(
        hf.RobertaConfig(**BERT, type_vocab_size=1, num_labels=4, **SPECIAL)
    ),
    "bart": lambda: hf.BartForConditionalGeneration(
        hf.BartConfig(**BART, decoder_start_token_id=2, forced_eos_token_id=2)
    ),
    "bart-scaled": lambda: hf.BartForConditionalGeneration(
        hf.BartConfig(
            **BART, scale_embedding=True, activation_function="relu", decoder_start_token_id=2, forced_bos_token_id=0
        )
    ),
    "bart-classify": lambda: hf.BartForSequenceClassification(
        hf.BartConfig(**BART, num_labels=3, decoder_start_token_id=2)
    ),
    "mbart": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**BART, decoder_start_token_id=2)),
    "marian": lambda: hf.MarianMTModel(
        hf.MarianConfig(
            **{**BART, "pad_token_id": 60, "eos_token_id": 0, "bos_token_id": 3},
            scale_embedding=True,
            activation_function="swish",
            decoder_start_token_id=60,
            forced_eos_token_id=0,
        )
    ),
    "marian-untied": lambda: hf.MarianMTModel(
        hf.MarianConfig(
            **{**BART, "pad_token_id": 52, "eos_token_id": 0, "bos_token_id": 3},
            decoder_vocab_size=53,
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=False,
            decoder_start_token_id=52,
        )
    ),
    "m2m_100": lambda: hf.M2M100ForConditionalGeneration(hf.M2M100Config(**BART, decoder_start_token_id=2)),
    "m2m_100-other-pad": lambda: hf.M2M100ForConditionalGeneration(
        hf.M2M100Config(**{**BART, "pad_token_id": 4}, decoder_start_token_id=2)
    ),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)),
    "llama-gqa-tied": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(**LLAMA, num_key_value_heads=2, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    ),
    "llama-head-dim": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, num_key_value_heads=3, head_dim=10)),
    "llama3": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE)),
    "llama-linear": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(**LLAMA, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0})
    ),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=5)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(
        hf.Qwen2Config(**LLAMA, num_key_value_heads=2, use_sliding_window=True, sliding_window=6, max_window_layers=1)
    ),
}

NATIVE: dict[str, dict[str, Any]] = {  # model types that transformers does not have
    "vaswani": {**BART, "model_type": "vaswani", "tgt_vocab_size": 53},
    "vaswani-pre": {**BART, "model_type": "vaswani", "normalize_before": True, "share_all_embeddings": True},
    "vaswani-fairseq": {**BART, "model_type": "vaswani", "position_style": "fairseq", "tie_word_embeddings": False},
    "gru": {"model_type": "gru", "vocab_size": 61, "d_model": 14, "hidden_size": 11, "max_position_embeddings": 40},
}

DECODERS = [n for n in MODELS if n.startswith(("gpt2", "llama", "mistral", "qwen2"))]
ENCODERS = [n for n in MODELS if n.startswith(("bert", "roberta"))]
SEQ2SEQ = ["bart", "bart-scaled", "mbart", "marian", "marian-untied", "m2m_100", "m2m_100-other-pad"]


def make_native(name: str, directory: Path, seed: int = 0) -> None:
    """A directory with a model of one of our own types."""
    from regard.model.build import build, parameters_of
    from regard.model.registry import family_of, spec_of
    from regard.store.save_model import ModelFiles, save_directory

    torch.manual_seed(seed)
    config = NATIVE[name]
    spec = spec_of(config)
    net = build(spec)
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.dim() == 1 and p.std() == 0 and p[0] == 1 else 0.0))
    save_directory(directory, ModelFiles(parameters_of(net), spec, family_of(config["model_type"]), config))


def make(name: str, seed: int = 0) -> hf.PreTrainedModel:
    return randomised(MODELS[name], seed)


def randomised(build: Callable[[], hf.PreTrainedModel], seed: int = 0) -> hf.PreTrainedModel:
    """The model with weights large enough that a wrong wiring shows."""
    torch.manual_seed(seed)
    model = build()
    with torch.no_grad():
        for path, p in model.named_parameters():
            if not p.requires_grad:  # Marian's sinusoids
                continue
            if "norm" in path.lower() or "ln_" in path:
                p.add_(torch.randn_like(p) * 0.2)
            else:
                p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.2))
        for path, buffer in model.named_buffers():
            if path.endswith("final_logits_bias"):
                buffer.copy_(torch.randn_like(buffer))
    return model.eval()
