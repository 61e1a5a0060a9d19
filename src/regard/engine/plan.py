"""A plan: a program with its weights and buffers, as the flat list of steps that one call into C runs.

A step is a product (with the norm before it and the bias, activation, gate or residual after it), an attention over the
KV cache, or a small row-wise operation. `Plan.run` runs all of them on a batch of rows, each a token of some sequence.
"""

import ctypes
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.buffers import Buffers
from regard.engine.huge_pages import zeros
from regard.engine.native import library as c
from regard.engine.packing import Arena, up
from regard.engine.program import Attend, Embed, Keys, Map, Norm, Normed, Pick, Product, Program, Store, Value
from regard.engine.top_k import Floats
from regard.engine.weights import Weights
from regard.errors import GenerationError
from regard.nn.operations import sinusoid

MAX_ROWS = 256  # tokens of a batch: twice as many would be 2 % faster at most, and take twice the buffers
PARTIAL = 1 << 21  # floats for partial results of attention that is split over threads
LINE = 16  # floats of a cache line


def address(array: NDArray | None) -> int | None:
    return None if array is None else array.ctypes.data


def row_stride(width: int) -> int:
    """Floats from one row of a buffer to the next: an odd number of cache lines. Rows a multiple of 4096 bytes apart would
    map to the same few sets of the processor's cache and evict each other."""
    return LINE * (up(width, LINE) // LINE | 1)


class Builder:
    """Collects the steps as C structs, the packed matrices they need and the buffers they work on.

    temporary: width of the rows that C computes into before they are added or gated.
    """

    def __init__(self, native: ctypes.CDLL, arena: Arena, weights: Weights, max_rows: int, temporary: int = 0) -> None:
        self.native, self.arena, self.weights, self.max_rows = native, arena, weights, max_rows
        self.steps: list[c.Step] = []
        self.kept: list[Any] = []  # arrays that steps point to, kept alive
        self.widest = c.LANES  # the most columns of any product's input
        self.matrices: dict[tuple[str, ...], c.Matrix] = {}
        self.selected = False
        self.temporary = self.buffer(temporary)

    # ── what steps point to ──────────────────────────────────────────────────────────────────────────────────────────

    def buffer(self, width: int) -> Floats:
        return self.keep(zeros(self.max_rows, row_stride(width))[:, : up(width)])

    def keep(self, array: Floats) -> Floats:
        self.kept.append(array)
        return array

    def numbers(self, name: str) -> Floats:
        found = self.weights.vector(name)
        assert found is not None, f"there is no {name}"
        return found

    def vector(self, *parts: Floats) -> Floats:
        """Concatenated vectors, padded with zeros to a multiple of LANES."""
        whole = np.concatenate(parts)
        padded = zeros(up(len(whole)))
        padded[: len(whole)] = whole
        return self.keep(padded)

    def biases(self, *maps: Map) -> Floats | None:
        if all(each.bias is None for each in maps):
            return None
        return self.vector(*(np.zeros(m.rows, np.float32) if m.bias is None else self.numbers(m.bias) for m in maps))

    def matrix(self, *maps: Map, format: str | None = None) -> c.Matrix:
        """One packed matrix, or the rows of several with equally many columns; in float32 if their formats differ."""
        names, chosen = [each.weight for each in maps], format or self.common(*maps)
        key = (chosen, *map(self.weights.canonical_name, names))
        if key not in self.matrices:
            for each in maps:
                assert self.weights.form(each.weight)[1:] == (each.rows, each.columns), each
            rows, columns = sum(each.rows for each in maps), maps[0].columns
            self.matrices[key] = self.arena.add(
                chosen, rows, columns, lambda: [self.weights.matrix(name, chosen) for name in names]
            )
        W = self.matrices[key]
        self.widest = max(self.widest, up(W.columns))
        return W

    def format(self, each: Map) -> str:
        return self.weights.form(each.weight)[0]

    def common(self, *maps: Map) -> str:
        formats = set(map(self.format, maps))
        return formats.pop() if len(formats) == 1 else "F32"

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, op: int, X: Floats | None, out: Floats | None, **values: Any) -> c.Step:
        s = c.Step(op=op, selected=self.selected, **{"scale": 1.0, **values})
        if X is not None:
            s.input, s.in_stride = address(X), X.strides[0] // X.itemsize
        if out is not None:
            s.out, s.out_stride = address(out), out.strides[0] // out.itemsize
        self.steps.append(s)
        return s

    def normed(self, s: c.Step, norm: Normed) -> None:
        s.norm, s.eps = c.NORMS[norm.kind], norm.eps
        gain = np.ones(norm.width, np.float32) if norm.gain is None else self.numbers(norm.gain)
        s.gain = address(self.vector(gain + np.float32(norm.plus) if norm.plus else gain))
        s.shift = None if norm.shift is None else address(self.vector(self.numbers(norm.shift)))

    def product(
        self,
        X: Floats,
        out: Floats | None,
        maps: Sequence[Map],
        *,
        norm: Normed | None = None,
        activation: str = "none",
        gate: Map | None = None,
        add: bool = False,
        column: int = 0,
    ) -> None:
        """out = or += act(norm(X) Wᵀ + b), starting at a column of out; with a gate, act(gate) ⊙ product."""
        s = self.step(c.PRODUCT, X, out, activation=c.ACTIVATIONS[activation], add=add)
        if out is not None:
            s.out = out.ctypes.data + 4 * column
        format = self.common(*maps, *([gate] if gate else []))  # both read the same input
        s.W = ctypes.pointer(self.matrix(*maps, format=format))
        s.bias = address(self.biases(*maps))
        if add or gate is not None:
            assert self.temporary.ctypes.data not in (X.ctypes.data, s.out)
            assert s.W.contents.rows <= self.temporary.shape[1]
        if gate is not None:
            s.gate = ctypes.pointer(self.matrix(gate, format=format))
            s.gate_bias = address(self.biases(gate))
        if norm is not None:
            self.normed(s, norm)

    def products(self, X: Floats, out: Floats, maps: Sequence[Map], norm: Normed | None) -> None:
        """Concatenated products of one input: one step for each run of maps in the same number format."""
        if any(each.rows % c.LANES for each in maps):  # a step writes whole groups of LANES columns
            self.product(X, out, maps, norm=norm)
            return
        column = 0
        for _, stretch in groupby(maps, key=self.format):
            together = list(stretch)
            self.product(X, out, together, norm=norm, column=column)
            column += sum(each.rows for each in together)

    def embed(self, step: Embed, out: Floats, limit: int) -> None:
        """limit: positions that a computed table must have."""
        s = self.step(c.EMBED, None, out, n=step.tokens.columns, scale=step.scale)
        s.W = ctypes.pointer(self.matrix(step.tokens))
        if step.has_table:
            table = self.keep(np.ascontiguousarray(self.positions(step, limit), np.float32))
            s.table, s.table_rows = address(table), len(table)

    def positions(self, step: Embed, limit: int) -> Floats:
        """The table of position embeddings, with the embedding of the token type added where there are types."""
        if step.learned is not None:
            table = self.numbers(step.learned.weight)[step.offset :]
        elif step.waves is not None:
            table = sinusoid(np.arange(limit), **step.waves)
        else:
            table = np.zeros((limit, step.tokens.columns), np.float32)
        return table if step.types is None else table + self.numbers(step.types.weight)[step.type]

    def attend(self, step: Attend, X: Floats, out: Floats, cache: c.Cache) -> None:
        s = self.step(c.ATTEND, X, out, heads=step.heads, scale=step.scale, causal=step.causal, window=step.window)
        s.rotary, s.cross, s.layer = step.pairs, step.keys.crossed, step.keys.layer if cache.layers > 1 else 0
        s.cache = ctypes.pointer(cache)
        if not step.keys.crossed:
            self.keys(s, X, step.heads * step.keys.d_k, step.keys)

    def store(self, step: Store, X: Floats, cache: c.Cache) -> None:
        s = self.step(c.STORE, X, None, cross=True, layer=step.keys.layer)
        s.cache = ctypes.pointer(cache)
        self.keys(s, X, 0, step.keys)

    def keys(self, s: c.Step, X: Floats, column: int, keys: Keys) -> None:
        """Where C finds the new keys, from a column of X on, and the values after them."""
        s.K = X.ctypes.data + 4 * column
        s.V = s.K + 4 * keys.heads * keys.d_k

    def norm(self, norm: Normed, X: Floats, out: Floats) -> None:
        self.normed(self.step(c.NORM, X, out, n=norm.width), norm)

    def pick(self, X: Floats, out: Floats) -> None:
        """Gather the rows whose logits are wanted; later steps compute only these."""
        self.selected = True
        self.step(c.PICK, X, out, n=X.shape[1])


def build(b: Builder, program: Program, buffers: Buffers, caches: Mapping[bool, c.Cache]) -> Floats | None:
    """Add a program's steps to the builder; returns the buffer of its last states. caches: the memory layout of the KV
    cache of a sequence (False) and of an encoded source for cross attention (True)."""
    memory = [b.temporary, *map(b.buffer, buffers.widths[1:])]

    def at(value: Value | None) -> Any:
        return None if value is None else memory[buffers.of[value]][:, : up(value.width)]

    for step in program.steps:
        X, out = at(step.X), at(step.out)
        match step:
            case Embed():
                b.embed(step, out, program.limit)
            case Norm():
                b.norm(step.norm, X, out)
            case Product() if len(step.maps) > 1:
                b.products(X, out, step.maps, step.norm)
            case Product(maps=maps, norm=norm, activation=activation, gate=gate, onto=onto):
                b.product(X, out, maps, norm=norm, activation=activation, gate=gate, add=onto is not None)
            case Attend():
                b.attend(step, X, out, caches[step.keys.crossed])
            case Store():
                b.store(step, X, caches[True])
            case Pick():
                b.pick(X, out)
            case _:
                raise AssertionError(step)
    return at(program.result)


class Plan:
    """Steps and their buffers, ready to run, for one batch at a time: the buffers are shared."""

    def __init__(self, b: Builder, threads: int, d_k: int) -> None:
        self.native, self.max_rows = b.native, b.max_rows
        self.steps = (c.Step * len(b.steps))(*b.steps)
        room = up(max(b.native.regard_scratch_bytes(d_k), 4 * b.widest, 4 * 2 * 8 * 256), 64)
        self.prepared = zeros(b.max_rows + c.FEW * threads, b.widest)
        self.partial, self.scratch = zeros(PARTIAL), zeros(threads, room, dtype=np.uint8)
        self.kept = (b.kept, b.matrices, b.steps)
        self.struct = c.Plan(
            n_steps=len(self.steps),
            max_rows=b.max_rows,
            threads=threads,
            widest=b.widest,
            steps=self.steps,
            temporary=address(b.temporary),
            temporary_stride=b.temporary.strides[0] // b.temporary.itemsize,
            prepared=address(self.prepared),
            partial=address(self.partial),
            partial_floats=PARTIAL,
            scratch=address(self.scratch),
            scratch_bytes=room,
        )

    def run(self, batch: c.Batch) -> None:
        if refused := self.native.regard_run(self.struct, batch):
            raise GenerationError(c.REFUSALS[refused])
