"""Arrays as JSON, for exported files.

In: an array, stored exactly (float32) or rounded to half precision with a number of significant bits. Out: a JSON-friendly
mapping with base64 of gzip of its little-endian bytes. Bytes are grouped into planes (all first bytes, then all second ones
…): signs and exponents are alike and compress well, and bits that were rounded away compress to almost nothing.
"""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT, HALF = 24, 11  # significant bits of float32 and of float16
GZIP = 31  # wbits of zlib for a gzip header and trailer


def encode(x: NDArray[Any], bits: int = EXACT) -> dict[str, Any]:
    """{"shape", "bits", "type", "data"}; type is float32 or float16, depending on bits."""
    array = np.ascontiguousarray(x)
    if bits >= EXACT:
        return {"shape": list(x.shape), "bits": EXACT, "type": "float32", "data": compress(array.astype("<f4"))}
    return {"shape": list(x.shape), "bits": bits, "type": "float16", "data": compress(rounded(array, bits))}


def encode_integers(x: NDArray[Any]) -> dict[str, Any]:
    """The same for ids and counts, as int32."""
    array = np.ascontiguousarray(x).astype("<i4")
    return {"shape": list(x.shape), "type": "int32", "data": compress(array)}


def fits_half(x: NDArray[Any]) -> bool:
    """Whether every finite number is within the range of half precision."""
    finite = x[np.isfinite(x)]
    return not finite.size or float(np.abs(finite).max()) < 65504.0


def rounded(array: NDArray[Any], bits: int) -> NDArray[Any]:
    """float16 rounded to `bits` significant bits."""
    half = array.astype("<f2")
    lost = HALF - bits
    if lost <= 0:
        return half
    plain = half.view("<u2").astype(np.uint32)
    near = (plain + (1 << (lost - 1)) - 1 + ((plain >> lost) & 1)) >> lost << lost  # ties to even
    near = np.where(np.isfinite(half), near, plain)
    return near.astype("<u2").view("<f2")


def compress(array: NDArray[Any]) -> str:
    """base64 of the gzipped byte planes."""
    planes = array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T
    compressor = zlib.compressobj(9, wbits=GZIP, strategy=zlib.Z_RLE)  # the bytes have runs, but no longer repetitions
    return base64.b64encode(compressor.compress(planes.tobytes()) + compressor.flush()).decode()
