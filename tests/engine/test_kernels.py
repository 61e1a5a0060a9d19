"""The C kernels against numpy, for odd sizes, every number format, both instruction sets and several threads."""

import ctypes
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.engine.huge_pages import zeros
from regard.engine.native import library as c
from regard.engine.native.library import library
from regard.engine.native_engine import BatchArrays
from regard.engine.packing import Arena, up
from regard.engine.plan import Builder, Plan, row_stride
from regard.engine.program import Map, Normed
from regard.engine.weights import Stored
from regard.model.module import ACTIVATIONS
from regard.nn.attention import attend
from regard.nn.norm import layer_norm, rms_norm
from regard.nn.operations import rotate
from regard.nn.position import Rotary
from regard.store.number_formats import dequantize, quantize

native: Any = library()
pytestmark = pytest.mark.skipif(native is None, reason="the native engine is not built here")
KERNELS = [name for name in ("portable", "avx2") if native is not None and native.regard_choose(name.encode())]
ROUNDED = ("Q8_0", "Q4_0", "Q4_1")


@pytest.fixture(autouse=True)
def _choose_again():
    yield
    native.regard_choose(None)


class Given:
    """Weights from a dictionary: matrices in whatever format the test says."""

    def __init__(self, format: str, **arrays: np.ndarray) -> None:
        self.format, self.arrays = format, arrays

    def canonical_name(self, name: str) -> str:
        return name

    def form(self, name: str) -> tuple[str, int, int]:
        return self.format, *self.arrays[name].shape

    def map(self, name: str) -> Map:
        bias = f"{name}.bias"
        return Map(name, bias if bias in self.arrays else None, *self.arrays[name].shape)

    def matrix(self, name: str, format: str) -> Stored:
        W = self.arrays[name]
        return Stored(format, quantize(W, format), W.shape[1])

    def vector(self, name: str) -> np.ndarray | None:
        return self.arrays.get(name)

    def exact(self, name: str) -> np.ndarray:
        """The numbers as the format stores them."""
        W = self.arrays[name]
        return dequantize(quantize(W, self.format).reshape(-1), self.format, W.shape).astype(np.float64)


WIDEST = 512  # results of a product that is added or gated


def plan_of(build: Any, weights: Any, rows: int, threads: int, d_k: int = 8) -> Plan:
    assert native is not None
    arena = Arena(native)
    builder = Builder(native, arena, weights, rows, WIDEST)
    build(builder)
    plan = Plan(builder, threads, d_k)
    arena.fill()
    plan.kept = (plan.kept, arena)  # type: ignore[assignment]
    return plan


def run(plan: Plan, rows: int) -> None:
    batch = BatchArrays(rows)
    batch.struct.rows = rows
    plan.run(batch.struct)


def rounded(X: np.ndarray) -> np.ndarray:
    """The input as the integer kernels quantize it: 15 bits in blocks of 32."""
    blocks = X.astype(np.float32).reshape(len(X), -1, 32)
    peak = np.abs(blocks).max(-1, keepdims=True)
    inverse = np.divide(np.float32(16256), peak, out=np.zeros_like(peak), where=peak > 1e-30)
    return (np.rint(blocks * inverse) * (peak / np.float32(16256)).astype(np.float64)).reshape(X.shape)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


shapes = st.tuples(st.integers(1, 45), st.integers(1, 40), st.integers(1, 12), st.sampled_from(range(3)))


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("format", c.FORMATS)
@given(shape=shapes, threads=st.integers(1, 3), bias=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_product(kernels, format, shape, threads, bias, seed):
    rows, outputs, depth, extra = shape
    columns = 32 * depth if format in ROUNDED else 25 * depth + extra
    X, W, b = random(seed, rows, columns), random(seed + 1, outputs, columns), random(seed + 2, outputs)
    native.regard_choose(kernels.encode())
    weights = Given(format, W=W, **({"W.bias": b} if bias else {}))
    made: dict[str, np.ndarray] = {}

    def build(builder):
        made["X"], made["Y"] = zeros(rows, columns), builder.buffer(outputs)
        builder.product(made["X"], made["Y"], [weights.map("W")])

    plan = plan_of(build, weights, rows, threads)
    made["X"][:] = X
    run(plan, rows)
    exact = weights.exact("W")
    seen = rounded(X) if format in ROUNDED else X.astype(np.float64)
    size = np.abs(seen) @ np.abs(exact).T + 1
    expected = seen @ exact.T + (b if bias else 0)
    assert (np.abs(made["Y"][:, :outputs] - expected) <= 2e-6 * size).all()
    if format in ROUNDED:  # the stated bound: half a step of each block's scale, for every weight
        step = np.repeat(np.abs(X).reshape(rows, -1, 32).max(-1) / 16256, 32, 1)
        whole = X.astype(np.float64) @ exact.T + (b if bias else 0)
        assert (np.abs(made["Y"][:, :outputs] - whole) <= step @ np.abs(exact).T / 2 + 2e-6 * size).all()


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("format", c.FORMATS)
def test_a_row_does_not_depend_on_the_others_nor_on_the_threads(kernels, format):
    native.regard_choose(kernels.encode())
    X, old = random(0, 199, 608), random(4, 199, 144)  # several pieces, several strips
    vectors = {"norm.weight": random(5, 608), "norm.bias": random(6, 608), "W.bias": random(7, 139)}
    weights = Given(format, W=random(1, 139, 608), g=random(2, 139, 608), **vectors)
    W, gate, norm = weights.map("W"), weights.map("g"), Normed("layer", 1e-5, 608, "norm.weight", 0.0, "norm.bias")
    results = []
    for rows, threads in ((199, 1), (199, 3), (131, 2), (38, 2), (17, 3), (16, 2), (7, 2), (4, 2), (1, 1)):
        made: list[np.ndarray] = []

        def build(builder, rows=rows, made=made):
            made += [zeros(rows, 608), builder.buffer(139), builder.buffer(139)]
            builder.product(made[0], made[1], [W], gate=gate, activation="silu")
            builder.product(made[0], made[2], [W], norm=norm, activation="gelu_tanh", add=True)

        plan = plan_of(build, weights, rows, threads)
        made[0][:], made[2][:] = X[:rows], old[:rows]
        run(plan, rows)
        results.append(np.concatenate(made[1:], 1))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0][: len(other)])


@pytest.mark.parametrize("width", [1, 16, 768, 1024, 50257])
def test_rows_of_a_buffer_do_not_share_cache_sets(width):
    assert row_stride(width) >= width
    assert row_stride(width) * 4 % 128 == 64  # an odd number of cache lines


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@given(n=st.integers(1, 70), rows=st.sampled_from([1, 3, 9]), seed=st.integers(0, 99), plus=st.sampled_from([0.0, 1.0]))
@settings(max_examples=15, deadline=None)
def test_norm_activation_and_residual(kernels, norm, n, rows, seed, plus):
    native.regard_choose(kernels.encode())
    X, W, R = random(seed, rows, n) * 3 + 1, random(seed + 1, 19, n), random(seed + 2, rows, up(19))
    gain, shift = random(seed + 3, n), random(seed + 4, n)
    weights = Given("F32", W=W, **{"norm.weight": gain, **({"norm.bias": shift} if norm == "layer" else {})})
    normed = Normed(norm, 1e-5, n, "norm.weight", plus, "norm.bias" if norm == "layer" else None)
    made: list[np.ndarray] = []

    def build(builder):
        made.extend([zeros(rows, n), builder.buffer(19)])
        builder.product(*made, [weights.map("W")], norm=normed, activation="gelu_tanh", add=True)

    plan = plan_of(build, weights, rows, 2)
    made[0][:], made[1][:] = X, R
    run(plan, rows)
    x, g = torch.from_numpy(X).double(), torch.from_numpy(gain).double() + plus
    exact = layer_norm(x, g, torch.from_numpy(shift).double(), 1e-5) if norm == "layer" else rms_norm(x, g, 1e-5)
    inner = exact @ torch.from_numpy(W).double().T
    expected = torch.from_numpy(R[:, :19]).double() + ACTIVATIONS["gelu_tanh"](inner)
    torch.testing.assert_close(torch.from_numpy(made[1][:, :19]).double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("activation", sorted(c.ACTIVATIONS.keys() - {"none"}))
def test_activations(kernels, activation):
    """Through a product with the identity, over the whole range."""
    native.regard_choose(kernels.encode())
    x = np.concatenate([np.linspace(-30, 30, 20001), [0.0, -0.0, 1e-30, -1e-8, 87.0, -87.0, 1e4, -1e4]])
    x = x.astype(np.float32)[:, None]
    made: list[np.ndarray] = []
    weights = Given("F32", W=np.ones((1, 1), np.float32))

    def build(builder):
        made.extend([zeros(*x.shape), builder.buffer(1)])
        builder.product(*made, [weights.map("W")], activation=activation)

    plan = plan_of(build, weights, len(x), 1)
    made[0][:] = x
    run(plan, len(x))
    expected = ACTIVATIONS[activation](torch.from_numpy(x).double()).numpy()
    assert (np.abs(made[1][:, :1] - expected) <= 4e-7 * np.maximum(1, np.abs(expected))).all()


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("format", c.FORMATS)
def test_packing_keeps_every_bit(kernels, format):
    """Every row looked up in the packed matrix is what the file's own row means, subnormal halves included."""
    native.regard_choose(kernels.encode())
    W = random(5, 21, 96) * np.float32(10.0) ** np.random.default_rng(6).integers(-9, 4, (21, 1)).astype(np.float32)
    weights, made = Given(format, W=W), list[np.ndarray]()

    def build(builder):
        made.append(builder.buffer(96))
        s = builder.step(c.EMBED, None, made[0], n=96)
        s.W = ctypes.pointer(builder.matrix(weights.map("W")))

    plan = plan_of(build, weights, 21, 2)
    rows = BatchArrays(21)
    rows.ids[:], rows.struct.rows = np.arange(21), 21
    plan.run(rows.struct)
    np.testing.assert_array_equal(made[0][:, :96], weights.exact("W").astype(np.float32))


# ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Attention:
    """One attention step over a KV cache of its own."""

    def __init__(
        self, heads: int, kv_heads: int, d_k: int, *, format: str, pairs: int, window: int, causal: bool = True
    ):
        assert native is not None
        self.sizes = heads, kv_heads, d_k
        self.layout = c.Cache(c.FORMATS.index(format), kv_heads, d_k, up(d_k), 2, 0)
        self.scale, self.format, self.pairs, self.window, self.causal = 0.3, format, pairs, window, causal

    def text(self, capacity: int) -> np.ndarray:
        return zeros(native.regard_cache_bytes(self.layout, capacity), dtype=np.uint8)

    def __call__(self, Q, K, V, starts, texts, capacity, threads, visible=None):
        """Q (rows, heads · d_k), K and V (rows, kv_heads · d_k); the positions and KV caches of the rows."""
        heads, kv_heads, d_k = self.sizes
        rows = len(Q)
        qkv, Z = zeros(rows, (heads + 2 * kv_heads) * d_k), zeros(rows, up(heads * d_k))
        qkv[:] = np.concatenate([Q, K, V], 1)

        def build(builder):
            s = builder.step(c.ATTEND, qkv, Z, heads=heads, layer=1, causal=self.causal, window=self.window)
            s.scale, s.rotary, s.cache = self.scale, self.pairs, ctypes.pointer(self.layout)
            s.K, s.V = qkv.ctypes.data + 4 * heads * d_k, qkv.ctypes.data + 4 * (heads + kv_heads) * d_k

        plan = plan_of(build, Given("F32"), rows, threads, d_k)
        batch = BatchArrays(rows)
        batch.positions[:], batch.caches[:] = starts, texts
        if visible is not None:
            batch.visible[:] = visible
        batch.struct.rows, batch.struct.capacity = rows, capacity
        tables = Rotary(2 * self.pairs)(np.arange(capacity))
        batch.struct.cosines, batch.struct.sines = (table.ctypes.data for table in tables)
        batch.struct.angles = len(tables[0])
        plan.run(batch.struct)
        return Z[:, : heads * d_k].copy()

    def rotated(self, X, heads):
        """Split into heads, (heads, N, d_k) in float64, and rotated by their positions."""
        x = torch.from_numpy(X).double().reshape(len(X), heads, -1).transpose(0, 1)
        return rotate(x, *map(torch.from_numpy, Rotary(2 * self.pairs)(np.arange(len(X))))) if self.pairs else x

    def reference(self, Q, K, V):
        """The definition, in float64, on keys and values (kv_heads, N, d_k)."""
        q, k, v = self.rotated(Q, self.sizes[0])[None], K[None], V[None]
        N = len(Q)
        i, j = torch.arange(N)[:, None], torch.arange(N)[None]
        visible = (j <= i) & (j > i - (self.window or N)) if self.causal else torch.ones(N, N, dtype=torch.bool)
        Z = attend(q, k, v, visible, scale=self.scale)
        return Z.transpose(1, 2).flatten(2)[0].numpy()

    def held(self, text, capacity, N):
        """The keys and values of N tokens as stored in a KV cache, layer 1: each (kv_heads, N, d_k), in float64."""
        _, heads, d_k = self.sizes
        width, blocks = up(d_k), -(-d_k // 32)
        K, V = text.reshape(2, 2, heads, -1)[1]
        if self.format != "Q8_0":
            kind = np.float32 if self.format == "F32" else np.float16
            K = K.view(kind).reshape(heads, capacity // 8, width, 8)
            V = V.view(kind).reshape(heads, capacity, width)
        else:
            K, V = K.reshape(heads, capacity // 8, -1), V.reshape(heads, capacity, -1)
            steps = (
                K[..., 8 * width :].copy().view(np.float32).reshape(heads, -1, blocks, 8).repeat(32, 2)[:, :, :width]
            )
            K = K[..., : 8 * width].view(np.int8).reshape(heads, -1, width, 8) * steps.astype(np.float64)
            steps = V[..., width:].copy().view(np.float32).repeat(32, 2)[..., :width]
            V = V[..., :width].view(np.int8) * steps.astype(np.float64)
        K = K.swapaxes(2, 3).reshape(heads, capacity, width)
        return tuple(torch.from_numpy(x[:, :N, :d_k].astype(np.float64)) for x in (K, V))


def half_steps(x, format):
    """How far rounding may move a number: half a unit in the last place, or half a step of the scale of its block of 32."""
    size = x.abs()
    if format != "Q8_0":
        return size * 2.0 ** (-24 if format == "F32" else -11) + 2.0**-25
    peaks = [block.amax(-1, keepdim=True).expand_as(block) for block in size.split(32, -1)]
    return torch.cat(peaks, -1) / 254


@pytest.mark.parametrize("kernels", KERNELS)
@given(
    N=st.one_of(st.integers(1, 40), st.sampled_from([127, 128, 129, 300])),
    sizes=st.sampled_from(
        [(1, 1, 8), (4, 2, 6), (9, 3, 16), (6, 1, 10), (5, 5, 3), (60, 1, 4), (3, 1, 64), (4, 2, 50)]
    ),
    format=st.sampled_from(["F32", "F16", "Q8_0"]),
    rotated=st.sampled_from([0.0, 0.5, 1.0]),
    window=st.sampled_from([0, 0, 5, 140]),
    threads=st.integers(1, 3),
)
@settings(max_examples=20, deadline=None)
def test_attention_whole_and_token_by_token(kernels, N, sizes, format, rotated, window, threads):
    native.regard_choose(kernels.encode())
    heads, kv_heads, d_k = sizes
    attention = Attention(*sizes, format=format, pairs=int(rotated * d_k) // 2, window=window)
    Q, K, V = random(N, N, heads * d_k), random(N + 1, N, kv_heads * d_k), random(N + 2, N, kv_heads * d_k)
    capacity = up(N, 32)
    text = attention.text(capacity)
    Z = attention(Q, K, V, range(N), text.ctypes.data, capacity, threads)
    held = attention.held(text, capacity, N)
    exact = attention.rotated(K, kv_heads), torch.from_numpy(V).double().reshape(N, kv_heads, d_k).transpose(0, 1)
    for ours, true in zip(held, exact, strict=True):
        assert ((ours - true).abs() <= half_steps(true, format) + 2e-6).all()  # 2e-6: turning, in float32
    np.testing.assert_allclose(Z, attention.reference(Q, *held), rtol=0, atol=2e-5)
    again = attention.text(capacity)
    tail = max(0, N - 3)
    if tail:
        first = attention(Q[:tail], K[:tail], V[:tail], range(tail), again.ctypes.data, capacity, threads)
        np.testing.assert_array_equal(first, Z[:tail])
    for i in range(tail, N):
        row = slice(i, i + 1)
        one = attention(Q[row], K[row], V[row], [i], again.ctypes.data, capacity, threads)
        np.testing.assert_array_equal(one, Z[row])
    np.testing.assert_array_equal(text, again)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("format", ["F32", "F16", "Q8_0"])
def test_attention_without_a_mask(kernels, format):
    """Two sequences of an encoder in one batch."""
    native.regard_choose(kernels.encode())
    attention = Attention(4, 4, 8, format=format, pairs=0, window=0, causal=False)
    Q, K, V = (random(i, 13, 32) for i in range(3))
    texts = [attention.text(32) for _ in "12"]
    pointers = np.repeat([t.ctypes.data for t in texts], [9, 4])
    positions = [*range(9), *range(4)]
    Z = attention(Q, K, V, positions, pointers, 32, 2, visible=np.repeat([9, 4], [9, 4]))
    for part, text in zip((slice(0, 9), slice(9, 13)), texts, strict=True):
        held = attention.held(text, 32, part.stop - part.start)
        np.testing.assert_allclose(Z[part], attention.reference(Q[part], *held), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("format", ["F32", "F16", "Q8_0"])
@given(sizes=st.sampled_from([(4, 2, 6), (9, 3, 16), (3, 1, 64), (4, 2, 50)]), length=st.integers(1, 40))
@settings(max_examples=10, deadline=None)
def test_a_copied_kv_cache_prefix_equals_a_computed_one(kernels, format, sizes, length):
    """Into a KV cache of another capacity, whose later tokens are overwritten."""
    native.regard_choose(kernels.encode())
    heads, kv_heads, d_k = sizes
    attention = Attention(*sizes, format=format, pairs=d_k // 2, window=0)
    Q, K, V = random(1, 41, heads * d_k), random(2, 41, kv_heads * d_k), random(3, 41, kv_heads * d_k)
    first, second = attention.text(64), attention.text(96)
    second[:] = 1
    attention(Q, K, V, range(41), first.ctypes.data, 64, 2)
    native.regard_fork(attention.layout, second.ctypes.data, 96, first.ctypes.data, 64, length)
    for ours, true in zip(attention.held(second, 96, length), attention.held(first, 64, length), strict=True):
        assert torch.equal(ours, true)
    row = slice(length, length + 1)
    one = attention(Q[row], K[row], V[row], [length], second.ctypes.data, 96, 2)
    assert np.array_equal(one, attention(Q[row], K[row], V[row], [length], first.ctypes.data, 64, 1))


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_damaged_number_is_not_rounded_into_a_plausible_one(kernels):
    native.regard_choose(kernels.encode())
    for damage in (math.nan, math.inf):
        attention = Attention(2, 1, 40, format="Q8_0", pairs=0, window=0)
        Q, K, V = random(1, 3, 80), random(2, 3, 40), random(3, 3, 40)
        K[1, 37] = V[1, 2] = damage
        text = attention.text(32)
        Z = attention(Q, K, V, range(3), text.ctypes.data, 32, 1)
        with np.errstate(invalid="ignore"):  # ∞ · 0
            held = attention.held(text, 32, 3)
        keys, values = (x[0].isnan().any(1).tolist() for x in held)
        assert keys == values == [False, True, False]
        assert np.isnan(Z[1:]).any(1).all()


def softmax_of_what_is_seen(attention, Q, K, V):
    """Each query by itself over the keys and values (kv_heads, N, d_k) that it attends to, in float64."""
    heads, kv_heads, d_k = attention.sizes
    Z = np.empty((len(Q), heads, d_k))
    for i, h in np.ndindex(len(Q), heads):
        seen, g = slice(max(0, i + 1 - (attention.window or i + 1)), i + 1), h * kv_heads // heads
        s = (K[g, seen] * Q[i].reshape(heads, d_k)[h]).sum(1) * attention.scale
        e = np.exp(s - s.max())
        Z[i, h] = (e[:, None] / e.sum() * V[g, seen]).sum(0)
    return Z.reshape(len(Q), -1)


DAMAGES = {  # token, and what it holds in its first number; tokens 0…127 are a chunk of their own
    "a key of NaN": ("K", slice(150, 151), math.nan),
    "a key of ∞": ("K", slice(150, 151), math.inf),
    "a value of NaN": ("V", slice(150, 151), math.nan),
    "a value of -∞": ("V", slice(13, 14), -math.inf),
    "keys of -∞": ("K", slice(0, 130), -math.inf),
}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("format", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("window", [0, 50])
def test_nan_reaches_every_query_that_attends_to_it_and_no_other(kernels, format, damage, window):
    """In slots whose last tokens were all NaN; with grouped heads; as a prompt and token by token."""
    native.regard_choose(kernels.encode())
    attention = Attention(4, 2, 40, format=format, pairs=0, window=window)
    N, capacity = 200, 256
    given = {"Q": np.abs(random(1, N, 160)), "K": random(2, N, 80), "V": random(3, N, 80)}
    text, old = attention.text(capacity), np.full((capacity, 80), math.nan, np.float32)
    attention(random(4, capacity, 160), old, old, range(capacity), text.ctypes.data, capacity, 2)
    where, tokens, number = DAMAGES[damage]
    given[where][tokens, 0] = number
    if damage == "keys of -∞":
        given["V"][3, 39] = math.nan  # weighs nothing, but 0 · NaN is NaN
    Z = attention(given["Q"], given["K"], given["V"], range(N), text.ctypes.data, capacity, 2)
    with np.errstate(invalid="ignore"):
        K, V = (x.numpy() for x in attention.held(text, capacity, N))
        expected = softmax_of_what_is_seen(attention, given["Q"], K, V)
    assert 0 < np.isfinite(expected).sum() < expected.size
    np.testing.assert_allclose(Z, expected, rtol=0, atol=2e-5)
    for i in (12, 13, 62, 63, 127, 128, 130, 149, 150, 151, N - 1):  # the tokens after it are still in their slots
        row = slice(i, i + 1)
        Q_i, K_i, V_i = (x[row] for x in given.values())
        one = attention(Q_i, K_i, V_i, [i], text.ctypes.data, capacity, 2)
        np.testing.assert_array_equal(one, Z[row])


@pytest.mark.parametrize("kernels", KERNELS)
@given(rows=st.integers(1, 7), n=st.integers(1, 3000), k=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_top_k_and_log_sum_exp(kernels, rows, n, k, seed):
    native.regard_choose(kernels.encode())
    x, k = np.round(random(seed, rows, n + 3) * 4, 1), min(k, n)  # ties; rows lie apart
    x[-1, : n // 3] = -math.inf
    sizes = x.ctypes.data, rows, n + 3, n
    expected = np.argsort(-x[:, :n], axis=1, kind="stable")[:, :k]  # best first, equal ones by rising place
    sums = []
    for threads in (1, 2, 3, 9):
        ids, values = np.zeros((rows, k), np.int64), np.zeros((rows, k), np.float32)
        sums.append(np.zeros(rows, np.float32))
        assert native.regard_ranked(*sizes, k, ids.ctypes.data, values.ctypes.data, threads) == 0
        assert (ids == expected).all()
        assert (values == np.take_along_axis(x, expected, 1)).all()
        native.regard_log_totals(*sizes, sums[-1].ctypes.data, threads)
        assert (sums[-1] == sums[0]).all()
    assert sums[0] == pytest.approx(np.log(np.exp(x[:, :n].astype(np.float64)).sum(1)), abs=1e-6, rel=1e-6)
    x[0, n // 2] = math.nan
    for threads in (1, 2):
        native.regard_log_totals(*sizes, sums[0].ctypes.data, threads)
        assert np.isnan(sums[0]).tolist() == [True] + [False] * (rows - 1)
        assert native.regard_ranked(*sizes, k, ids.ctypes.data, values.ctypes.data, threads) == 1


@pytest.mark.parametrize("format", ROUNDED)
def test_nan_in_is_nan_out(format):
    """A damaged input must not be rounded into a plausible number."""
    X, weights, made = random(0, 2, 64), Given(format, W=random(1, 8, 64)), list[np.ndarray]()
    X[1, 40] = math.nan

    def build(builder):
        made.extend([zeros(2, 64), builder.buffer(8)])
        builder.product(*made, [weights.map("W")])

    plan = plan_of(build, weights, 2, 1)
    made[0][:] = X
    run(plan, 2)
    assert np.isfinite(made[1][0]).all()
    assert np.isnan(made[1][1]).all()
