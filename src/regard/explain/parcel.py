"""Numbers as text: what a file that opens in a browser carries them in.

In: a tensor, exact (float32) or rounded to half precision with as many significant bits as wanted. Out: a JSON-friendly
mapping with base64 of gzip of its little-endian bytes. Bytes of equal rank stand together (all first bytes, then all second
ones …): signs and exponents are alike and pack well, and bits that were rounded away pack to nothing.
"""

import base64
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

EXACT, HALF = 24, 11  # significant bits of float32 and of float16
GZIP = 31  # zlib's word for a gzip header and trailer


def parcel(x: Tensor, bits: int = EXACT) -> dict[str, Any]:
    """{"shape", "bits", "type", "data"}; type is float32 or float16 by how many bits are kept."""
    array = x.detach().float().cpu().contiguous().numpy()
    if bits >= EXACT:
        return {"shape": list(x.shape), "bits": EXACT, "type": "float32", "data": packed(array.astype("<f4"))}
    return {"shape": list(x.shape), "bits": bits, "type": "float16", "data": packed(rounded(array, bits))}


def whole_numbers(x: Tensor) -> dict[str, Any]:
    """The same for ids and counts."""
    array = x.detach().cpu().contiguous().numpy().astype("<i4")
    return {"shape": list(x.shape), "type": "int32", "data": packed(array)}


def fits_half(x: Tensor) -> bool:
    """Whether half precision can hold the size of every number."""
    finite = x[torch.isfinite(x)]
    return not finite.numel() or float(finite.abs().max()) < 65504.0


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """float16 of which only the first `bits` significant ones are not zero, to the nearest."""
    half = array.astype("<f2")
    lost = HALF - bits
    if lost <= 0:
        return half
    plain = half.view("<u2").astype(np.uint32)
    near = (plain + (1 << (lost - 1)) - 1 + ((plain >> lost) & 1)) >> lost << lost  # ties to even, as everywhere
    near = np.where(np.isfinite(half), near, plain)
    return near.astype("<u2").view("<f2")


def packed(array: np.ndarray) -> str:
    planes = array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T
    packer = zlib.compressobj(9, wbits=GZIP, strategy=zlib.Z_RLE)  # noise has no repetitions to look for, only runs
    return base64.b64encode(packer.compress(planes.tobytes()) + packer.flush()).decode()
