"""A spec and its weights become a flat list of steps over preallocated buffers: what one call into C runs.

A step is a product (with the norm before it and the bias, activation, gate or residual after it), an attention over the
cache, or a small thing done row by row. `Plan.run` takes a batch of rows, each a token of some text, through all of them.
"""

import ctypes
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.native import library as c
from regard.engine.packing import Arena, up
from regard.engine.pages import zeros
from regard.engine.rank import Floats
from regard.engine.weights import Weights
from regard.errors import GenerationError
from regard.model.frequency import sinusoids
from regard.model.spec import Spec, StackSpec

MAX_ROWS = 256  # tokens that go through together: with twice as many 2 % faster at most, and twice the buffers
PARTIAL = 1 << 21  # floats for attention that is spread over threads
LINE = 16  # floats of a cache line


def address(array: NDArray | None) -> int | None:
    return None if array is None else array.ctypes.data


def apart(width: int) -> int:
    """Floats from one row to the next: an odd number of cache lines. Rows a multiple of 4096 bytes apart would share a few
    places of the caches and drive each other out of them."""
    return LINE * (up(width, LINE) // LINE | 1)


class Builder:
    """Collects steps, the matrices they need and the buffers they work on."""

    def __init__(self, native: ctypes.CDLL, arena: Arena, weights: Weights, spec: Spec, max_rows: int) -> None:
        self.native, self.arena, self.weights, self.spec, self.max_rows = native, arena, weights, spec, max_rows
        self.read_names = set[str]()  # of the parameters that steps use
        self.steps: list[c.Step] = []
        self.kept: list[Any] = []  # what steps point at
        self.widest = c.LANES  # columns of products' inputs
        self.matrices: dict[tuple[str, ...], c.Matrix] = {}
        self.selected = False
        # Every layer uses the same two: queries, keys and values lie on the left, what attention makes of them or an MLP's
        # inner numbers on the right, and on the left again whatever a product adds or gates with.
        self.left, self.right = (
            self.buffer(max(widths)) for widths in zip(*map(self.widths, spec.stacks.values()), strict=True)
        )

    def widths(self, stack: StackSpec) -> tuple[int, int]:
        """Of what lies on the left and on the right."""
        a, d_ff = stack.attention, stack.mlp.d_ff
        return max((a.heads + 2 * a.kv_heads) * a.d_k, d_ff, self.spec.d), max(a.heads * a.d_k, d_ff)

    # ── what steps point at ──────────────────────────────────────────────────────────────────────────────────────────

    def buffer(self, width: int) -> Floats:
        return self.keep(zeros(self.max_rows, apart(width))[:, : up(width)])

    def keep(self, array: Floats) -> Floats:
        self.kept.append(array)
        return array

    def read_vector(self, name: str) -> Floats | None:
        self.read_names.add(self.weights.one_name(name))
        return self.weights.vector(name)

    def vector(self, *names: str) -> Floats | None:
        """Vectors end to end, filled up with zeros to whole groups; None if there are none."""
        parts = [self.read_vector(name) for name in names]
        if all(part is None for part in parts):
            return None
        whole = np.concatenate([part for part in parts if part is not None])
        padded = zeros(up(len(whole)))
        padded[: len(whole)] = whole
        return self.keep(padded)

    def matrix(self, *names: str, format: str | None = None) -> c.Matrix:
        """One matrix, or several of the same width below each other; in float32 if their formats differ."""
        key = tuple(self.weights.one_name(name) for name in names)
        self.read_names.update(key)
        if key not in self.matrices:
            forms = [self.weights.form(name) for name in names]
            chosen = format or self.common(*names)
            rows, columns = sum(rows for _, rows, _ in forms), forms[0][2]
            self.matrices[key] = self.arena.add(
                chosen, rows, columns, lambda: [self.weights.matrix(name, chosen) for name in names]
            )
        W = self.matrices[key]
        self.widest = max(self.widest, up(W.columns))
        return W

    def common(self, *names: str) -> str:
        formats = {self.weights.form(name)[0] for name in names}
        return formats.pop() if len(formats) == 1 else "F32"

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, op: int, X: Floats | None, out: Floats | None, **values: Any) -> c.Step:
        s = c.Step(op=op, selected=self.selected, scale=1.0, **values)
        if X is not None:
            s.input, s.in_stride = address(X), X.strides[0] // X.itemsize
        if out is not None:
            s.out, s.out_stride = address(out), out.strides[0] // out.itemsize
        self.steps.append(s)
        return s

    def normed(self, s: c.Step, path: str, stack: StackSpec) -> None:
        s.norm, s.eps = c.NORMS[stack.norm], stack.eps
        s.gain, s.shift = address(self.vector(f"{path}.weight")), address(self.vector(f"{path}.bias"))

    def norm(self, path: str, X: Floats, stack: StackSpec) -> None:
        self.normed(self.step(c.NORM, X, X, n=self.spec.d), path, stack)

    def product(
        self,
        X: Floats,
        out: Floats | None,
        *paths: str,
        norm: str | None = None,
        stack: StackSpec | None = None,
        activation: str = "none",
        gate: str | None = None,
        add: bool = False,
        column: int = 0,
    ) -> c.Step:
        """out = or += act(norm(X) Wᵀ + b), from a column of out on; with a gate, act(gate) ⊙ product."""
        s = self.step(c.PRODUCT, X, out, activation=c.ACTIVATIONS[activation], add=add)
        if out is not None:
            s.out = out.ctypes.data + 4 * column
        names = [f"{path}.weight" for path in paths]
        format = self.common(*names, *([f"{gate}.weight"] if gate else []))  # both read the same input
        s.W = ctypes.pointer(self.matrix(*names, format=format))
        s.bias = address(self.vector(*(f"{path}.bias" for path in paths)))
        if add or gate is not None:
            assert X.ctypes.data != self.left.ctypes.data
            assert s.W.contents.rows <= self.left.shape[1]
        if gate is not None:
            s.gate = ctypes.pointer(self.matrix(f"{gate}.weight", format=format))
            s.gate_bias = address(self.vector(f"{gate}.bias"))
        if norm is not None:
            assert stack is not None
            self.normed(s, norm, stack)
        return s

    def products(self, X: Floats, out: Floats, *paths: str, norm: str | None = None, stack: StackSpec) -> None:
        """Products of one input side by side: one step, or one for each stretch of them in the same number format."""
        forms = {path: self.weights.form(f"{path}.weight") for path in paths}
        if any(rows % c.LANES for _, rows, _ in forms.values()):  # a step fills whole groups of rows
            self.product(X, out, *paths, norm=norm, stack=stack)
            return
        column = 0
        for _, stretch in groupby(paths, key=lambda path: forms[path][0]):
            together = list(stretch)
            self.product(X, out, *together, norm=norm, stack=stack, column=column)
            column += sum(forms[path][1] for path in together)

    def pick(self, X: Floats) -> Floats:
        """The wanted rows, together; from here on only they matter."""
        out = self.buffer(X.shape[1])
        self.selected = True
        self.step(c.PICK, X, out, n=X.shape[1])
        return out

    # ── parts of a network ───────────────────────────────────────────────────────────────────────────────────────────

    def embed(self, path: str, stack: StackSpec) -> Floats:
        X = self.buffer(self.spec.d)
        s = self.step(c.EMBED, None, X, n=self.spec.d)
        s.scale, s.W = stack.embed_scale, ctypes.pointer(self.matrix(f"{path}.tokens.weight"))
        if (table := self.position_table(path, stack)) is not None:
            s.table, s.table_rows = address(table), len(table)
        if stack.embed_norm:
            self.norm(f"{path}.norm", X, stack)
        return X

    def position_table(self, path: str, stack: StackSpec) -> Floats | None:
        """A vector for every position, with that of the first token type where there are types."""
        p, d = stack.positions, self.spec.d
        if p.kind == "learned":
            learned = self.read_vector(f"{path}.positions.weight")
            assert learned is not None
            table = learned[p.offset : p.offset + p.limit]
        elif p.kind == "sinusoidal":
            table = sinusoids(d, p)
        elif stack.n_types:
            table = np.zeros((p.limit, d), np.float32)
        else:
            return None
        if stack.n_types:
            types = self.read_vector(f"{path}.types.weight")
            assert types is not None
            table = table + types[0]
        return self.keep(np.ascontiguousarray(table, np.float32))

    def attention(self, path: str, X: Floats, layer: int, stack: StackSpec, kept: c.Cache, causal: bool) -> Floats:
        """Z of self-attention, heads side by side. X is normed before if the wiring says so."""
        a = stack.attention
        wide, narrow = a.heads * a.d_k, a.kv_heads * a.d_k
        norm = f"{path}.norm_1" if stack.wiring == "pre" else None
        QKV, Z = self.left[:, : up(wide + 2 * narrow)], self.right[:, : up(wide)]
        self.products(X, QKV, *(f"{path}.attention.W_{x}" for x in "qkv"), norm=norm, stack=stack)
        s = self.attend(QKV, Z, layer, stack, kept, causal=causal, window=stack.window(layer) or 0)
        s.rotary = stack.positions.kind == "rotary"
        s.K, s.V = QKV.ctypes.data + 4 * wide, QKV.ctypes.data + 4 * (wide + narrow)
        return Z

    def attend(self, Q: Floats, Z: Floats, layer: int, stack: StackSpec, kept: c.Cache, **values: Any) -> c.Step:
        a = stack.attention
        s = self.step(c.ATTEND, Q, Z, heads=a.heads, layer=layer if kept.layers > 1 else 0, **values)
        s.scale = (a.d_k**-0.5 if a.scaled else 1.0) / (layer + 1 if a.scaled_by_layer else 1)
        s.cache = ctypes.pointer(kept)
        return s

    def cross(self, path: str, X: Floats, layer: int, stack: StackSpec, kept: c.Cache) -> None:
        norm = f"{path}.norm_cross" if stack.wiring == "pre" else None
        wide = stack.attention.heads * stack.attention.d_k
        Q, Z = self.left[:, : up(wide)], self.right[:, : up(wide)]
        self.product(X, Q, f"{path}.cross.W_q", norm=norm, stack=stack)
        self.attend(Q, Z, layer, stack, kept, cross=True)
        self.product(Z, X, f"{path}.cross.W_o", add=True)
        if stack.wiring == "post":
            self.norm(f"{path}.norm_cross", X, stack)

    def remember(self, path: str, memory: Floats, layer: int, stack: StackSpec, kept: c.Cache) -> None:
        """Keys and values of an encoder's output for one layer of cross attention."""
        narrow = stack.attention.kv_heads * stack.attention.d_k
        KV = self.left[:, : up(2 * narrow)]
        self.products(memory, KV, f"{path}.W_k", f"{path}.W_v", stack=stack)
        s = self.step(c.STORE, KV, None, layer=layer, cross=True)
        s.K, s.V, s.cache = KV.ctypes.data, KV.ctypes.data + 4 * narrow, ctypes.pointer(kept)

    def mlp(self, path: str, X: Floats, stack: StackSpec) -> None:
        norm = f"{path}.norm_2" if stack.wiring == "pre" else None
        H, act, gate = self.right[:, : up(stack.mlp.d_ff)], stack.mlp.activation, None
        if stack.mlp.gated:
            gate = f"{path}.mlp.gate"
        self.product(X, H, f"{path}.mlp.up", norm=norm, stack=stack, activation=act, gate=gate)
        self.product(H, X, f"{path}.mlp.down", add=True)
        if stack.wiring == "post":
            self.norm(f"{path}.norm_2", X, stack)

    def block(
        self,
        path: str,
        X: Floats,
        layer: int,
        stack: StackSpec,
        own: c.Cache,
        crossed: c.Cache | None,
        last: bool = False,
    ) -> Floats:
        """`last`: of what follows only the wanted rows matter."""
        causal = crossed is not None or self.spec.kind == "decoder"
        Z = self.attention(path, X, layer, stack, own, causal)
        if last:
            X, Z = self.pick(X), self.pick(Z)
        self.product(Z, X, f"{path}.attention.W_o", add=True)
        if stack.wiring == "post":
            self.norm(f"{path}.norm_1", X, stack)
        if crossed is not None:
            self.cross(path, X, layer, stack, crossed)
        self.mlp(path, X, stack)
        return X


class Plan:
    """Steps and their buffers, ready to run. One batch at a time: the buffers are shared."""

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
            temporary=address(b.left),
            temporary_stride=b.left.strides[0] // b.left.itemsize,
            prepared=address(self.prepared),
            partial=address(self.partial),
            partial_floats=PARTIAL,
            scratch=address(self.scratch),
            scratch_bytes=room,
        )

    def run(self, batch: c.Batch) -> None:
        if refused := self.native.regard_run(self.struct, batch):
            raise GenerationError(c.REFUSALS[refused])
