"""A spec becomes a network: `build(spec)`.

Three networks, each written out: `DecoderOnly` (GPT-2, Llama), `EncoderOnly` (BERT), `EncoderDecoder` (BART, the 2017
Transformer). The names of their modules are the names of what one sees: `decoder.0.attention` holds W_q and shows Q.

In: ids (B, N) and `real` (B, N), True where an id is a token and not padding. Out: logits, or states.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.model.heads import Classifier, DenseClassifier, MaskedHead, Pooler
from regard.model.recurrent import Recurrent
from regard.model.spec import HeadSpec, PositionSpec, Spec, StackSpec
from regard.nn.attention import Cross, MultiHead
from regard.nn.block import CrossPostNorm, CrossPreNorm, PostNorm, PreNorm
from regard.nn.cache import Cache
from regard.nn.embed import Embed, Unembed
from regard.nn.mask import Mask
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.norm import LayerNorm, RMSNorm
from regard.nn.position import Learned, Rotary, RotaryScaling, Sinusoidal
from regard.nn.see import Part, name_places, see, watched


def positions_of(ids: Tensor, real: Tensor | None, past: int = 0) -> Tensor:
    """0, 1, 2, … counting tokens only, so that padding on either side changes nothing. (B or 1, N)"""
    N = ids.shape[1]
    if real is None:
        return torch.arange(past, past + N, device=ids.device)[None]
    return (real.long().cumsum(-1) - 1).clamp_min(0)[:, -N:]


def causal_masks(stack: StackSpec, real: Tensor | None) -> list[Mask]:
    """A layer's mask each; layers that see equally far back share one."""
    windows = [stack.window(i) for i in range(stack.n_layers)]
    masks = {window: Mask(causal=True, window=window, real=real) for window in windows}
    return [masks[window] for window in windows]


class DecoderOnly(Part):
    def __init__(self, spec: Spec, stack: StackSpec) -> None:
        super().__init__()
        self.spec, self.stack = spec, stack
        self.embed = make_embed(spec.d, stack)
        self.rotary = make_rotary(stack)
        self.decoder = nn.ModuleList(make_block(spec.d, stack, i) for i in range(stack.n_layers))
        self.final_norm = make_norm(spec.d, stack) if stack.final_norm else None
        self.unembed = Unembed(spec.d, stack.n_vocab, spec.head.bias)

    def states(self, ids: Tensor, real: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """(B, N, d). With a cache, `ids` are the new tokens and `real` covers the old ones too."""
        positions = positions_of(ids, real, cache.length if cache else 0)
        angles = self.rotary(positions) if self.rotary is not None else None
        X, masks = self.embed(ids, positions), causal_masks(self.stack, real)
        for i, block in enumerate(self.decoder):
            X = block(X, mask=masks[i], cache=cache.layers[i] if cache else None, angles=angles)
        return X if self.final_norm is None else self.final_norm(X)

    def new_cache(self, capacity: int) -> Cache:
        return Cache(self.stack.n_layers, capacity)

    def logits(self, states: Tensor) -> Tensor:
        return see("logits", self.unembed(states))

    def forward(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        return self.logits(self.states(ids, real))


class EncoderOnly(Part):
    def __init__(self, spec: Spec, stack: StackSpec) -> None:
        super().__init__()
        self.spec, self.stack, head = spec, stack, spec.head
        self.embed = make_embed(spec.d, stack)
        self.rotary = make_rotary(stack)
        self.encoder = nn.ModuleList(make_block(spec.d, stack, i) for i in range(stack.n_layers))
        self.final_norm = make_norm(spec.d, stack) if stack.final_norm else None
        self.pooler = Pooler(spec.d) if head.pooler else None
        self.head = make_head(spec.d, head, stack.eps)
        self.unembed = Unembed(spec.d, stack.n_vocab, head.bias) if head.kind == "mlm" else None

    def states(self, ids: Tensor, real: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        positions = positions_of(ids, real)
        angles = self.rotary(positions) if self.rotary is not None else None
        X, mask = self.embed(ids, positions, types), Mask(real=real)
        for block in self.encoder:
            X = block(X, mask=mask, angles=angles)
        return X if self.final_norm is None else self.final_norm(X)

    def forward(self, ids: Tensor, real: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """States (B, N, d) without a head; else logits: of the vocabulary or the tags per token, or of the classes."""
        X = self.states(ids, real, types)
        if self.pooler is not None and (self.head is not None or watched()):
            pooled = self.pooler(X)
        if self.head is None:
            return X
        if self.unembed is not None:
            return see("logits", self.unembed(self.head(X)))
        if self.spec.head.kind == "tag":
            return see("logits", self.head(X))
        return see("logits", self.head(pooled if self.pooler is not None else X[:, 0]))


class Side(Part):
    """One side of an encoder-decoder: its embeddings, its blocks (children "0", "1", …) and its last norm."""

    def __init__(self, d: int, stack: StackSpec, cross: bool) -> None:
        super().__init__()
        self.stack = stack
        self.embed = make_embed(d, stack)
        self.rotary = make_rotary(stack)
        for i in range(stack.n_layers):
            self.add_module(str(i), make_block(d, stack, i, cross))
        self.final_norm = make_norm(d, stack) if stack.final_norm else None

    @property
    def blocks(self) -> list[nn.Module]:
        return [self.get_submodule(str(i)) for i in range(self.stack.n_layers)]


class EncoderDecoder(Part):
    def __init__(self, spec: Spec, encoder: StackSpec, decoder: StackSpec) -> None:
        super().__init__()
        self.spec, head = spec, spec.head
        self.encoder = Side(spec.d, encoder, cross=False)
        self.decoder = Side(spec.d, decoder, cross=True)
        self.head = make_head(spec.d, head, decoder.eps)
        self.unembed = Unembed(spec.d, decoder.n_vocab, head.bias) if head.kind == "lm" else None

    def encode(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """What the decoder will look up, (B, N, d)."""
        side, positions = self.encoder, positions_of(ids, real)
        angles = side.rotary(positions) if side.rotary is not None else None
        X, mask = side.embed(ids, positions), Mask(real=real)
        for block in side.blocks:
            X = block(X, mask=mask, angles=angles)
        return X if side.final_norm is None else side.final_norm(X)

    def states(
        self,
        target_ids: Tensor,
        memory: Tensor,
        memory_real: Tensor | None = None,
        real: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The decoder's last states, (B, N, d)."""
        side, positions = self.decoder, positions_of(target_ids, real, cache.length if cache else 0)
        angles = side.rotary(positions) if side.rotary is not None else None
        masks, memory_mask = causal_masks(side.stack, real), Mask(real=memory_real)
        X = side.embed(target_ids, positions)
        for i, block in enumerate(side.blocks):
            layer = cache.layers[i] if cache else None
            X = block(X, memory=memory, memory_mask=memory_mask, mask=masks[i], cache=layer, angles=angles)
        return X if side.final_norm is None else side.final_norm(X)

    def new_cache(self, capacity: int) -> Cache:
        return Cache(self.decoder.stack.n_layers, capacity)

    def logits(self, states: Tensor) -> Tensor:
        assert self.unembed is not None
        return see("logits", self.unembed(states))

    def forward(
        self, ids: Tensor, target_ids: Tensor, real: Tensor | None = None, target_real: Tensor | None = None
    ) -> Tensor:
        X = self.states(target_ids, self.encode(ids, real), real, target_real)
        return X if self.unembed is None else self.logits(X)

    def classify(self, ids: Tensor, target_ids: Tensor, last: Tensor, real: Tensor | None = None) -> Tensor:
        """Class logits from the decoder's state at each row's position `last` (BART: its end-of-text token)."""
        assert self.head is not None
        X = self.states(target_ids, self.encode(ids, real), real)
        return see("logits", self.head(X[torch.arange(len(X), device=X.device), last]))


Seq2Seq = EncoderDecoder | Recurrent  # read a source, write a target
Network = DecoderOnly | EncoderOnly | EncoderDecoder | Recurrent


def class_logits(net: Network, ids: Tensor, real: Tensor | None, types: Tensor | None = None) -> Tensor:
    """(B, n_labels). BART's decoder reads the text shifted by one and answers at its last end token."""
    if isinstance(net, EncoderOnly):
        logits: Tensor = net(ids, real, types)
        return logits
    assert isinstance(net, EncoderDecoder)
    start = torch.full_like(ids[:, :1], net.spec.start_id or 0)
    shifted = torch.cat([start, ids[:, :-1]], 1)
    ends = ids == net.spec.eos_ids[0]
    last = ids.shape[1] - 1 - ends.flip(1).long().argmax(1)
    return net.classify(ids, shifted, last, real)


def build(spec: Spec) -> Network:
    """The network, on the current default device."""
    net: Network
    if spec.recurrent:
        net = Recurrent(spec, spec.recurrent)
    elif spec.encoder and spec.decoder:
        net = EncoderDecoder(spec, spec.encoder, spec.decoder)
    elif spec.encoder:
        net = EncoderOnly(spec, spec.encoder)
    elif spec.decoder:
        net = DecoderOnly(spec, spec.decoder)
    else:
        raise ValueError("a spec needs an encoder, a decoder or both")
    tie(net, spec)
    name_places(net)
    return net


class Unfilled(TorchFunctionMode):
    """Nothing is drawn for new parameters: on the meta device that would bring in PyTorch's compiler, 800 modules."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def blueprint(spec: Spec) -> Network:
    """The network's parts and shapes, without numbers and without memory for them."""
    with torch.device("meta"), Unfilled():
        return build(spec)


def tie(net: nn.Module, spec: Spec) -> None:
    """Make tied parameters one and the same object."""
    for first, *others in spec.tied:
        for other in others:
            path, _, leaf = other.rpartition(".")
            setattr(net.get_submodule(path), leaf, net.get_parameter(first))


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
    """What is added to the embeddings; rotary positions are not."""
    if p.kind == "learned":
        return Learned(p.limit, d, p.offset)
    if p.kind == "sinusoidal":
        return Sinusoidal(d, halves=p.halves, stretch=p.stretch, offset=p.offset)
    return None


def make_rotary(stack: StackSpec) -> Rotary | None:
    p = stack.positions
    if p.kind != "rotary":
        return None
    s = p.scaling
    scaling = (
        None
        if s is None
        else RotaryScaling(s.kind, s.factor, s.low_freq_factor, s.high_freq_factor, s.original_positions)
    )
    return Rotary(stack.attention.d_k, p.theta, scaling)


def make_block(d: int, stack: StackSpec, layer: int, cross: bool = False) -> Part:
    a, m = stack.attention, stack.mlp
    scale = (a.d_k**-0.5 if a.scaled else 1.0) / (layer + 1 if a.scaled_by_layer else 1)
    sizes = (d, a.heads, a.kv_heads, a.d_k)
    attention = MultiHead(*sizes, bias=a.bias, out_bias=a.out_bias, scale=scale, dropout=a.dropout)
    mlp = (GatedMLP if m.gated else MLP)(d, m.d_ff, m.activation, bias=m.bias, dropout=m.dropout)
    norm_1, norm_2 = make_norm(d, stack), make_norm(d, stack)
    if not cross:
        return (PreNorm if stack.wiring == "pre" else PostNorm)(attention, mlp, norm_1, norm_2, stack.dropout)
    looking = Cross(*sizes, bias=a.bias, out_bias=a.out_bias, scale=scale, dropout=a.dropout)
    block = CrossPreNorm if stack.wiring == "pre" else CrossPostNorm
    return block(attention, looking, mlp, norm_1, make_norm(d, stack), norm_2, stack.dropout)


def make_head(d: int, head: HeadSpec, eps: float) -> Part | None:
    if head.kind == "mlm":
        return MaskedHead(d, head.activation, eps)
    if head.kind in ("classify", "tag"):
        return (DenseClassifier if head.dense else Classifier)(d, len(head.labels), head.dropout)
    return None
