"""The recurrent encoder-decoder with additive attention (GRU; Bahdanau, Cho and Bengio, 2015), before the Transformer.

Here so that the two can be compared on the same task. It has the methods of `EncoderDecoder`: encode, states, logits.
Weights are named as in PyTorch's GRU.
"""

import math
from typing import Any

from regard.model.spec import RecurrentSpec, Spec
from regard.nn.embed import Embed, Unembed
from regard.nn.linear import Linear
from regard.nn.operation import Symbol, library_of
from regard.nn.operations import (
    activation,
    add,
    blend,
    concat,
    gate,
    linear,
    mix,
    one_head,
    pick,
    slice_features,
    softmax,
    squeeze,
    stack,
    zeros,
)
from regard.nn.part import Dropout, Part, Weight
from regard.nn.see import see, watched


class GRU(Part):
    """Gated recurrent unit: reset gate (r), update gate (z), candidate state (n).

    suffixes: of the weights' names, one for each direction.
    """

    def __init__(self, fan_in: int, hidden: int, *suffixes: str) -> None:
        self.hidden, gates = hidden, ("feature", 3 * hidden)
        for suffix in suffixes:
            setattr(self, f"weight_ih{suffix}", Weight((("feature", fan_in), gates), transposed=True))
            setattr(self, f"weight_hh{suffix}", Weight((("feature", hidden), gates), transposed=True))
            setattr(self, f"bias_ih{suffix}", Weight((gates,), start=0.0))
            setattr(self, f"bias_hh{suffix}", Weight((gates,), start=0.0))

    def first(self, suffix: str) -> Any:
        """The state before the first token, (hidden,)."""
        return zeros(slice_features(getattr(self, f"bias_hh{suffix}"), first=0, last=self.hidden))

    def step(self, x: Any, h: Any, suffix: str = "") -> tuple[Any, Any, Any, Any]:
        """x (B, fan_in) and the state before it (B, hidden) → r, z, n and the new state."""
        names = (f"{name}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        W, U, b, e = (getattr(self, name) for name in names)
        A, B = linear(x, W, b), linear(h, U, e)  # (B, 3 hidden): the gates' inputs from x and from the state
        (a_r, a_z, a_n), (b_r, b_z, b_n) = self.parts(A), self.parts(B)
        r, z = activation(add(a_r, b_r), function="sigmoid"), activation(add(a_z, b_z), function="sigmoid")
        n = activation(add(a_n, gate(r, b_n)), function="tanh")
        return r, z, n, blend(z, n, h)

    def parts(self, X: Any) -> list[Any]:
        return [slice_features(X, first=i * self.hidden, last=(i + 1) * self.hidden) for i in range(3)]


class BidirectionalGRU(Part):
    """A GRU in each direction; each token's two states concatenated. (B, N, d) → (B, N, 2 h)"""

    def __init__(self, d: int, hidden: int) -> None:
        self.gru = GRU(d, hidden, "_l0", "_l0_reverse")

    def forward(self, X: Any, real: Any = None) -> Any:
        return see("H", concat(self.run(X, real, "forward", "_l0"), self.run(X, real, "backward", "_l0_reverse")))

    def run(self, X: Any, real: Any, name: str, suffix: str) -> Any:
        """The states of one direction, (B, N, h)."""
        h, steps = self.gru.first(suffix), list[tuple[Any, Any, Any, Any]]()
        for t in in_order(range(X.shape[-2]), name):
            made = self.gru.step(pick(X, row=t), h, suffix)
            h = (
                made[-1] if real is None else library_of(X).where(real[:, t, None], made[-1], h)
            )  # padding leaves the state
            steps.append((*made[:-1], h))
        gates = zip(*in_order(steps, name), strict=True)
        for letter, rows in zip("rznh", gates, strict=True):
            if letter == "h" or watched():
                H = see(f"{name}.{letter}", stack(*rows, tokens="source"))
        return H


class AdditiveAttention(Part):
    """Additive attention: score_j = vᵀ tanh(W_s s + W_h h_j), a small network instead of a dot product."""

    def __init__(self, d_state: int, d_memory: int, d: int) -> None:
        self.W_s = Linear(d_state, d, bias=False)
        self.W_h = Linear(d_memory, d)
        self.v = Linear(d, 1, bias=False)

    def keys(self, memory: Any) -> Any:
        """W_h h_j for every source position, computed once: (B, T, d)."""
        return self.W_h(memory)

    def forward(self, state: Any, keys: Any, memory: Any, real: Any) -> tuple[Any, Any, Any]:
        """Decoder state (B, d_state) → context vector (B, d_memory), attention scores and attention weights (B, T)."""
        query = self.W_s(state)
        query = query if isinstance(query, Symbol) else query[..., None, :]  # the same for every key
        S = squeeze(self.v(activation(add(keys, query), function="tanh")))  # (B, T)
        if real is not None:
            S = library_of(S).where(real, S, -math.inf)
        A = softmax(S)
        return mix(A, memory), S, A


class RecurrentEncoder(Part):
    """The encoder: embeddings, and a bidirectional GRU over them."""

    def __init__(self, d: int, r: RecurrentSpec) -> None:
        self.embed = Embed(r.n_vocab, d, dropout=r.dropout)
        self.reader = BidirectionalGRU(d, r.hidden)


class RecurrentDecoder(Part):
    """The decoder: it attends to the source (`cross`), updates its state (`cell`) and predicts a token (`out`)."""

    def __init__(self, d: int, r: RecurrentSpec) -> None:
        h = r.hidden
        self.embed = Embed(r.n_vocab, d, dropout=r.dropout)
        self.first = Linear(h, h)  # the initial state, from the encoder's
        self.cross = AdditiveAttention(h, 2 * h, h)
        self.cell = GRU(d + 2 * h, h, "")
        self.out = Linear(h + 2 * h + d, d)  # state, context vector, previous token


class RecurrentState:
    """The recurrent counterpart of a KV cache: one state, however long the sequence."""

    def __init__(self) -> None:
        self.length = 0
        self.state: Any = None  # (B, h)
        self.keys: Any = None  # (B, T, d)

    def pick(self, rows: Any) -> None:
        self.state = None if self.state is None else self.state[rows]
        self.keys = None if self.keys is None else self.keys[rows]


class Recurrent(Part):
    def __init__(self, spec: Spec, r: RecurrentSpec) -> None:
        self.spec, self.recurrent = spec, r
        self.encoder, self.decoder = RecurrentEncoder(spec.d, r), RecurrentDecoder(spec.d, r)
        self.unembed = Unembed(spec.d, r.n_vocab, bias=False)
        self.dropout = Dropout(r.dropout)

    def new_cache(self, capacity: int) -> RecurrentState:
        return RecurrentState()

    def encode(self, ids: Any, real: Any = None) -> Any:
        """States of every source token, (B, N, 2h)."""
        return self.dropout(self.encoder.reader(self.encoder.embed(ids, ids), real))

    def states(
        self,
        target_ids: Any,
        memory: Any,
        memory_real: Any = None,
        real: Any = None,
        cache: RecurrentState | None = None,
    ) -> Any:
        """The decoder's outputs, token by token, since each needs the previous state. (B, M, d)"""
        side, h = self.decoder, self.recurrent.hidden
        Y = side.embed(target_ids, target_ids)
        cache = RecurrentState() if cache is None else cache
        if cache.state is None:
            cache.keys = side.cross.keys(memory)
            last = slice_features(pick(memory, row=0), first=h, last=2 * h)  # the backward GRU ends at the first token
            cache.state = activation(side.first(last), function="tanh")
        steps = list[tuple[Any, ...]]()
        for t in range(Y.shape[-2]):
            y = pick(Y, row=t)
            context, S, A = side.cross(cache.state, cache.keys, memory, memory_real)
            r, z, n, cache.state = side.cell.step(concat(y, context), cache.state)
            steps.append((S, A, context, r, z, n, cache.state, side.out(concat(cache.state, context, y))))
        cache.length += Y.shape[-2]
        if watched():
            self.report(steps)
        dense = stack(*(each[-1] for each in steps), tokens="target")
        return self.dropout(see("decoder.out", activation(see("decoder.dense", dense), function="tanh")))

    def report(self, steps: list[tuple[Any, ...]]) -> None:
        """Pass all steps to `see`, stacked: (B, M, …), attention as one head."""
        names = ("cross.scores", "cross.weights", "cross.Z", "r", "z", "n", "states")
        for name, rows in zip(names, zip(*steps, strict=True), strict=False):
            X = stack(*rows, tokens="target")
            see(f"decoder.{name}", one_head(X) if name.startswith("cross.") else X)

    def logits(self, states: Any) -> Any:
        return see("logits", self.unembed(states))

    def forward(self, ids: Any, target_ids: Any, real: Any = None, target_real: Any = None) -> Any:
        return self.logits(self.states(target_ids, self.encode(ids, real), real))


def in_order(of_time: Any, name: str) -> Any:
    """Forward: as it is; backward: reversed."""
    return of_time if name == "forward" else of_time[::-1]


def network(spec: Spec) -> Recurrent:
    assert spec.recurrent is not None
    return Recurrent(spec, spec.recurrent)
