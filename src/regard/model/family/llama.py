"""Llama and its near relations: decoder-only, pre-norm with RMSNorm, rotary positions, gated MLP, grouped-query heads.

Touvron et al., 2023. The same table reads SmolLM2 and Llama 2/3 (model_type llama), Mistral (a sliding window) and Qwen2
(biases on q, k and v).
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError
from regard.model.config import ACTIVATION_NAMES, Config
from regard.model.frequency import frequencies
from regard.model.registry import Family, GGUFForm, Reading
from regard.model.spec import (
    AttentionSpec,
    HeadSpec,
    MLPSpec,
    PositionSpec,
    RotaryScalingSpec,
    Spec,
    StackSpec,
    head_size,
)
from regard.model.weightmap import Rule, Table, both, pair_up

ROPE_FACTORS = "rope_freqs.weight"
LLAMA3_POSITIONS = 8192  # that Llama 3 was first trained for

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


def spec(c: Config, names: Collection[str]) -> Spec:
    kind = c.get("model_type", default="llama")
    c.architecture("LlamaForCausalLM", ("ForCausalLM", "Model"))
    d, heads = c.size("hidden_size", default=4096), c.size("num_attention_heads", default=32)
    n_layers, n_vocab = c.layers("num_hidden_layers", default=32), c.size("vocab_size", default=32000)
    bias = True if kind == "qwen2" else c.flag("attention_bias", default=False)
    stack = StackSpec(
        n_layers=n_layers,
        n_vocab=n_vocab,
        wiring="pre",
        norm="rms",
        eps=c.number("rms_norm_eps", default=1e-6),
        attention=AttentionSpec(
            heads=heads,
            kv_heads=c.size("num_key_value_heads", default=8 if kind == "mistral" else heads),
            d_k=head_size(d, heads, c.size("head_dim", default=0, least=0) or None),
            bias=bias,
            out_bias=bias and kind != "qwen2",
            dropout=c.rate("attention_dropout"),
        ),
        mlp=MLPSpec(
            d_ff=c.size("intermediate_size", default=11008),
            activation=c.choice("hidden_act", among=ACTIVATION_NAMES, default="silu"),
            gated=True,
            bias=c.flag("mlp_bias", default=False),
        ),
        positions=rotary(c),
        windows=windows(c, kind, n_layers),
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
        bos_id=c.id("bos_token_id", 1),
        eos_ids=c.ids("eos_token_id") or (2,),
        initializer_std=c.number("initializer_range", default=0.02),
    )


def rotary(c: Config) -> PositionSpec:
    """From `rope_parameters` (new) or `rope_theta` and `rope_scaling` (old)."""
    given = c.get("rope_parameters", default=c.get("rope_scaling", default={}))
    if not isinstance(given, dict):
        raise ConfigError(f"{c.where}: rope_parameters must be an object.")
    r = Config(given, f"{c.where}, rope_parameters")
    kinds = {"default": "", "linear": "linear", "llama3": "llama3"}
    kind = r.choice("rope_type", "type", among=kinds, default="default")
    limit = c.size("max_position_embeddings", default=2048)
    scaling = None
    if kind:
        low, high = r.number("low_freq_factor", default=1.0), r.number("high_freq_factor", default=4.0)
        if low >= high:
            raise r.refuse("low_freq_factor", "below high_freq_factor")
        known: Literal["linear", "llama3"] = "linear" if kind == "linear" else "llama3"
        original = r.size("original_max_position_embeddings", default=limit)
        scaling = RotaryScalingSpec(known, r.number("factor", default=1.0, least=1e-6), low, high, original)
    theta = r.number("rope_theta", default=c.number("rope_theta", default=10000.0, least=1e-6), least=1e-6)
    if r.number("partial_rotary_factor", default=c.number("partial_rotary_factor", default=1.0)) != 1.0:
        raise r.refuse("partial_rotary_factor", "1: rotating a part of each head is not implemented")
    return PositionSpec("rotary", limit, theta=theta, scaling=scaling)


def windows(c: Config, kind: str, n_layers: int) -> tuple[int | None, ...]:
    """Mistral: every layer. Qwen2: those that layer_types names, and only if use_sliding_window says so."""
    if kind == "llama" or c.get("sliding_window") is None:
        return ()
    if kind == "qwen2" and not c.flag("use_sliding_window", default=False):
        return ()
    window = c.size("sliding_window")
    types = c.get("layer_types")
    if types is None:
        full = c.size("max_window_layers", default=28, least=0) if kind == "qwen2" else 0
        types = ["full_attention"] * min(full, n_layers) + ["sliding_attention"] * max(0, n_layers - full)
    if not isinstance(types, list) or len(types) != n_layers:
        raise c.refuse("layer_types", f"a list of {n_layers} names")
    return tuple(window if t == "sliding_attention" else None for t in types)


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    return HF


def gguf_table(config: Mapping[str, Any], spec: Spec) -> Table:
    a = spec.stacks["decoder"].attention
    neighbours = config["model_type"] != "qwen2"  # Qwen2's rows stand as they do here

    def turned(theirs: str, ours: str, heads: int) -> Rule:
        return Rule(theirs + ".{p}", ours + ".{p}", pair_up(heads)) if neighbours else both(theirs, ours)

    return Table(
        rules=(
            Rule("token_embd.weight", "embed.tokens.weight"),
            Rule("blk.{i}.attn_norm.weight", "decoder.{i}.norm_1.weight"),
            turned("blk.{i}.attn_q", "decoder.{i}.attention.W_q", a.heads),
            turned("blk.{i}.attn_k", "decoder.{i}.attention.W_k", a.kv_heads),
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


def config_from_gguf(file: Reading) -> dict[str, Any]:
    meta, names = file.metadata, file.names
    arch = meta["general.architecture"]
    said = Config(meta, "The GGUF file's metadata")
    heads = meta[f"{arch}.attention.head_count"]
    theta = said.number(f"{arch}.rope.freq_base", default=10000.0, least=1e-6)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    scaling = meta.get(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ConfigError(f"This GGUF file scales rotary positions by {scaling!r}; linear scaling is implemented.")
    if scaling == "linear":
        rope |= {"rope_type": "linear", "factor": meta[f"{arch}.rope.scaling.factor"]}
    if ROPE_FACTORS in names:
        original = said.size(f"{arch}.rope.scaling.original_context_length", default=LLAMA3_POSITIONS)
        rope |= llama3_scaling(file.array(ROPE_FACTORS), theta, original)
    window = meta.get(f"{arch}.attention.sliding_window")
    model_type = "qwen2" if arch == "qwen2" else "mistral" if window else "llama"
    architecture = {"qwen2": "Qwen2ForCausalLM", "mistral": "MistralForCausalLM", "llama": "LlamaForCausalLM"}
    return {
        "model_type": model_type,
        "architectures": [architecture[model_type]],
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": meta[f"{arch}.embedding_length"],
        "intermediate_size": meta[f"{arch}.feed_forward_length"],
        "num_hidden_layers": meta[f"{arch}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": meta.get(f"{arch}.attention.key_length"),
        "max_position_embeddings": meta[f"{arch}.context_length"],
        "rms_norm_eps": meta[f"{arch}.attention.layer_norm_rms_epsilon"],
        "rope_parameters": rope,
        "hidden_act": "silu",
        "attention_bias": model_type != "qwen2" and "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
        "tie_word_embeddings": "output.weight" not in names,
        **({"sliding_window": window, "use_sliding_window": True, "max_window_layers": 0} if window else {}),
    }


def llama3_scaling(factors: NDArray[np.float32], theta: float, original: int) -> dict[str, Any]:
    """GGUF keeps Llama 3's scaling as a table of divisors; find the settings that give exactly this table."""
    if factors.ndim == 1:
        for factor in (8.0, 32.0, 4.0, 16.0, 2.0, 64.0, float(factors.max())):
            scaling = RotaryScalingSpec("llama3", factor, original_positions=original)
            if np.allclose(rope_factors(2 * len(factors), theta, scaling), factors, rtol=1e-4):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": scaling.low_freq_factor,
                    "high_freq_factor": scaling.high_freq_factor,
                    "original_max_position_embeddings": original,
                }
    raise ConfigError(
        f"{ROPE_FACTORS} does not follow Llama 3's rule for stretching rotary positions, so the model cannot be described."
    )


def rope_factors(d_k: int, theta: float, scaling: RotaryScalingSpec) -> NDArray[np.float32]:
    return frequencies(d_k, theta) / frequencies(d_k, theta, scaling)  # (d_k/2,)


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
        llama3_scaling(gguf_constants(spec)[ROPE_FACTORS], p.theta, original)  # or it could not be read back
        values["rope.scaling.original_context_length"] = original
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in values.items()}}


FAMILY = Family(
    "llama",
    spec,
    table,
    GGUFForm(("llama", "qwen2"), config_from_gguf, gguf_metadata, gguf_table, gguf_constants),
)
