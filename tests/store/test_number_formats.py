"""Number formats against the `gguf` package, bit for bit."""

import tracemalloc
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from regard.errors import CheckpointError
from regard.store.number_formats import CHUNK, FORMATS, REPACKED, dequantize, quantize, repack

INTEGERS = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "F64": np.float64}
DIFFERENTIAL = [name for name in FORMATS if name not in INTEGERS]
WRITABLE = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]


def reference_numbers(raw: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])


def reference_bytes(x: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).view(np.uint8)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype == np.float32
    assert got.shape == want.shape
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


@pytest.mark.parametrize("name", FORMATS)
def test_sizes_are_those_of_ggml(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    form = FORMATS[name]
    assert (form.id, form.block_elements, form.block_bytes) == (kind.value, *gguf.GGML_QUANT_SIZES[kind])


@pytest.mark.parametrize("name", DIFFERENTIAL)
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 5), blocks=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_any_bytes_decode_as_the_reference_does(name: str, rows: int, blocks: int, seed: int) -> None:
    form = FORMATS[name]
    raw = np.random.default_rng(seed).integers(0, 256, (rows, blocks * form.block_bytes), dtype=np.uint8)
    got = dequantize(raw.reshape(-1), name, (rows, blocks * form.block_elements))
    assert_same_bits(got, reference_numbers(raw, name))


@pytest.mark.parametrize("name", DIFFERENTIAL)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_adversarial_blocks_decode_as_the_reference_does(name: str, data: st.DataObject) -> None:
    size = FORMATS[name].block_bytes
    raw = np.frombuffer(data.draw(st.binary(min_size=2 * size, max_size=2 * size)), np.uint8).reshape(1, -1)
    got = dequantize(raw, name, (1, 2 * FORMATS[name].block_elements))
    assert_same_bits(got, reference_numbers(raw, name))


numbers = st.floats(-6e4, 6e4, width=32) | st.sampled_from([0.0, -0.0, 0.5, -0.5, 127.0, 1.5, 2.5, 1e-39])
matrices = st.tuples(st.integers(1, 3), st.integers(1, 3)).flatmap(
    lambda size: arrays(np.float32, (size[0], size[1] * 32), elements=numbers)
)


@pytest.mark.parametrize("name", WRITABLE)
@settings(max_examples=50, deadline=None)
@given(x=matrices)
def test_numbers_are_written_as_the_reference_writes_them(name: str, x: np.ndarray) -> None:
    got = quantize(x, name)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, reference_bytes(x, name))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_infinity_and_nan_survive_in_plain_floats(name: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, -1.5], np.float32)
    np.testing.assert_array_equal(quantize(x, name), reference_bytes(x, name))
    np.testing.assert_array_equal(dequantize(quantize(x, name), name, (4,)), x)


@pytest.mark.parametrize("name", DIFFERENTIAL)
def test_a_tensor_of_several_chunks(name: str) -> None:
    form = FORMATS[name]
    rows = 2 * CHUNK // 512 + 3
    raw = np.random.default_rng(0).integers(0, 100, (rows, 512 // form.block_elements * form.block_bytes), np.uint8)
    assert_same_bits(dequantize(raw.reshape(-1), name, (rows, 512)), reference_numbers(raw, name))
    if name in WRITABLE:
        x = np.random.default_rng(1).standard_normal((rows, 512), np.float32)
        np.testing.assert_array_equal(quantize(x, name), reference_bytes(x, name))


@pytest.mark.parametrize(("name", "dtype"), INTEGERS.items())
def test_plain_integers_and_doubles(name: str, dtype: type) -> None:
    x: Any = np.array([[-3, 0, 100]], dtype)
    np.testing.assert_array_equal(dequantize(x.view(np.uint8), name, (1, 3)), np.array([[-3, 0, 100]], np.float32))


def test_float64_is_rounded_once() -> None:
    x = np.array([1 + 2**-11 + 2**-40])  # through float32 it would tie and round down
    assert dequantize(quantize(x, "F16"), "F16", (1,))[0] == 1 + 2**-10


@pytest.mark.parametrize(("name", "steps"), [("Q8_0", 127), ("Q4_0", 8), ("Q4_1", 15)])
def test_quantization_error_is_bounded(name: str, steps: int) -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (8, 64)).astype(np.float32)
    error = np.abs(dequantize(quantize(x, name), name, x.shape) - x).max()
    assert 0 < error < 2.2 / steps


def test_aligned_f32_is_not_copied() -> None:
    raw = np.arange(4, dtype=np.float32).view(np.uint8)
    assert np.shares_memory(dequantize(raw, "F32", (2, 2)), raw)
    shifted = np.concatenate([np.zeros(1, np.uint8), raw])[1:]
    assert dequantize(shifted, "F32", (4,)).flags.aligned
    np.testing.assert_array_equal(dequantize(shifted, "F32", (4,)), [0, 1, 2, 3])


def test_memory_beyond_the_result_is_small() -> None:
    raw = np.zeros((1 << 22) // 32 * 18, np.uint8)
    tracemalloc.start()
    try:
        out = dequantize(raw, "Q4_0", (1 << 10, 1 << 12))
        assert tracemalloc.get_traced_memory()[1] < out.nbytes + (6 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("x", "name", "says"),
    [
        (np.zeros(33), "Q8_0", "rows of 33 numbers"),
        (np.zeros((4, 16)), "Q4_0", "blocks of 32"),
        (np.zeros(256), "Q4_K", "can be read but not written"),
        (np.zeros(32), "Q9_9", "not one of"),
        (np.full(32, np.nan), "Q8_0", "NaN and infinity"),
        (np.full(32, -np.inf), "Q4_1", "NaN and infinity"),
        (np.array([1e6]), "F16", "1e\\+06 is too large"),
        (np.full(32, 1e9), "Q8_0", "too large for a 16-bit float"),
    ],
)
def test_what_cannot_be_written_is_refused(x: np.ndarray, name: str, says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        quantize(x, name)


def test_bytes_that_do_not_fit_the_shape_are_refused() -> None:
    with pytest.raises(CheckpointError, match="take 34 bytes, not 33"):
        dequantize(np.zeros(33, np.uint8), "Q8_0", (32,))


# ── other blocks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def blocks(name: str, seed: int, rows: int, count: int, smallest: float = 1e-6) -> np.ndarray:
    """Random integers under scales of many sizes, as (rows, bytes)."""
    random = np.random.default_rng(seed)
    form = FORMATS[name]
    made = random.integers(0, 256, (rows, count * form.block_bytes), dtype=np.uint8)
    view = made.view(form.layout)
    for field in ("d", "m", "dmin"):
        if field in (form.layout.names or ()):
            sizes = np.exp(random.uniform(np.log(smallest), np.log(8), view[field].shape))
            view[field] = sizes * (random.choice([-1, 1], view[field].shape) if field == "m" else 1)
    return made


@pytest.mark.parametrize("name", REPACKED)
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 4), count=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_repacked_blocks_are_as_near_as_stated(name: str, rows: int, count: int, seed: int) -> None:
    raw, form = blocks(name, seed, rows, count), FORMATS[name]
    shape = (rows, count * form.block_elements)
    new = repack(raw, name)
    assert new.shape == (rows, FORMATS[REPACKED[name][0]].nbytes((shape[1],)))
    w = dequantize(raw, name, shape).astype(np.float64).reshape(rows, -1, 32)
    moved = np.abs(dequantize(new, REPACKED[name][0], shape).reshape(w.shape) - w)
    if name == "Q5_0":
        assert (moved == 0).all()
    elif name == "Q4_K":
        largest, least = w.max(-1, keepdims=True), w.min(-1, keepdims=True)
        minimum = np.abs(least) + (largest - least)  # no integer of a block need be 0: a bound on its minimum
        scale = largest - least  # … and one on its scale
        assert (moved <= 2.0**-11 * (15 * scale + minimum) + 16 * 2.0**-25).all()
    else:
        assert (moved <= (1 / 254 + 2.0**-11) * np.abs(w).max(-1, keepdims=True) + 127 * 2.0**-25).all()


def test_the_scales_of_q4_k_are_rounded_and_its_integers_kept() -> None:
    """Against the format's own numbers: each weight within 2⁻¹¹ of 15 scales and a minimum."""
    raw = blocks("Q4_K", 5, 40, 2, smallest=1e-2)
    x = dequantize(raw, "Q4_K", (40, 512)).reshape(-1, 32)
    new = repack(raw, "Q4_K").reshape(-1).view(FORMATS["Q4_1"].layout)
    d, m = new["d"].astype(np.float64), new["m"].astype(np.float64)
    integers = np.concatenate([new["q"] & 15, new["q"] >> 4], 1)
    bound = 2.0**-11 * (15 * np.abs(d) + np.abs(m)) * (1 + 2.0**-10)
    assert (np.abs(integers * d + m - x) <= bound).all()
    assert np.abs(integers * d + m - x).max() > 0


@pytest.mark.parametrize("name", REPACKED)
def test_repacked_blocks_that_are_not_finite_stay_so(name: str) -> None:
    raw = blocks(name, 0, 2, 1)
    raw[1:].view(FORMATS[name].layout)["d"] = np.nan
    new = dequantize(repack(raw, name), REPACKED[name][0], (2, FORMATS[name].block_elements))
    assert np.isfinite(new[0]).all()
    assert np.isnan(new[1]).all()
    raw[1:].view(FORMATS[name].layout)["d"] = np.inf
    assert not np.isfinite(dequantize(repack(raw, name), REPACKED[name][0], new.shape)[1]).any()


def test_repacking_several_chunks() -> None:
    raw = blocks("Q6_K", 3, 3, CHUNK // 256 + 5)
    assert np.array_equal(repack(raw, "Q6_K")[1], repack(raw[1:2], "Q6_K")[0])
