"""GPT-2: decoder-only, pre-norm, learned positions, GELU by tanh, the unembedding tied to the embedding.

Radford et al., 2019. Files hold matrices input × output, with q, k and v fused in `c_attn`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from regard.errors import ConfigError
from regard.model.config import ACTIVATION_NAMES, Config
from regard.model.registry import Family, GGUFForm, OpenGGUF
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec, head_size
from regard.model.weight_map import STACK, TRANSPOSE, TRANSPOSE_STACK, Rule, Table, both

QKV = tuple(f"decoder.{{i}}.attention.W_{x}" for x in "qkv")

HF = Table(
    prefix="transformer.",
    rules=(
        Rule("transformer.wte.weight", "embed.tokens.weight"),
        Rule("transformer.wpe.weight", "embed.positions.weight"),
        both("transformer.h.{i}.ln_1", "decoder.{i}.norm_1"),
        Rule("transformer.h.{i}.attn.c_attn.weight", tuple(f"{W}.weight" for W in QKV), TRANSPOSE_STACK),
        Rule("transformer.h.{i}.attn.c_attn.bias", tuple(f"{W}.bias" for W in QKV), STACK),
        Rule("transformer.h.{i}.attn.c_proj.weight", "decoder.{i}.attention.W_o.weight", TRANSPOSE),
        Rule("transformer.h.{i}.attn.c_proj.bias", "decoder.{i}.attention.W_o.bias"),
        both("transformer.h.{i}.ln_2", "decoder.{i}.norm_2"),
        Rule("transformer.h.{i}.mlp.c_fc.weight", "decoder.{i}.mlp.up.weight", TRANSPOSE),
        Rule("transformer.h.{i}.mlp.c_fc.bias", "decoder.{i}.mlp.up.bias"),
        Rule("transformer.h.{i}.mlp.c_proj.weight", "decoder.{i}.mlp.down.weight", TRANSPOSE),
        Rule("transformer.h.{i}.mlp.c_proj.bias", "decoder.{i}.mlp.down.bias"),
        both("transformer.ln_f", "final_norm"),
        Rule("lm_head.weight", "unembed.weight"),
    ),
    ignore=(
        r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",
    ),  # the causal mask, which old files contain as a tensor
)

GGUF = Table(
    rules=(
        Rule("token_embd.weight", "embed.tokens.weight"),
        Rule("position_embd.weight", "embed.positions.weight"),
        both("blk.{i}.attn_norm", "decoder.{i}.norm_1"),
        Rule("blk.{i}.attn_qkv.{p}", tuple(f"{W}.{{p}}" for W in QKV), STACK),
        both("blk.{i}.attn_output", "decoder.{i}.attention.W_o"),
        both("blk.{i}.ffn_norm", "decoder.{i}.norm_2"),
        both("blk.{i}.ffn_up", "decoder.{i}.mlp.up"),
        both("blk.{i}.ffn_down", "decoder.{i}.mlp.down"),
        both("output_norm", "final_norm"),
        Rule("output.weight", "unembed.weight"),
    ),
)


def spec(c: Config, names: Collection[str]) -> Spec:
    c.architecture("GPT2LMHeadModel", ("LMHeadModel", "Model"))
    c.only({"is_causal": True, "is_encoder_decoder": False, "n_special": 0})
    d, heads = c.size("n_embd", "hidden_size", default=768), c.size("n_head", "num_attention_heads", default=12)
    n_vocab = c.size("vocab_size", default=50257)
    stack = StackSpec(
        n_layers=c.layers("n_layer", "num_hidden_layers", default=12),
        n_vocab=n_vocab,
        wiring="pre",
        norm="layer",
        eps=c.number("layer_norm_epsilon", default=1e-5),
        attention=AttentionSpec(
            heads=heads,
            kv_heads=heads,
            d_k=head_size(d, heads),
            scaled=c.flag("scale_attn_weights", default=True),
            scaled_by_layer=c.flag("scale_attn_by_inverse_layer_idx", default=False),
            dropout=c.rate("attn_pdrop", default=0.1),
        ),
        mlp=MLPSpec(
            d_ff=c.size("n_inner", default=4 * d),
            activation=c.choice("activation_function", among=ACTIVATION_NAMES, default="gelu_new"),
        ),
        positions=PositionSpec("learned", c.size("n_positions", "max_position_embeddings", default=1024)),
        final_norm=True,
        dropout=c.rate("resid_pdrop", default=0.1),
        embed_dropout=c.rate("embd_pdrop", default=0.1),
    )
    tied = c.flag("tie_word_embeddings", default=True)
    pad = c.id("pad_token_id")
    return Spec(
        family="gpt2",
        d=d,
        encoder=None,
        decoder=stack,
        head=HeadSpec("lm"),
        tied=(("embed.tokens.weight", "unembed.weight"),) if tied else (),
        pad_id=pad if pad is not None and pad < n_vocab else None,
        bos_id=c.id("bos_token_id", 50256 if n_vocab > 50256 else None),
        eos_ids=c.ids("eos_token_id", (50256,) if n_vocab > 50256 else ()),
        initializer_std=c.number("initializer_range", default=0.02),
    )


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    return HF


def config_from_gguf(c: Config, file: OpenGGUF) -> dict[str, Any]:
    meta = c.values
    c.only({"gpt2.attention.causal": True, "gpt2.attention.head_count_kv": meta["gpt2.attention.head_count"]})
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": file.shape("token_embd.weight")[0],
        "n_positions": meta["gpt2.context_length"],
        "n_embd": meta["gpt2.embedding_length"],
        "n_inner": meta.get("gpt2.feed_forward_length"),
        "n_layer": meta["gpt2.block_count"],
        "n_head": meta["gpt2.attention.head_count"],
        "layer_norm_epsilon": meta.get("gpt2.attention.layer_norm_epsilon", 1e-5),
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "tie_word_embeddings": "output.weight" not in file.names,
    }


def gguf_metadata(config: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    stack = spec.stacks["decoder"]
    if stack.mlp.activation != "gelu_tanh":
        raise ConfigError(
            f"GGUF's gpt2 has GELU by tanh in its MLP, not {stack.mlp.activation}; save in Hugging Face's layout."
        )
    if not stack.attention.scaled or stack.attention.scaled_by_layer:
        raise ConfigError("GGUF's gpt2 divides scores by √d_k and nothing else; save in Hugging Face's layout.")
    return {
        "general.architecture": "gpt2",
        "gpt2.context_length": stack.positions.limit,
        "gpt2.embedding_length": spec.d,
        "gpt2.feed_forward_length": stack.mlp.d_ff,
        "gpt2.block_count": stack.n_layers,
        "gpt2.attention.head_count": stack.attention.heads,
        "gpt2.attention.layer_norm_epsilon": stack.eps,
    }


def gguf_table(config: Mapping[str, Any], spec: Spec) -> Table:
    return GGUF


# `n_ctx` was the mask's size; `summary_…` belongs to a head that is not implemented; upcasting is for 16 bits.
HARMLESS = (
    *("n_ctx", "is_decoder", "predict_special_tokens", "reorder_and_upcast_attn"),
    *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
)
FAMILY = Family(
    "gpt2",
    spec,
    table,
    GGUFForm(("gpt2",), config_from_gguf, gguf_metadata, gguf_table, harmless=("vocab_size",)),
    HARMLESS,
)
