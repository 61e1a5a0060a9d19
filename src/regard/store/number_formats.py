"""Number formats: quantize and dequantize, float32 ⇄ the block formats of GGUF (Q8_0, Q4_K, …).

In: the bytes of a tensor and the name of its format. Out: its numbers; and back. In a block format a tensor's rows are
divided into blocks of 32 or 256 numbers, and each block stores small integers with its own scale (and perhaps minimum).
Each format is one row of `FORMATS`: its layout in bytes, how to decode a block and, where writing is supported, how to
encode one. All arithmetic is float32 in the order ggml's reference defines, so results agree bit for bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

CHUNK = 1 << 18  # numbers converted at a time, so that temporaries fit in the processor's cache


@dataclass(frozen=True)
class Format:
    """One number format; `decode` maps (n,) blocks to (n, block_elements) numbers, `encode` is its inverse."""

    name: str
    id: int
    block_elements: int
    layout: np.dtype[Any]
    decode: Callable[[Array], Array]
    encode: Callable[[Array], Array] | None = None

    @property
    def block_bytes(self) -> int:
        return self.layout.itemsize

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """The size of a tensor of this shape; its rows must be whole blocks."""
        row = shape[-1] if shape else 1
        if row % self.block_elements:
            raise CheckpointError(
                f"rows of {row} numbers cannot be cut into {self.name} blocks of {self.block_elements}"
            )
        return math.prod(shape) // self.block_elements * self.block_bytes


def named_format(name: str) -> Format:
    if name not in FORMATS:
        raise CheckpointError(f"number format {name!r} is not one of {', '.join(FORMATS)}")
    return FORMATS[name]


def dequantize(raw: Bytes, format: str, shape: tuple[int, ...]) -> Floats:
    """The numbers in `raw` as float32, in `shape`. Aligned F32 is returned as a view, not a copy."""
    form = named_format(format)
    if raw.size != form.nbytes(shape):
        raise CheckpointError(f"{form.name} numbers of shape {shape} take {form.nbytes(shape)} bytes, not {raw.size}")
    blocks = np.ascontiguousarray(raw).reshape(-1).view(form.layout)
    if form.name == "F32" and blocks.flags.aligned:
        return blocks.reshape(shape)
    out = np.empty((len(blocks), form.block_elements), np.float32)
    with np.errstate(all="ignore"):  # a damaged scale may be NaN or infinite: the caller reports it
        for part in _chunks(len(blocks), form.block_elements):
            out[part] = form.decode(blocks[part]).reshape(-1, form.block_elements)
    return out.reshape(shape)


def quantize(x: Array, format: str) -> Bytes:
    """`x` (…, row) encoded in the format, as (…, bytes of a row)."""
    form = named_format(format)
    if form.encode is None:
        writable = ", ".join(name for name, other in FORMATS.items() if other.encode)
        raise CheckpointError(f"{form.name} can be read but not written; choose one of {writable}")
    form.nbytes(x.shape)
    blocks = np.ascontiguousarray(x).reshape(-1, form.block_elements)
    out = np.empty(len(blocks), form.layout)
    with np.errstate(all="ignore"):
        for part in _chunks(len(blocks), form.block_elements):
            out[part] = form.encode(blocks[part]).reshape(-1)
    row = x.shape[-1] // form.block_elements * form.block_bytes if x.ndim else form.block_bytes
    return out.view(np.uint8).reshape(*x.shape[:-1], row)


def _chunks(blocks: int, elements: int) -> list[slice]:
    step = CHUNK // elements
    return [slice(start, start + step) for start in range(0, blocks, step)]


# ── the blocks: d a scale, m or dmin a minimum, q the low bits and high the rest of the integers ──────────────────────

Q8_0 = np.dtype([("d", "<f2", (1,)), ("q", "i1", 32)])
Q4_0 = np.dtype([("d", "<f2", (1,)), ("q", "u1", 16)])
Q4_1 = np.dtype([("d", "<f2", (1,)), ("m", "<f2", (1,)), ("q", "u1", 16)])
Q5_0 = np.dtype([("d", "<f2", (1,)), ("high", "u1", 4), ("q", "u1", 16)])
Q5_1 = np.dtype([("d", "<f2", (1,)), ("m", "<f2", (1,)), ("high", "u1", 4), ("q", "u1", 16)])
Q2_K = np.dtype([("scales", "u1", 16), ("q", "u1", 64), ("d", "<f2", (1,)), ("dmin", "<f2", (1,))])
Q3_K = np.dtype([("high", "u1", 32), ("q", "u1", 64), ("scales", "u1", 12), ("d", "<f2", (1,))])
Q4_K = np.dtype([("d", "<f2", (1,)), ("dmin", "<f2", (1,)), ("scales", "u1", 12), ("q", "u1", 128)])
Q5_K = np.dtype([("d", "<f2", (1,)), ("dmin", "<f2", (1,)), ("scales", "u1", 12), ("high", "u1", 32), ("q", "u1", 128)])
Q6_K = np.dtype([("q", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("d", "<f2", (1,))])


# ── decode: blocks → numbers ─────────────────────────────────────────────────────────────────────────────────────────


def _fields(packed: Bytes, bits: int, run: int) -> Bytes:
    """Unpack integers of `bits` bits. Each run of bytes yields the lowest field of all its bytes first, then the next.

    (n, bytes) → (n, bytes · 8/bits)
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)  # (n, runs, 8/bits, run)
    return parts.reshape(len(packed), -1)


def _float(x: Array) -> Floats:
    return x.astype(np.float32)


def _scaled(q: Array, scale: Floats, minimum: Floats | None = None) -> Floats:
    """q · scale − minimum, where each of the (n, g) scales covers an equal share of the (n, elements) integers."""
    values = _float(q).reshape(*scale.shape, -1)  # (n, g, elements/g)
    values *= scale[..., None]
    if minimum is not None:
        values -= minimum[..., None]
    return values


def _decode_q8_0(b: Array) -> Floats:
    return _float(b["q"]) * _float(b["d"])


def _decode_q4_0(b: Array) -> Floats:
    return (_float(_fields(b["q"], 4, 16)) - 8) * _float(b["d"])


def _decode_q4_1(b: Array) -> Floats:
    return _float(_fields(b["q"], 4, 16)) * _float(b["d"]) + _float(b["m"])


def _five_bits(b: Array) -> Floats:
    """5-bit integers: the fifth bit of number i is bit i of the four bytes of `high`."""
    return _float(_fields(b["q"], 4, 16) | np.unpackbits(b["high"], axis=1, bitorder="little") << 4)


def _decode_q5_0(b: Array) -> Floats:
    return (_five_bits(b) - 16) * _float(b["d"])


def _decode_q5_1(b: Array) -> Floats:
    return _five_bits(b) * _float(b["d"]) + _float(b["m"])


def _decode_q2_k(b: Array) -> Floats:
    scale = _float(b["d"]) * (b["scales"] & 15)  # (n, 16)
    minimum = _float(b["dmin"]) * (b["scales"] >> 4)
    return _scaled(_fields(b["q"], 2, 32), scale, minimum)


def _decode_q3_k(b: Array) -> Floats:
    six_bits = _fields(b["scales"][:, :8], 4, 8) | _fields(b["scales"][:, 8:], 2, 4) << 4  # (n, 16)
    q = _fields(b["q"], 2, 32) | _fields(b["high"], 1, 32) << 2
    return _scaled(_float(q) - 4, _float(b["d"]) * (_float(six_bits) - 32))


def _k_scales(b: Array) -> tuple[Floats, Floats]:
    """Eight scales and eight minima of six bits in twelve bytes, times the block's own: (n, 8) each.

    Bytes 0-3 and 4-7 contain the first four of each; their top two bits, with a nibble of bytes 8-11, the last four.
    """
    first, second, third = b["scales"][:, :4], b["scales"][:, 4:8], b["scales"][:, 8:]
    scale = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minimum = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return _float(b["d"]) * scale, _float(b["dmin"]) * minimum


def _decode_q4_k(b: Array) -> Floats:
    return _scaled(_fields(b["q"], 4, 32), *_k_scales(b))


def _decode_q5_k(b: Array) -> Floats:
    return _scaled(_fields(b["q"], 4, 32) | _fields(b["high"], 1, 32) << 4, *_k_scales(b))


def _decode_q6_k(b: Array) -> Floats:
    q = _fields(b["q"], 4, 64) | _fields(b["high"], 2, 32) << 4
    return _scaled(_float(q) - 32, _float(b["d"]) * b["scales"])


def _decode_bf16(b: Array) -> Floats:
    return (b.astype(np.uint32) << 16).view(np.float32)


# ── encode: numbers → blocks ─────────────────────────────────────────────────────────────────────────────────────────


def _half(x: Array) -> Array:
    half = x.astype("<f2")
    if (np.isinf(half) & np.isfinite(x)).any():
        raise CheckpointError(f"{np.abs(x).max():g} is too large for a 16-bit float; write it as F32 or BF16")
    return half


def _finite(x: Array) -> Floats:
    if not np.isfinite(x).all():
        raise CheckpointError("NaN and infinity cannot be written in blocks of integers; write F32, F16 or BF16")
    return x.astype(np.float32, copy=False)


def _inverse(d: Floats) -> Floats:
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _encode_bf16(x: Array) -> Array:
    bits = x.astype("<f4", copy=False).view(np.uint32)
    to_nearest_even = bits + (0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 64, to_nearest_even).astype("<u2")


def _encode_q8_0(x: Array) -> Array:
    x = _finite(x)
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    y = x * _inverse(d)
    whole = np.trunc(y)
    nearest = whole + np.trunc(2 * (y - whole))  # halves away from zero
    return _block(Q8_0, d=_half(d), q=nearest.astype(np.int8))


def _encode_q4_0(x: Array) -> Array:
    x = _finite(x)
    furthest = np.abs(x).argmax(axis=1, keepdims=True)
    d = np.take_along_axis(x, furthest, axis=1) / np.float32(-8)  # the number furthest from 0 becomes exactly −8
    return _block(Q4_0, d=_half(d), q=_nibbles(x * _inverse(d) + np.float32(8.5)))


def _encode_q4_1(x: Array) -> Array:
    x = _finite(x)
    m = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - m) / np.float32(15)
    return _block(Q4_1, d=_half(d), m=_half(m), q=_nibbles((x - m) * _inverse(d) + np.float32(0.5)))


def _nibbles(y: Floats) -> Bytes:
    q = y.astype(np.uint8).clip(0, 15)  # (n, 32)
    return q[:, :16] | q[:, 16:] << 4


def _block(layout: np.dtype[Any], **parts: Array) -> Array:
    block = np.empty(len(parts["d"]), layout)
    for name, values in parts.items():
        block[name] = values
    return block


# ── repack: blocks → other blocks ────────────────────────────────────────────────────────────────────────────────────


def _q5_0_as_q8_0(b: Array) -> Array:
    return _block(Q8_0, d=b["d"], q=(_five_bits(b) - 16).astype(np.int8))


def _q4_k_as_q4_1(b: Array) -> Array:
    """The integers are unchanged; scales and minima (a float16 times 6 bits) become float16."""
    scale, minimum = (x.reshape(-1, 1) for x in _k_scales(b))
    q = _fields(b["q"], 4, 32).reshape(-1, 32)
    return _block(Q4_1, d=scale.astype("<f2"), m=(-minimum).astype("<f2"), q=q[:, :16] | q[:, 16:] << 4)


def _as_q8_0(decode: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Quantize again, to Q8_0. A block with a number that is not finite, or beyond the range of Q8_0, becomes NaN."""

    def requantize(b: Array) -> Array:
        x = decode(b).reshape(-1, 32)
        in_range = (np.abs(x) < 127 * 65504.0).all(axis=1, keepdims=True)
        blocks = _encode_q8_0(np.where(in_range, x, 0))
        blocks["d"] = np.where(in_range, blocks["d"], np.nan)
        return blocks

    return requantize


# Formats without a kernel in the native engine → the format that replaces them, and the conversion of blocks.
_Q8_0_FOR = {
    "Q5_1": _decode_q5_1,
    "Q2_K": _decode_q2_k,
    "Q3_K": _decode_q3_k,
    "Q5_K": _decode_q5_k,
    "Q6_K": _decode_q6_k,
}
REPACKED: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "Q5_0": ("Q8_0", _q5_0_as_q8_0),
    "Q4_K": ("Q4_1", _q4_k_as_q4_1),
    **{name: ("Q8_0", _as_q8_0(decode)) for name, decode in _Q8_0_FOR.items()},
}


def repack(raw: Bytes, format: str) -> Bytes:
    """Rows of blocks (…, bytes of a row) converted to the format of `REPACKED`. The largest change of a weight w:

    Q5_0   not at all
    Q4_K   2⁻¹¹ · (15 · its scale + its minimum): a hundredth of the format's own steps; below 2⁻¹⁴, halves are 2⁻²⁵ apart
    other  (1/254 + 2⁻¹¹) · the largest |w| of its 32 neighbours: half a step of eight bits
    """
    form, (name, convert) = named_format(format), REPACKED[format]
    other = FORMATS[name]
    blocks = np.ascontiguousarray(raw).reshape(-1).view(form.layout)
    out = np.empty((len(blocks), form.block_elements // other.block_elements), other.layout)
    with np.errstate(all="ignore"):
        for part in _chunks(len(blocks), form.block_elements):
            out[part] = convert(blocks[part]).reshape(-1, out.shape[1])
    return out.view(np.uint8).reshape(*raw.shape[:-1], -1)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("F32", 0, 1, np.dtype("<f4"), _float, _float),
        Format("F16", 1, 1, np.dtype("<f2"), _float, _half),
        Format("BF16", 30, 1, np.dtype("<u2"), _decode_bf16, _encode_bf16),
        Format("Q8_0", 8, 32, Q8_0, _decode_q8_0, _encode_q8_0),
        Format("Q4_0", 2, 32, Q4_0, _decode_q4_0, _encode_q4_0),
        Format("Q4_1", 3, 32, Q4_1, _decode_q4_1, _encode_q4_1),
        Format("Q5_0", 6, 32, Q5_0, _decode_q5_0),
        Format("Q5_1", 7, 32, Q5_1, _decode_q5_1),
        Format("Q2_K", 10, 256, Q2_K, _decode_q2_k),
        Format("Q3_K", 11, 256, Q3_K, _decode_q3_k),
        Format("Q4_K", 12, 256, Q4_K, _decode_q4_k),
        Format("Q5_K", 13, 256, Q5_K, _decode_q5_k),
        Format("Q6_K", 14, 256, Q6_K, _decode_q6_k),
        Format("I8", 24, 1, np.dtype("<i1"), _float),
        Format("I16", 25, 1, np.dtype("<i2"), _float),
        Format("I32", 26, 1, np.dtype("<i4"), _float),
        Format("I64", 27, 1, np.dtype("<i8"), _float),
        Format("F64", 28, 1, np.dtype("<f8"), _float),
    )
}
