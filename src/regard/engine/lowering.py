"""Lowering: a network's graph becomes the native engine's programs. Norm, product, bias, activation, gate and residual are
fused into one step, and so is attention from the scores to Z.

Rules match operations, their operands and their facts (the operation's arguments), never node names; a weight's name only
says which weight to load. From the last symbol backwards, each that is needed becomes the root of a step, which fuses what
it can of the operations before it and requests the rest as values of other steps. What no rule matches is refused by name
(record_graph.py), and the reference computes instead: never silently another network.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.buffers import ordered, pick_wanted
from regard.engine.native.library import ACTIVATIONS, WIDEST_HEAD
from regard.engine.program import Attend, Embed, Keys, Lowered, Map, Norm, Normed, Product, Program, Step, Store, Value
from regard.engine.record_graph import SOURCE, TARGET, Recording, Unsupported, made_by, record
from regard.model.registry import network
from regard.model.spec import Spec
from regard.nn import operations as o
from regard.nn.mask import Mask
from regard.nn.operation import Axis, Operation, Symbol
from regard.nn.part import Part

KNOWN = (  # operations that some rule matches
    *(o.lookup, o.scale, o.positions, o.sinusoid, o.zeros, o.add),
    *(o.mean, o.mean_square, o.variance, o.normalise, o.affine, o.linear, o.activation, o.gate),
    *(o.split, o.cosine, o.sine, o.rotate, o.dot, o.mask, o.softmax, o.mix, o.join),
)
ACTIVATION_NAMES = ACTIVATIONS.keys() - {"none"}
MAX_POSITIONS = 1 << 16  # of a table of positions, or of a sequence that an encoder takes


def unsupported(spec: Spec) -> str | None:
    """What the engine does not support in this network, as a clause after "The native engine …"; None if it runs it."""
    try:
        lowered(spec)
    except Unsupported as refused:
        return refused.clause
    return None


@lru_cache(maxsize=8)
def lowered(spec: Spec) -> Lowered:
    """The programs of the spec's network. Raises `Unsupported`."""
    return lower(network(spec), spec.source_context, spec.context)


def lower(net: Part, source_context: int, context: int) -> Lowered:
    """The network's programs. Raises `Unsupported` if there is an operation that no rule lowers.

    source_context, context: the number of positions of encoder and decoder, unless a learned table says.
    """
    return Lowering(record(net)).run(source_context, context)


@dataclass(frozen=True)
class Projected:
    """Q, K or V of attention: the result of a linear map, split into heads and perhaps rotated by the position."""

    linear: Symbol
    heads: int
    d_k: int
    angles: tuple[Symbol, Symbol] | None  # cosines and sines
    tokens: Axis  # SOURCE or TARGET


class Lowering:
    """Applies the rules to a recorded graph, from its last symbol backwards."""

    def __init__(self, recording: Recording) -> None:
        self.r = recording
        self.values = dict[Symbol, Value]()
        self.steps: dict[Axis, list[list[Step]]] = {SOURCE: [], TARGET: []}  # the steps of each root, last root first
        self.theta = dict[Axis, NDArray[np.float32]]()
        self.layers = dict[Symbol, int]()
        found = Counter[object]()
        for x in recording.order:
            if x.op is o.mix and (A := x.inputs[0]) is not None:
                self.layers[x] = found[A.axes[-2:]]  # counted for each pair of axes: queries of, keys of
                found[A.axes[-2:]] += 1

    def run(self, source_context: int, context: int) -> Lowered:
        last = self.r.last
        for x in self.r.order:
            if x.op is not None and x.op not in KNOWN:
                self.r.refuse(x)
        if last.axes[0] == TARGET:
            self.unembed(last)
        else:
            self.value(last, last)
        for x in reversed(self.r.order):
            if x in self.values:
                self.root(x)
        self.r.complete()
        return Lowered(self.program(SOURCE, source_context), self.program(TARGET, context))

    def program(self, side: Axis, limit: int) -> Program | None:
        steps = [step for root in reversed(self.steps[side]) for step in root]
        if not steps:
            return None
        if (embeds := sum(isinstance(step, Embed) for step in steps)) != 1:
            raise Unsupported(f"supports one token embedding, not {embeds}")
        result = self.values.get(self.r.last) if side == SOURCE else None
        steps = ordered(steps, result)
        program = Program(tuple(pick_wanted(steps) if side == TARGET else steps), result, limit, self.theta.get(side))
        if (learned := program.embed.learned) is not None:
            program = replace(program, limit=learned.rows - program.embed.offset)
        for crossed in (False, True):
            sizes = {(a.keys.heads, a.keys.d_k) for a in program.attends if a.keys.crossed == crossed}
            if len(sizes) > 1:
                raise Unsupported(f"needs a KV cache of one size in all layers, not of {len(sizes)}")
        if program.limit > MAX_POSITIONS and (side == SOURCE or program.embed.has_table):
            raise Unsupported(f"supports at most {MAX_POSITIONS:,} positions, not {program.limit:,}")
        return program

    def value(self, x: Symbol, reader: Symbol) -> Value:
        """Request x as the output of another step; `reader` is refused if x cannot be one."""
        if x.op is None or x.ndim != 2 or x.axes[0] not in self.steps:
            self.r.refuse(reader)
        if x not in self.values:
            self.values[x] = Value(x.shape[-1], self.r.place(x))
        return self.values[x]

    # ── rules: each matches the operations of one step ───────────────────────────────────────────────────────────────────

    def root(self, x: Symbol) -> None:
        if made_by(x, o.lookup, o.scale) or (x.op is o.add and all(map(self.is_row, x.inputs))):
            steps: list[Step] = [self.embed(x)]
        elif x.op is o.add:
            steps = self.residual(x)
        elif made_by(x, o.linear, o.activation, o.gate):
            steps = [self.product(x, self.values[x])]
        elif made_by(x, o.affine, o.normalise):
            X, norm = self.norm(x)
            steps = [Norm(self.value(X, x), self.values[x], norm)]
        elif x.op is o.join:
            steps = self.attention(x)
        else:
            self.r.refuse(x)
        self.steps[x.axes[0]].append(steps)
        self.r.close(x)

    def unembed(self, x: Symbol) -> None:
        if not made_by(x, o.linear):
            self.r.refuse(x, "as the last step")
        self.steps[TARGET].append([self.product(x, None)])
        self.r.close(x)

    def is_row(self, x: Symbol | None) -> bool:
        """Whether x is a row of an embedding table, learned or computed, perhaps scaled."""
        return made_by(x.inputs[0] if x is not None and x.op is o.scale else x, o.lookup, o.sinusoid)

    def embed(self, x: Symbol) -> Embed:
        """The token embedding, scaled, plus in any order the embeddings of position and token type."""
        terms = self.r.take(x, len(x.inputs)) if x.op is o.add else [x]
        found, scaled_by = dict[str, Symbol](), 1.0
        for term in terms:
            row, by = term, 1.0
            if row.op is o.scale:
                row, by, _ = self.r.take(row, 1, by=None, label="")
            kind, offset = self.kind_of(row)
            if kind in found or term.axes != x.axes or (offset if kind == "tokens" else by != 1.0):
                self.r.refuse(row)
            found[kind], scaled_by = row, by if kind == "tokens" else scaled_by
        if "tokens" not in found or {"positions", "waves"} <= found.keys():
            self.r.refuse(x)
        tables = {kind: self.table(row) for kind, row in found.items() if kind != "waves"}
        offsets = {kind: row.facts.get("offset", 0) for kind, row in found.items()}
        return Embed(
            None,
            self.values[x],
            tokens=tables["tokens"],
            scale=scaled_by,
            learned=tables.get("positions"),
            offset=offsets.get("positions", 0),
            waves=found["waves"].facts if "waves" in found else None,
            types=tables.get("types"),
            type=offsets.get("types", 0),
        )

    def kind_of(self, row: Symbol) -> tuple[str, int]:
        """What an embedding is looked up by (tokens, positions, types; or waves: computed), and its first row's offset."""
        if row.op is o.sinusoid:
            at, *_ = self.r.take(row, 1, d=0, steps=0.0, halves=False, offset=0)
            self.positions(at, row)
            return "waves", 0
        if row.op is not o.lookup:
            self.r.refuse(row)
        _, by, offset = self.r.take(row, 2, offset=0)
        if by in self.r.ids:
            return "tokens", offset
        if made_by(by, o.zeros):
            (text,) = self.r.take_shared(by, 1)
            if text in self.r.ids:
                return "types", offset
        self.positions(by, row)
        return "positions", offset

    def positions(self, x: Symbol | None, reader: Symbol) -> None:
        """Check that x is the positions 0, 1, 2, … without offset: the engine counts them itself."""
        if x is None or x.op is not o.positions:
            self.r.refuse(reader)
        text, real, past = self.r.take_shared(x, 1, real=None, past=0)
        if text not in self.r.ids or real is not None or past:
            self.r.refuse(x)

    def table(self, row: Symbol) -> Map:
        assert row.inputs[0] is not None
        E = self.r.weight(row.inputs[0], row)
        return Map(E.name, None, *E.shape)

    def norm(self, x: Symbol) -> tuple[Symbol, Normed]:
        """γ (x - μ)/√(σ² + ε) + β, or RMS norm, without the mean: the norm's input, and the norm."""
        gain, shift, plus, inner = None, None, 0.0, x
        if x.op is o.affine:
            inner, γ, β, plus = self.r.take(x, 3, plus=0.0)
            gain = self.r.weight(γ, x, x.shape[-1:]).name
            shift = β and self.r.weight(β, x, x.shape[-1:]).name
        X, spread, mean, eps = self.take(inner, o.normalise, 3, eps=0.0)
        if mean is None:
            kind, right = "rms", self.take(spread, o.mean_square, 1) == [X]
        else:
            kind, right = "layer", self.take(spread, o.variance, 2) == [X, mean] and self.take(mean, o.mean, 1) == [X]
        if not right:
            self.r.refuse(inner)
        return X, Normed(kind, eps, x.shape[-1], gain, plus, shift)

    def product(self, x: Symbol, out: Value | None, onto: Value | None = None) -> Product:
        """act(norm(X) W + b), or that as a gate of another product of the same input."""
        linears, function = self.r.take(x, 2) if x.op is o.gate else [x], "none"
        if made_by(linears[-1], o.activation):  # either may be the gate
            linears.reverse()
        if made_by(linears[0], o.activation):
            linears[0], function = self.r.take(linears[0], 1, function=None)
            if function not in ACTIVATION_NAMES:
                self.r.refuse(x, f"with the function {function}")
        X, norm, maps = self.maps(*linears)
        return Product(self.value(X, x), out, maps[-1:], norm, function, maps[0] if len(maps) > 1 else None, onto)

    def maps(self, *linears: Symbol) -> tuple[Symbol, Normed | None, tuple[Map, ...]]:
        """Linear maps of one input: the input, its norm (fused if nothing else reads the normed input), and the maps."""
        inputs, found = set[Symbol](), list[Map]()
        for x in linears:
            X, W, b = self.take(x, o.linear, 3)
            columns, rows = X.shape[-1], x.shape[-1]
            W, b = self.r.weight(W, x, (columns, rows)), b and self.r.weight(b, x, (rows,)).name
            found.append(Map(W.name, b, rows, columns))
            inputs.add(X)
        if len(inputs) > 1:
            self.r.refuse(linears[-1], "together with a product of another input")
        (X,) = inputs
        if made_by(X, o.affine, o.normalise) and set(self.r.readers[X]) <= set(linears):
            return *self.norm(X), tuple(found)
        return X, None, tuple(found)

    def residual(self, x: Symbol) -> list[Step]:
        """A residual connection: the products are added to the residual stream, one after the other."""
        terms = self.r.take(x, len(x.inputs))
        added = [term for term in terms if self.is_residual_branch(term, x)]
        there = [term for term in terms if term not in added] or [added.pop(0)]
        if not added or len(there) > 1 or any((t.axes[0], t.shape) != (x.axes[0], x.shape) for t in terms):
            self.r.refuse(x)
        steps, value = list[Step](), self.value(there[0], x)
        for term in added:
            out = self.values[x] if term is added[-1] else Value(value.width, self.values[x].place)
            steps.append(self.product(term, out, onto=value))
            value = out
        return steps

    def is_residual_branch(self, term: Symbol, x: Symbol) -> bool:
        bent = term.op is o.activation and made_by(term.inputs[0], o.linear)
        return (bent or term.op is o.linear) and self.r.readers[term] == [x]

    # ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────

    def attention(self, x: Symbol) -> list[Step]:
        """Z of all heads concatenated: softmax(mask(scale · Q Kᵀ)) V, Q and K perhaps rotated by their positions."""
        (mixed,) = self.r.take(x, 1)
        A, v = self.take(mixed, o.mix, 2)
        (S,), mask, by = self.take(A, o.softmax, 1), None, 1.0
        if made_by(S, o.mask):
            S, mask = self.r.take(S, 1, by=None)
        if made_by(S, o.scale):
            S, by, _ = self.r.take(S, 1, by=None, label="")
        q, k = self.take(S, o.dot, 2)
        Q, K, V = self.projected(q), self.projected(k), self.projected(v)
        crossed = (Q.tokens, K.tokens) == (TARGET, SOURCE)
        if (K.heads, K.d_k, K.tokens, None) != (V.heads, V.d_k, V.tokens, V.angles) or Q.heads % K.heads:
            self.r.refuse(mixed)
        if Q.d_k != K.d_k or Q.angles != K.angles or (Q.tokens != K.tokens and not crossed):
            self.r.refuse(S)
        if Q.d_k > WIDEST_HEAD:
            raise Unsupported(
                f"supports heads of at most {WIDEST_HEAD} dimensions, not {Q.d_k} as at {self.r.place(mixed)}"
            )
        causal, window = self.mask_of(mask, A)
        if crossed and (mask or Q.angles):
            self.r.refuse(A, "in cross attention")
        if Q.tokens == TARGET and not crossed and not causal:
            self.r.refuse(A, "without a causal mask")  # with a KV cache, earlier tokens are not computed again
        keys = Keys(K.heads, K.d_k, crossed, self.layers[mixed])
        pairs = 0 if Q.angles is None else self.pairs(*Q.angles, Q)
        if crossed:
            KV = self.concatenated(mixed, K.linear, V.linear)
            self.steps[SOURCE].append([KV, Store(KV.out, None, keys)])
        QKV = self.concatenated(mixed, *([Q.linear] if crossed else [Q.linear, K.linear, V.linear]))
        return [QKV, Attend(QKV.out, self.values[x], keys, Q.heads, by, causal, window, pairs)]

    def mask_of(self, mask: Mask | None, A: Symbol) -> tuple[bool, int]:
        """Whether the mask is causal, and its sliding window (0: none)."""
        if mask is None:
            return False, 0
        if mask != Mask(causal=True, window=mask.window) or (mask.window is not None and mask.window < 1):
            self.r.refuse(A, f"with {mask}")
        return True, mask.window or 0

    def concatenated(self, x: Symbol, *linears: Symbol) -> Product:
        X, norm, maps = self.maps(*linears)
        return Product(self.value(X, x), Value(sum(each.rows for each in maps), self.r.place(x)), maps, norm)

    def projected(self, x: Symbol) -> Projected:
        angles = None
        if made_by(x, o.rotate):
            x, cos, sin = self.r.take(x, 3)
            angles = cos, sin
        linear, heads, _ = self.take(x, o.split, 1, heads=0, name="head")
        return Projected(linear, heads, x.shape[-1], angles, x.axes[-2])

    def pairs(self, cos: Symbol, sin: Symbol, Q: Projected) -> int:
        """How many pairs of dimensions are rotated. All layers must use the same table of angles."""
        if not (made_by(cos, o.cosine) and made_by(sin, o.sine)):
            self.r.refuse(cos)
        at, theta = self.r.take_shared(cos, 2)
        if self.r.take_shared(sin, 2) != [at, theta] or theta.data is None or 2 * len(theta.data) > Q.d_k:
            self.r.refuse(sin)
        self.positions(at, cos)
        if cos.axes[0] != Q.tokens:
            self.r.refuse(cos, "for positions of another sequence")
        self.r.taken.add(theta)
        if not np.array_equal(self.theta.setdefault(Q.tokens, theta.data), theta.data):
            self.r.refuse(cos, "with other angles than in other layers")
        return len(theta.data)

    def take(self, x: Symbol, op: Operation, most: int, **facts: Any) -> list[Any]:
        """`Recording.take`, if x is this operation; else x is refused."""
        if x.op is not op:
            self.r.refuse(x)
        return self.r.take(x, most, **facts)
