"""The mathematics: operations (the lectures' formulas) and the parts written with them, which hold weights."""

from regard.errors import require
from regard.nn.attention import Cross, MultiHead, attend, attention_weights, simple_attention
from regard.nn.block import CrossPostNorm, CrossPreNorm, PostNorm, PreNorm
from regard.nn.cache import Cache
from regard.nn.embed import Embed, Unembed
from regard.nn.linear import Linear
from regard.nn.mask import CAUSAL, EVERYTHING, Mask
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.norm import LayerNorm, RMSNorm, layer_norm, rms_norm
from regard.nn.operations import rotate
from regard.nn.part import Part, Weight, with_arrays
from regard.nn.position import Rotary, RotaryScaling, Sinusoidal
from regard.nn.see import see, watched, watching
from regard.nn.table import Learned, Table

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
    "Linear",
    "Mask",
    "MultiHead",
    "Part",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "Rotary",
    "RotaryScaling",
    "Sinusoidal",
    "Table",
    "Unembed",
    "Weight",
    "attend",
    "attention_weights",
    "layer_norm",
    "rms_norm",
    "rotate",
    "see",
    "simple_attention",
    "watched",
    "watching",
    "with_arrays",
]


def __getattr__(name: str) -> object:
    if name != "SelfAttention":
        raise AttributeError(f"module 'regard.nn' has no attribute {name!r}")
    require("torch", "regard.nn.SelfAttention")
    from regard.nn.lecture import SelfAttention  # a torch.nn.Module

    return SelfAttention
