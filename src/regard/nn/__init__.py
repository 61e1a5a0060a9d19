"""The mathematics: functions for what the lectures write down, modules for what holds weights."""

from regard.nn.attention import (
    Cross,
    MultiHead,
    SelfAttention,
    attend,
    attention_weights,
    fused,
    simple_attention,
)
from regard.nn.block import CrossPostNorm, CrossPreNorm, PostNorm, PreNorm
from regard.nn.cache import Cache
from regard.nn.embed import Embed, Unembed
from regard.nn.mask import CAUSAL, EVERYTHING, Mask
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.norm import LayerNorm, RMSNorm, layer_norm, rms_norm
from regard.nn.position import Learned, Rotary, RotaryScaling, Sinusoidal, rotate
from regard.nn.see import see, watched, watching

__all__ = [
    "CAUSAL",
    "EVERYTHING",
    "MLP",
    "Cache",
    "Cross",
    "CrossPostNorm",
    "CrossPreNorm",
    "Embed",
    "GatedMLP",
    "LayerNorm",
    "Learned",
    "Mask",
    "MultiHead",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "Rotary",
    "RotaryScaling",
    "SelfAttention",
    "Sinusoidal",
    "Unembed",
    "attend",
    "attention_weights",
    "fused",
    "layer_norm",
    "rms_norm",
    "rotate",
    "see",
    "simple_attention",
    "watched",
    "watching",
]
