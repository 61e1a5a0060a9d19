"""Tiny random models with tokenizers, one for each thing a model can do, saved as people find them: as directories."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, processors

import tiny_tokenizers

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "max_position_embeddings": 128,
}
WIDTHS: dict[str, Any] = {
    "d_model": 24,
    **{f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 3))},
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 41,
    "max_position_embeddings": 128,
}
MOODS = ["negative", "neutral", "positive"]
TAGS = ["NOUN", "VERB", "ADJ", "DET", "X"]


def llama(n_vocab: int) -> hf.PreTrainedModel:
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=n_vocab, **SIZES, bos_token_id=0, eos_token_id=2))


def gpt2(n_vocab: int) -> hf.PreTrainedModel:
    sizes: dict[str, Any] = {"n_positions": 128, "n_embd": 24, "n_layer": 2, "n_head": 3}
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=n_vocab, **sizes, bos_token_id=0, eos_token_id=0))


def bert(kind: type, labels: list[str] | None = None) -> Callable[[int], hf.PreTrainedModel]:
    named = {"id2label": dict(enumerate(labels)), "label2id": {x: i for i, x in enumerate(labels)}} if labels else {}
    return lambda n_vocab: kind(hf.BertConfig(vocab_size=n_vocab, **SIZES, **named))


def bart(n_vocab: int) -> hf.PreTrainedModel:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return hf.BartForConditionalGeneration(hf.BartConfig(vocab_size=n_vocab, **WIDTHS, **ids, forced_eos_token_id=2))


def closed(raw: Tokenizer) -> Tokenizer:
    """BART's way of ending a text, so that an encoder has something to read even where there is no word."""
    raw.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(t, raw.token_to_id(t)) for t in ("<s>", "</s>")]
    )
    return raw


BYTE, CHAT = "<|endoftext|>", tiny_tokenizers.CHATML
BART_TOKENS = ["<s>", "<pad>", "</s>", "<mask>"]
BERT_ROLES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
BERT_ROLES["mask_token"] = "[MASK]"
BART_ROLES = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "mask_token": "<mask>"}

MODELS: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any], Callable[[int], hf.PreTrainedModel]]] = {
    "chat": (tiny_tokenizers.byte_level, {"eos_token": "<|im_end|>", "chat_template": CHAT}, llama),
    "decoder": (tiny_tokenizers.byte_level, {"bos_token": BYTE, "eos_token": BYTE}, gpt2),
    "encoder": (tiny_tokenizers.wordpiece, BERT_ROLES, bert(hf.BertModel)),
    "mlm": (tiny_tokenizers.wordpiece, BERT_ROLES, bert(hf.BertForMaskedLM)),
    "classifier": (tiny_tokenizers.wordpiece, BERT_ROLES, bert(hf.BertForSequenceClassification, MOODS)),
    "tagger": (tiny_tokenizers.wordpiece, BERT_ROLES, bert(hf.BertForTokenClassification, TAGS)),
    "translator": (lambda: closed(tiny_tokenizers.byte_level(BART_TOKENS)), BART_ROLES, bart),
}


def save(name: str, directory: Path) -> Path:
    """The model of that name with weights large enough that its answers differ, in Hugging Face's layout."""
    directory.mkdir(parents=True, exist_ok=True)
    raw_tokenizer, roles, network = MODELS[name]
    raw = raw_tokenizer()
    torch.manual_seed(0)
    model = network(raw.get_vocab_size())
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.3)
    model.save_pretrained(directory)
    raw.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def cut_to_16(folder: Path, copy: Path) -> Path:
    """An encoder whose files say, as sentence-transformers writes them, that texts are cut to 16 tokens."""
    shutil.copytree(folder, copy)
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (copy / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16}))
    return copy


def spoil(folder: Path, copy: Path, value: float = float("nan")) -> Path:
    """The model with an embedding that is no number, of a token that is in "the dog" and not in "the cat"."""
    shutil.copytree(folder, copy)
    raw = Tokenizer.from_file(str(copy / "tokenizer.json"))
    id = next(id for id in raw.encode("the dog").ids if id not in raw.encode("the cat").ids)
    tensors = load_file(copy / "model.safetensors")
    tables = ("word_embeddings.weight", "wte.weight", "embed_tokens.weight", "shared.weight")
    (name,) = [name for name in tensors if name.endswith(tables)]
    tensors[name][id] = value
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    return copy
