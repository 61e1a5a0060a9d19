"""The Transformer: `network(spec)` builds it from a spec, in parts that know no framework.

Three networks, each written out: `DecoderOnly` (GPT-2, Llama), `EncoderOnly` (BERT), `EncoderDecoder` (BART, the 2017
Transformer). The paths of their parts are the names in a trace: `decoder.0.attention` holds W_q and reports Q.

In: ids (B, N) and `real` (B, N), True where an id is a token and not padding. Out: logits, or states. With numpy arrays as
weights it computes without PyTorch, with symbols it records its graph (model/graph.py), with PyTorch's parameters it is an
nn.Module (model/module.py).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.model.heads import Classifier, DenseClassifier, MaskedHead, Pooler
from regard.model.spec import HeadSpec, PositionSpec, Spec, StackSpec
from regard.nn.attention import Cross, MultiHead
from regard.nn.block import CrossPostNorm, CrossPreNorm, PostNorm, PreNorm
from regard.nn.cache import Cache
from regard.nn.embed import Embed, Unembed
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.norm import LayerNorm, RMSNorm
from regard.nn.operation import arange, library_of
from regard.nn.operations import pick, positions
from regard.nn.part import Part
from regard.nn.position import Rotary, Sinusoidal
from regard.nn.see import see, watched
from regard.nn.table import Learned


class Stack(Part):
    """Embeddings, a stack of blocks and the final norm."""

    embed: Embed
    rotary: Rotary | None
    final_norm: Part | None

    @property
    def blocks(self) -> list[Part]:
        raise NotImplementedError

    def walk(self, ids: Any, real: Any = None, cache: Cache | None = None, types: Any = None, **cross: Any) -> Any:
        """ids → the last hidden states, (B, N, d). With a KV cache, `ids` are the new tokens and `real` covers all tokens.

        cross: the encoder's output and its padding mask, for cross-attention.
        """
        at = positions(ids, real=real, past=cache.length if cache else 0)
        angles = self.rotary(at) if self.rotary is not None else None
        X = self.embed(ids, at, types)
        for i, block in enumerate(self.blocks):
            layer = {"cache": cache.layers[i]} if cache else {}
            X = block(X, real=real, angles=angles, **layer, **cross)
        return X if self.final_norm is None else self.final_norm(X)

    def new_cache(self, capacity: int) -> Cache:
        return Cache(len(self.blocks), capacity)


class DecoderOnly(Stack):
    def __init__(self, spec: Spec, stack: StackSpec, blocks: list[Part]) -> None:
        self.spec, self.stack = spec, stack
        self.embed = make_embed(spec.d, stack)
        self.rotary = make_rotary(stack)
        self.decoder = blocks
        self.final_norm = make_norm(spec.d, stack) if stack.final_norm else None
        self.unembed = Unembed(spec.d, stack.n_vocab, spec.head.bias)

    @property
    def blocks(self) -> list[Part]:
        return self.decoder

    def states(self, ids: Any, real: Any = None, cache: Cache | None = None) -> Any:
        return self.walk(ids, real, cache)

    def logits(self, states: Any) -> Any:
        return see("logits", self.unembed(states))

    def forward(self, ids: Any, real: Any = None) -> Any:
        return self.logits(self.states(ids, real))


class EncoderOnly(Stack):
    def __init__(self, spec: Spec, stack: StackSpec, blocks: list[Part]) -> None:
        self.spec, self.stack, head = spec, stack, spec.head
        self.embed = make_embed(spec.d, stack)
        self.rotary = make_rotary(stack)
        self.encoder = blocks
        self.final_norm = make_norm(spec.d, stack) if stack.final_norm else None
        self.pooler = Pooler(spec.d) if head.pooler else None
        self.head = make_head(spec.d, head, stack.eps)
        self.unembed = Unembed(spec.d, stack.n_vocab, head.bias) if head.kind == "mlm" else None

    @property
    def blocks(self) -> list[Part]:
        return self.encoder

    def states(self, ids: Any, real: Any = None, types: Any = None) -> Any:
        return self.walk(ids, real, types=types)

    def outputs(self, X: Any) -> Any:
        """The head's output for the last states: logits of the vocabulary or the tags per token, or of the classes; without
        a head the states themselves."""
        if self.pooler is not None and (self.head is not None or watched()):
            pooled = self.pooler(X)
        if self.head is None:
            return X
        if self.unembed is not None:
            return see("logits", self.unembed(self.head(X)))
        if self.spec.head.kind == "tag":
            return see("logits", self.head(X))
        return see("logits", self.head(pooled if self.pooler is not None else pick(X, row=0)))

    def forward(self, ids: Any, real: Any = None, types: Any = None) -> Any:
        return self.outputs(self.states(ids, real, types))


class Side(Stack):
    """The encoder or the decoder of an encoder-decoder; its blocks are named "0", "1", …"""

    def __init__(self, d: int, stack: StackSpec, blocks: list[Part]) -> None:
        self.stack = stack
        self.embed = make_embed(d, stack)
        self.rotary = make_rotary(stack)
        for i, block in enumerate(blocks):
            setattr(self, str(i), block)
        self.final_norm = make_norm(d, stack) if stack.final_norm else None

    @property
    def blocks(self) -> list[Part]:
        return [getattr(self, str(i)) for i in range(self.stack.n_layers)]


class EncoderDecoder(Part):
    def __init__(self, spec: Spec, encoder: Side, decoder: Side) -> None:
        self.spec, head = spec, spec.head
        self.encoder, self.decoder = encoder, decoder
        self.head = make_head(spec.d, head, decoder.stack.eps)
        self.unembed = Unembed(spec.d, decoder.stack.n_vocab, head.bias) if head.kind == "lm" else None

    def encode(self, ids: Any, real: Any = None) -> Any:
        """The encoder's output, (B, N, d): the `memory` of cross-attention."""
        return self.encoder.walk(ids, real)

    def states(
        self, target_ids: Any, memory: Any, memory_real: Any = None, real: Any = None, cache: Cache | None = None
    ) -> Any:
        """The decoder's last hidden states, (B, N, d)."""
        return self.decoder.walk(target_ids, real, cache, memory=memory, memory_real=memory_real)

    def new_cache(self, capacity: int) -> Cache:
        return self.decoder.new_cache(capacity)

    def logits(self, states: Any) -> Any:
        assert self.unembed is not None
        return see("logits", self.unembed(states))

    def forward(self, ids: Any, target_ids: Any, real: Any = None, target_real: Any = None) -> Any:
        X = self.states(target_ids, self.encode(ids, real), real, target_real)
        return X if self.unembed is None else self.logits(X)

    def classify(self, ids: Any, target_ids: Any, last: Any, real: Any = None) -> Any:
        """Class logits from the decoder's state at each row's position `last` (BART: its end-of-text token)."""
        assert self.head is not None
        X = self.states(target_ids, self.encode(ids, real), real)
        return see("logits", self.head(pick(X, row=last)))


Single = DecoderOnly | EncoderOnly


def class_logits(net: Part, ids: Any, real: Any, types: Any = None) -> Any:
    """(B, n_labels). BART's decoder gets the sequence shifted by one, and its state at the last end token is classified."""
    if isinstance(net, EncoderOnly):
        return net(ids, real, types)
    assert isinstance(net, EncoderDecoder)
    xp = library_of(ids)
    start = xp.full_like(ids[:, :1], net.spec.start_id or 0)
    shifted = xp.concatenate([start, ids[:, :-1]], 1)
    ends = xp.where(ids == net.spec.eos_ids[0], arange(0, ids.shape[1], ids), -1)
    return net.classify(ids, shifted, xp.amax(ends, 1), real)


def network(spec: Spec) -> "DecoderOnly | EncoderOnly | EncoderDecoder":
    """The network of a spec, its weights declared and not filled."""
    if spec.encoder and spec.decoder:
        encoder = Side(spec.d, spec.encoder, make_blocks(spec.d, spec.encoder, causal=False))
        decoder = Side(spec.d, spec.decoder, make_blocks(spec.d, spec.decoder, causal=True, cross=True))
        return EncoderDecoder(spec, encoder, decoder)
    if spec.encoder:
        return EncoderOnly(spec, spec.encoder, make_blocks(spec.d, spec.encoder, causal=False))
    if spec.decoder:
        return DecoderOnly(spec, spec.decoder, make_blocks(spec.d, spec.decoder, causal=True))
    raise ValueError("a spec needs an encoder, a decoder or both")


def make_norm(d: int, stack: StackSpec) -> Part:
    return LayerNorm(d, stack.eps) if stack.norm == "layer" else RMSNorm(d, stack.eps)


def make_embed(d: int, stack: StackSpec) -> Embed:
    return Embed(
        stack.n_vocab,
        d,
        positions=make_positions(d, stack.positions),
        n_types=stack.n_types,
        scale=stack.embed_scale,
        norm=make_norm(d, stack) if stack.embed_norm else None,
        dropout=stack.embed_dropout,
    )


def make_positions(d: int, p: PositionSpec) -> Part | None:
    """The positional embeddings that are added to token embeddings; None for rotary positions."""
    if p.kind == "learned":
        return Learned(p.limit, d, p.offset)
    if p.kind == "sinusoidal":
        return Sinusoidal(d, halves=p.halves, stretch=p.stretch, offset=p.offset)
    return None


def sinusoids(d: int, p: PositionSpec) -> NDArray[np.float32]:
    """The table of sinusoidal positions, (p.limit, d)."""
    part = make_positions(d, p)
    assert isinstance(part, Sinusoidal)
    return np.asarray(part(np.arange(p.limit)))


def make_rotary(stack: StackSpec) -> Rotary | None:
    p = stack.positions
    return Rotary(p.dims or stack.attention.d_k, p.theta, p.scaling) if p.kind == "rotary" else None


def make_blocks(d: int, stack: StackSpec, *, causal: bool, cross: bool = False) -> list[Part]:
    return [make_block(d, stack, i, causal, cross) for i in range(stack.n_layers)]


def make_block(d: int, stack: StackSpec, layer: int, causal: bool, cross: bool) -> Part:
    a, m = stack.attention, stack.mlp
    scale = (a.d_k**-0.5 if a.scaled else 1.0) / (layer + 1 if a.scaled_by_layer else 1)
    sizes = (d, a.heads, a.kv_heads, a.d_k)
    options: dict[str, Any] = {"bias": a.bias, "out_bias": a.out_bias, "scale": scale, "dropout": a.dropout}
    attention = MultiHead(*sizes, causal=causal, window=stack.window(layer), **options)
    mlp = (GatedMLP if m.gated else MLP)(d, m.d_ff, m.activation, bias=m.bias, dropout=m.dropout)
    norm_1, norm_2 = make_norm(d, stack), make_norm(d, stack)
    if not cross:
        return (PreNorm if stack.wiring == "pre" else PostNorm)(attention, mlp, norm_1, norm_2, stack.dropout)
    cross_attention = Cross(*sizes, **options)
    block = CrossPreNorm if stack.wiring == "pre" else CrossPostNorm
    return block(attention, cross_attention, mlp, norm_1, make_norm(d, stack), norm_2, stack.dropout)


def make_head(d: int, head: HeadSpec, eps: float) -> Part | None:
    if head.kind == "mlm":
        return MaskedHead(d, head.activation, eps)
    if head.kind in ("classify", "tag"):
        return (DenseClassifier if head.dense else Classifier)(d, len(head.labels), head.dropout)
    return None
