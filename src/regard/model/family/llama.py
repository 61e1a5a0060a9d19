"""Llama and its near relations: decoder-only, pre-norm with RMSNorm, rotary positions, gated MLP, grouped-query heads.

Touvron et al., 2023. The same table reads SmolLM2 and Llama 2/3 (model_type llama), Mistral (a sliding window) and Qwen2
(biases on q, k and v).
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, quoted
from regard.model.config import ACTIVATION_NAMES, Config
from regard.model.registry import Family, GGUFForm, OpenGGUF
from regard.model.spec import (
    AttentionSpec,
    HeadSpec,
    MLPSpec,
    PositionSpec,
    Spec,
    StackSpec,
    head_size,
)
from regard.model.weight_map import Rule, Table, both, pair_up
from regard.nn.position import Rotary, RotaryScaling

ROPE_FACTORS = "rope_freqs.weight"
LLAMA3_POSITIONS = 8192  # that Llama 3 was first trained for
LAYER_TYPES = ("full_attention", "sliding_attention")

HF = Table(
    prefix="model.",
    rules=(
        Rule("model.embed_tokens.weight", "embed.tokens.weight"),
        Rule("model.layers.{i}.input_layernorm.weight", "decoder.{i}.norm_1.weight"),
        both("model.layers.{i}.self_attn.q_proj", "decoder.{i}.attention.W_q"),
        both("model.layers.{i}.self_attn.k_proj", "decoder.{i}.attention.W_k"),
        both("model.layers.{i}.self_attn.v_proj", "decoder.{i}.attention.W_v"),
        both("model.layers.{i}.self_attn.o_proj", "decoder.{i}.attention.W_o"),
        Rule("model.layers.{i}.post_attention_layernorm.weight", "decoder.{i}.norm_2.weight"),
        both("model.layers.{i}.mlp.gate_proj", "decoder.{i}.mlp.gate"),
        both("model.layers.{i}.mlp.up_proj", "decoder.{i}.mlp.up"),
        both("model.layers.{i}.mlp.down_proj", "decoder.{i}.mlp.down"),
        Rule("model.norm.weight", "final_norm.weight"),
        Rule("lm_head.weight", "unembed.weight"),
    ),
    ignore=(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)


@dataclass(frozen=True)
class Kind:
    """Defaults of a model_type, for what a config.json leaves out."""

    d_ff: int = 11008
    limit: int = 2048
    n_vocab: int = 32000
    kv_heads: int | None = None  # as many as there are heads
    bos_id: int | None = 1
    eos_ids: tuple[int, ...] = (2,)


KINDS = {
    "llama": Kind(),
    "mistral": Kind(d_ff=14336, limit=131072, kv_heads=8),
    "qwen2": Kind(d_ff=22016, limit=32768, n_vocab=151936, kv_heads=32, bos_id=None, eos_ids=()),
}


def spec(c: Config, names: Collection[str]) -> Spec:
    model_type = c.get("model_type", default="llama")
    kind = KINDS[model_type]
    c.architecture("LlamaForCausalLM", ("ForCausalLM", "Model"))
    c.only({"is_causal": True, "is_encoder_decoder": False, "rope_interleaved": False, "use_mrope": False})
    d, heads = c.size("hidden_size", default=4096), c.size("num_attention_heads", default=32)
    n_layers, n_vocab = c.layers("num_hidden_layers", default=32), c.size("vocab_size", default=kind.n_vocab)
    if model_type != "llama":  # mistral and qwen2 have fixed biases
        c.only({"attention_bias": model_type == "qwen2", "mlp_bias": False})
    bias = c.flag("attention_bias", default=model_type == "qwen2")
    groups = None if c.is_null("num_key_value_heads") else kind.kv_heads
    stack = StackSpec(
        n_layers=n_layers,
        n_vocab=n_vocab,
        wiring="pre",
        norm="rms",
        eps=c.number("rms_norm_eps", default=1e-6),
        attention=AttentionSpec(
            heads=heads,
            kv_heads=c.size("num_key_value_heads", default=groups or heads),
            d_k=head_size(d, heads, c.size("head_dim", default=0, least=0) or None),
            bias=bias,
            out_bias=bias and model_type != "qwen2",
            dropout=c.rate("attention_dropout"),
        ),
        mlp=MLPSpec(
            d_ff=c.size("intermediate_size", default=kind.d_ff),
            activation=c.choice("hidden_act", among=ACTIVATION_NAMES, default="silu"),
            gated=True,
            bias=c.flag("mlp_bias", default=False),
        ),
        positions=rotary(c, kind),
        windows=windows(c, model_type, n_layers),
        final_norm=True,
    )
    tied = c.flag("tie_word_embeddings", default=False)
    return Spec(
        family="llama",
        d=d,
        encoder=None,
        decoder=stack,
        head=HeadSpec("lm"),
        tied=(("embed.tokens.weight", "unembed.weight"),) if tied else (),
        pad_id=c.id("pad_token_id"),
        bos_id=c.id("bos_token_id", kind.bos_id),
        eos_ids=c.ids("eos_token_id", kind.eos_ids),
        initializer_std=c.number("initializer_range", default=0.02),
    )


def rotary(c: Config, kind: Kind) -> PositionSpec:
    """From `rope_scaling` (old) or else `rope_parameters` (new); `rope_theta` may be inside it or at the top level."""
    old, new = c.get("rope_scaling", default={}), c.get("rope_parameters", default={})
    for name, given in (("rope_scaling", old), ("rope_parameters", new)):
        if not isinstance(given, dict):
            raise ConfigError(f"{c.where}: {name} must be an object.")
    r = Config(old or new, f"{c.where}, {'rope_scaling' if old else 'rope_parameters'}")
    kinds = {"default": "", "linear": "linear", "llama3": "llama3"}
    scaled = r.choice("rope_type", "type", among=kinds, default="default")
    limit = c.size("max_position_embeddings", default=kind.limit)
    scaling = None
    if scaled:
        low, high = r.number("low_freq_factor", default=1.0), r.number("high_freq_factor", default=4.0)
        if low >= high:
            raise r.refuse("low_freq_factor", "below high_freq_factor")
        known: Literal["linear", "llama3"] = "linear" if scaled == "linear" else "llama3"
        original = r.size("original_max_position_embeddings", default=limit)
        scaling = RotaryScaling(known, r.number("factor", default=1.0, least=1e-6), low, high, original)
    theta = r.number("rope_theta", default=c.number("rope_theta", default=10000.0, least=1e-6), least=1e-6)
    if r.number("partial_rotary_factor", default=c.number("partial_rotary_factor", default=1.0)) != 1.0:
        raise r.refuse("partial_rotary_factor", "1: rotating a part of each head is not implemented")
    r.refuse_unknown(("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    return PositionSpec("rotary", limit, theta=theta, scaling=scaling)


def windows(c: Config, model_type: str, n_layers: int) -> tuple[int | None, ...]:
    """Mistral: every layer. Qwen2: those that layer_types names, and only if use_sliding_window says so."""
    if model_type == "llama":
        c.only({"sliding_window": None, "use_sliding_window": False})
    if model_type == "mistral":
        c.only({"use_sliding_window": True, "max_window_layers": 0})
    used = model_type == "mistral" or c.flag("use_sliding_window", default=False)
    null = c.is_null("sliding_window")
    window = c.size("sliding_window", default=4096) if used and not null else None
    full = c.size("max_window_layers", default=28, least=0) if model_type == "qwen2" else 0
    usual = ["full_attention" if window is None or i < full else "sliding_attention" for i in range(n_layers)]
    types = c.get("layer_types", default=usual)
    if not isinstance(types, list) or len(types) != n_layers or not {*map(str, types)} <= {*LAYER_TYPES}:
        raise c.refuse("layer_types", f"a list of {n_layers} names, each of them {' or '.join(LAYER_TYPES)}")
    if types != usual and (model_type != "qwen2" or window is None):
        raise c.refuse("layer_types", f"{usual[0]} in each layer")
    return tuple(window if t == "sliding_attention" else None for t in types) if window is not None else ()


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    return HF


def gguf_table(config: Mapping[str, Any], spec: Spec) -> Table:
    a = spec.stacks["decoder"].attention
    neighbours = config["model_type"] != "qwen2"  # Qwen2's rows are in the same order as here

    def rotary_rule(theirs: str, ours: str, heads: int) -> Rule:
        return Rule(theirs + ".{p}", ours + ".{p}", pair_up(heads)) if neighbours else both(theirs, ours)

    return Table(
        rules=(
            Rule("token_embd.weight", "embed.tokens.weight"),
            Rule("blk.{i}.attn_norm.weight", "decoder.{i}.norm_1.weight"),
            rotary_rule("blk.{i}.attn_q", "decoder.{i}.attention.W_q", a.heads),
            rotary_rule("blk.{i}.attn_k", "decoder.{i}.attention.W_k", a.kv_heads),
            both("blk.{i}.attn_v", "decoder.{i}.attention.W_v"),
            both("blk.{i}.attn_output", "decoder.{i}.attention.W_o"),
            Rule("blk.{i}.ffn_norm.weight", "decoder.{i}.norm_2.weight"),
            both("blk.{i}.ffn_gate", "decoder.{i}.mlp.gate"),
            both("blk.{i}.ffn_up", "decoder.{i}.mlp.up"),
            both("blk.{i}.ffn_down", "decoder.{i}.mlp.down"),
            Rule("output_norm.weight", "final_norm.weight"),
            Rule("output.weight", "unembed.weight"),
        ),
        ignore=(re.escape(ROPE_FACTORS),),
    )


def config_from_gguf(c: Config, file: OpenGGUF) -> dict[str, Any]:
    meta, names = c.values, file.names
    arch = meta["general.architecture"]
    heads, d = c.size(f"{arch}.attention.head_count"), c.size(f"{arch}.embedding_length")
    theta = c.number(f"{arch}.rope.freq_base", default=10000.0, least=1e-6)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    factor = c.get(f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear")  # the second is its name of 2023
    scaling = meta.get(f"{arch}.rope.scaling.type", "linear" if factor else "none")
    if scaling not in ("none", "linear"):
        raise ConfigError(f"{c.where} scales rotary positions by {quoted(scaling)}; linear scaling is implemented.")
    if scaling == "linear" and factor:  # 0 means 1, as it does in llama.cpp
        rope |= {"rope_type": "linear", "factor": factor}
    original = c.size(f"{arch}.rope.scaling.original_context_length", default=LLAMA3_POSITIONS)
    if ROPE_FACTORS in names:
        rope |= llama3_scaling(file.array(ROPE_FACTORS), theta, original)
    d_k = c.size(f"{arch}.attention.key_length", default=head_size(d, heads))
    c.only({f"{arch}.{key}": d_k for key in ("attention.value_length", "rope.dimension_count")})
    c.only({f"{arch}.attention.causal": True, f"{arch}.rope.scaling.attn_factor": 1.0, f"{arch}.expert_count": 0})
    window = meta.get(f"{arch}.attention.sliding_window")
    model_type = "qwen2" if arch == "qwen2" else "mistral" if window else "llama"
    architecture = {"qwen2": "Qwen2ForCausalLM", "mistral": "MistralForCausalLM", "llama": "LlamaForCausalLM"}
    return {
        "model_type": model_type,
        "architectures": [architecture[model_type]],
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": d,
        "intermediate_size": meta[f"{arch}.feed_forward_length"],
        "num_hidden_layers": meta[f"{arch}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": d_k,
        "max_position_embeddings": meta[f"{arch}.context_length"],
        "rms_norm_eps": meta[f"{arch}.attention.layer_norm_rms_epsilon"],
        "rope_parameters": rope,
        "hidden_act": "silu",
        "attention_bias": model_type == "qwen2" or "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
        "tie_word_embeddings": "output.weight" not in names,
        **({"sliding_window": window} if window else {}),
        **({"use_sliding_window": True, "max_window_layers": 0} if window and model_type == "qwen2" else {}),
    }


def llama3_scaling(factors: NDArray[np.float32], theta: float, original: int) -> dict[str, Any]:
    """GGUF stores Llama 3's RoPE scaling as a table of divisors; find the settings that give this table."""
    if factors.ndim == 1:
        for factor in (8.0, 32.0, 4.0, 16.0, 2.0, 64.0, float(factors.max())):
            scaling = RotaryScaling("llama3", factor, original_positions=original)
            if np.allclose(rope_factors(2 * len(factors), theta, scaling), factors, rtol=1e-4):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": scaling.low_freq_factor,
                    "high_freq_factor": scaling.high_freq_factor,
                    "original_max_position_embeddings": original,
                }
    raise ConfigError(
        f"{ROPE_FACTORS} does not follow Llama 3's rule for scaling rotary positions, so the model cannot be described."
    )


def rope_factors(d_k: int, theta: float, scaling: RotaryScaling) -> NDArray[np.float32]:
    return Rotary(d_k, theta).frequencies() / Rotary(d_k, theta, scaling).frequencies()  # (d_k/2,)


def gguf_constants(spec: Spec) -> dict[str, NDArray[np.float32]]:
    stack = spec.stacks["decoder"]
    s = stack.positions.scaling
    if s is None or s.kind != "llama3":
        return {}
    return {ROPE_FACTORS: rope_factors(stack.attention.d_k, stack.positions.theta, s)}


def gguf_metadata(config: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    stack = spec.stacks["decoder"]
    a, p = stack.attention, stack.positions
    if stack.mlp.activation != "silu":
        raise ConfigError(
            f"GGUF's llama has SiLU in its MLP, not {stack.mlp.activation}; save in Hugging Face's layout."
        )
    if any(w != stack.windows[0] for w in stack.windows):
        raise ConfigError("GGUF's llama has one window for all layers; save in Hugging Face's layout.")
    arch = "qwen2" if config["model_type"] == "qwen2" else "llama"
    values: dict[str, Any] = {
        "context_length": p.limit,
        "embedding_length": spec.d,
        "block_count": stack.n_layers,
        "feed_forward_length": stack.mlp.d_ff,
        "vocab_size": stack.n_vocab,
        "attention.head_count": a.heads,
        "attention.head_count_kv": a.kv_heads,
        "attention.key_length": a.d_k,
        "attention.value_length": a.d_k,
        "attention.layer_norm_rms_epsilon": stack.eps,
        "rope.dimension_count": a.d_k,
        "rope.freq_base": p.theta,
    }
    if stack.window(0):
        values["attention.sliding_window"] = stack.window(0)
    if p.scaling and p.scaling.kind == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": p.scaling.factor}
    if p.scaling and p.scaling.kind == "llama3":
        original = p.scaling.original_positions
        llama3_scaling(gguf_constants(spec)[ROPE_FACTORS], p.theta, original)  # fails if it could not be loaded again
        values["rope.scaling.original_context_length"] = original
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in values.items()}}


# Tensor parallelism of a server, training of a longer context, and other tools' names for the same limit.
HARMLESS = ("pretraining_tp", "is_decoder", "is_llama_config", "max_sequence_length")
GGUF_HARMLESS = ("vocab_size", "tensor_data_layout", "expert_used_count", "rope.scaling.finetuned", "pooling_type")
FAMILY = Family(
    "llama",
    spec,
    table,
    GGUFForm(("llama", "qwen2"), config_from_gguf, gguf_metadata, gguf_table, gguf_constants, GGUF_HARMLESS),
    HARMLESS,
)
