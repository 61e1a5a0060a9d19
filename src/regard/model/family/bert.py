"""BERT and RoBERTa: encoder-only, post-norm, learned positions, with the heads they are used with.

Devlin et al., 2018; Liu et al., 2019. MiniLM and the sentence encoders built on it are BERTs. RoBERTa differs in the names
of its tensors, in counting positions from `pad_token_id + 1`, and in a classifier with a layer of its own.
"""

from collections.abc import Collection, Mapping
from typing import Any

from regard.errors import ConfigError
from regard.model.config import ACTIVATION_NAMES, Config
from regard.model.registry import Family, GGUFForm, OpenGGUF
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec, head_size
from regard.model.weight_map import Rule, Table, both


def body(prefix: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{prefix}.embeddings.word_embeddings.weight", "embed.tokens.weight"),
        Rule(f"{prefix}.embeddings.position_embeddings.weight", "embed.positions.weight"),
        Rule(f"{prefix}.embeddings.token_type_embeddings.weight", "embed.types.weight"),
        both(f"{prefix}.embeddings.LayerNorm", "embed.norm"),
        both(f"{prefix}.encoder.layer.{{i}}.attention.self.query", "encoder.{i}.attention.W_q"),
        both(f"{prefix}.encoder.layer.{{i}}.attention.self.key", "encoder.{i}.attention.W_k"),
        both(f"{prefix}.encoder.layer.{{i}}.attention.self.value", "encoder.{i}.attention.W_v"),
        both(f"{prefix}.encoder.layer.{{i}}.attention.output.dense", "encoder.{i}.attention.W_o"),
        both(f"{prefix}.encoder.layer.{{i}}.attention.output.LayerNorm", "encoder.{i}.norm_1"),
        both(f"{prefix}.encoder.layer.{{i}}.intermediate.dense", "encoder.{i}.mlp.up"),
        both(f"{prefix}.encoder.layer.{{i}}.output.dense", "encoder.{i}.mlp.down"),
        both(f"{prefix}.encoder.layer.{{i}}.output.LayerNorm", "encoder.{i}.norm_2"),
        both(f"{prefix}.pooler.dense", "pooler.dense", extra=True),
    )


def heads(kind: str, roberta: bool, tied: bool) -> tuple[Rule, ...]:
    """Names of the head's tensors. Where the unembedding is tied, files store its bias once, next to the head."""
    if kind == "mlm":
        top = "lm_head" if roberta else "cls.predictions"
        transform, norm = (top, "layer_norm") if roberta else (f"{top}.transform", "LayerNorm")
        return (
            both(f"{transform}.dense", "head.dense"),
            both(f"{transform}.{norm}", "head.norm"),
            Rule(f"{top}.decoder.weight", "unembed.weight"),
            Rule(f"{top}.bias" if tied else f"{top}.decoder.bias", "unembed.bias"),
            Rule(f"{top}.decoder.bias" if tied else f"{top}.bias", "unembed.bias", extra=True, unused=not tied),
        )
    if kind == "classify" and roberta:
        return both("classifier.dense", "head.dense"), both("classifier.out_proj", "head.out")
    if kind in ("classify", "tag"):
        return (both("classifier", "head.out"),)
    return ()


OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
UNUSED = (r".*embeddings\.position_ids", r"cls\.seq_relationship\.(weight|bias)")  # a buffer; next-sentence prediction

GGUF = Table(
    rules=(
        Rule("token_embd.weight", "embed.tokens.weight"),
        Rule("position_embd.weight", "embed.positions.weight"),
        Rule("token_types.weight", "embed.types.weight"),
        both("token_embd_norm", "embed.norm"),
        both("blk.{i}.attn_q", "encoder.{i}.attention.W_q"),
        both("blk.{i}.attn_k", "encoder.{i}.attention.W_k"),
        both("blk.{i}.attn_v", "encoder.{i}.attention.W_v"),
        both("blk.{i}.attn_output", "encoder.{i}.attention.W_o"),
        both("blk.{i}.attn_output_norm", "encoder.{i}.norm_1"),
        both("blk.{i}.ffn_up", "encoder.{i}.mlp.up"),
        both("blk.{i}.ffn_down", "encoder.{i}.mlp.down"),
        both("blk.{i}.layer_output_norm", "encoder.{i}.norm_2"),
    ),
    unsaved=("pooler.dense.weight", "pooler.dense.bias"),
)


def is_roberta(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") in ("roberta", "xlm-roberta")


def spec(c: Config, names: Collection[str]) -> Spec:
    c.only({"is_causal": False, "is_decoder": False, "is_encoder_decoder": False})
    c.only({"position_embedding_type": "absolute", "directionality": "bidi", "pooler_type": "first_token_transform"})
    roberta = is_roberta(c.values)
    d, heads = c.size("hidden_size", default=768), c.size("num_attention_heads", default=12)
    pad = c.id("pad_token_id", 1 if roberta else 0)
    if roberta and pad is None:
        raise c.refuse("pad_token_id", "a token id: positions are counted from it")
    offset = pad + 1 if roberta and pad is not None else 0
    rows = c.size("max_position_embeddings", default=512, least=offset + 1)
    stack = StackSpec(
        n_layers=c.layers("num_hidden_layers", default=12),
        n_vocab=c.size("vocab_size", default=50265 if c.get("model_type") == "roberta" else 30522),
        wiring="post",
        norm="layer",
        eps=c.number("layer_norm_eps", default=1e-12),
        attention=AttentionSpec(
            heads, heads, head_size(d, heads), dropout=c.rate("attention_probs_dropout_prob", default=0.1)
        ),
        mlp=MLPSpec(
            c.size("intermediate_size", default=3072),
            c.choice("hidden_act", among=ACTIVATION_NAMES, default="gelu"),
        ),
        positions=PositionSpec("learned", rows - offset, offset=offset),
        n_types=c.size("type_vocab_size", default=2, least=0),
        embed_norm=True,
        dropout=c.rate("hidden_dropout_prob", default=0.1),
        embed_dropout=c.rate("hidden_dropout_prob", default=0.1),
    )
    chosen = head(c, roberta, names)
    tied = c.flag("tie_word_embeddings", default=True) and chosen.kind == "mlm"
    return Spec(
        family="bert",
        d=d,
        encoder=stack,
        decoder=None,
        head=chosen,
        tied=(("embed.tokens.weight", "unembed.weight"),) if tied else (),
        pad_id=pad,
        bos_id=c.id("bos_token_id", 0 if roberta else None),
        eos_ids=c.ids("eos_token_id", (2,) if roberta else ()),
        initializer_std=c.number("initializer_range", default=0.02),
    )


def head(c: Config, roberta: bool, names: Collection[str]) -> HeadSpec:
    heads = ("ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification")
    architecture = c.architecture("BertModel", (*heads, "Model"))
    dropout = c.rate("classifier_dropout", default=c.rate("hidden_dropout_prob", default=0.1))
    if architecture.endswith(("ForMaskedLM", "ForPreTraining")):
        activation = "gelu" if roberta else c.choice("hidden_act", among=ACTIVATION_NAMES, default="gelu")
        return HeadSpec("mlm", bias=True, activation=activation)
    if architecture.endswith("ForSequenceClassification"):
        return HeadSpec("classify", pooler=not roberta, dense=roberta, labels=c.exclusive_labels(), dropout=dropout)
    if architecture.endswith("ForTokenClassification"):
        return HeadSpec("tag", labels=c.labels(), dropout=dropout)
    return HeadSpec("none", pooler=not names or any(name.endswith("pooler.dense.weight") for name in names))


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    roberta, kind = is_roberta(config), spec.head.kind
    prefix = "roberta" if roberta else "bert"
    rules = body(prefix) + heads(kind, roberta, bool(spec.tied))
    return Table(rules, prefix=f"{prefix}.", ignore=UNUSED, bare=kind == "none", renamed=OLD_NAMES)


def config_from_gguf(c: Config, file: OpenGGUF) -> dict[str, Any]:
    meta = c.values
    c.only({"bert.attention.causal": False, "bert.attention.head_count_kv": meta["bert.attention.head_count"]})
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": meta["bert.embedding_length"],
        "num_hidden_layers": meta["bert.block_count"],
        "num_attention_heads": meta["bert.attention.head_count"],
        "intermediate_size": meta["bert.feed_forward_length"],
        "max_position_embeddings": meta["bert.context_length"],
        "type_vocab_size": file.shape("token_types.weight")[0] if "token_types.weight" in file.names else 0,
        "layer_norm_eps": meta["bert.attention.layer_norm_epsilon"],
        "hidden_act": "gelu",
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id", 0),
    }


def gguf_metadata(config: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    stack = spec.stacks["encoder"]
    if is_roberta(config) or spec.head.kind != "none":
        raise ConfigError("GGUF holds BERT without a head (BertModel); save this one in Hugging Face's layout.")
    if stack.mlp.activation != "gelu":
        raise ConfigError(
            f"GGUF's bert has GELU in its MLP, not {stack.mlp.activation}; save in Hugging Face's layout."
        )
    return {
        "general.architecture": "bert",
        "bert.context_length": stack.positions.limit,
        "bert.embedding_length": spec.d,
        "bert.feed_forward_length": stack.mlp.d_ff,
        "bert.block_count": stack.n_layers,
        "bert.attention.head_count": stack.attention.heads,
        "bert.attention.layer_norm_epsilon": stack.eps,
        "bert.attention.causal": False,
    }


def gguf_table(config: Mapping[str, Any], spec: Spec) -> Table:
    return GGUF


POOLER = ("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")  # of 2018
FAMILY = Family(
    "bert",
    spec,
    table,
    GGUFForm(("bert",), config_from_gguf, gguf_metadata, gguf_table, harmless=("vocab_size", "pooling_type")),
    POOLER,
)
