"""ctypes bindings of the shared library: engine.h's structs, its functions with their types, and whether it can be loaded.

`library()` returns it, or None: it is not built, which is logged once, or REGARD_ENGINE (numpy, torch) selects another
engine. REGARD_KERNELS=portable selects the plain C kernels where faster ones exist; REGARD_LIBRARY names another build.
"""

import ctypes
import logging
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

from regard.engine.native.build import NAME, sources

log = logging.getLogger("regard")

FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")  # in the order of `enum format`
NORMS = {"none": 0, "layer": 1, "rms": 2}
ACTIVATIONS = {"none": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "relu": 4, "tanh": 5}
EMBED, NORM, PRODUCT, STORE, ATTEND, PICK = range(6)
REFUSALS = {  # error codes of regard_run
    -1: "A batch does not fit the engine's buffers.",
    -2: "There is not enough memory for a batch.",
    -3: "A token id has no row in the model's embedding.",
    -4: "A position is beyond the model's table of positions, or beyond the KV cache.",
}
OTHERS = ("numpy", "torch")  # the other engines
LANES, BLOCK, FEW, CHUNK, WIDEST_HEAD = 8, 32, 4, 128, 512


class Matrix(ctypes.Structure):
    _fields_ = [
        *((n, c_int32) for n in ("format", "rows", "columns", "unused")),
        ("group_bytes", c_int64),
        ("data", c_void_p),
    ]


class Packing(ctypes.Structure):
    _fields_ = [
        *((n, c_int32) for n in ("format", "finite", "mapped", "unused")),
        *((n, c_int64) for n in ("n_rows", "columns")),
        *((n, c_void_p) for n in ("rows", "packed")),
    ]


class Cache(ctypes.Structure):
    _fields_ = [(n, c_int32) for n in ("format", "heads", "d_k", "width", "layers", "unused")]


class Step(ctypes.Structure):
    _fields_ = [
        *((n, c_int32) for n in ("op", "selected", "norm", "activation", "add", "n")),
        *((n, c_int32) for n in ("heads", "layer", "cross", "causal", "window", "rotary")),
        *((n, c_float) for n in ("eps", "scale")),
        *((n, c_int64) for n in ("in_stride", "out_stride")),
        *((n, c_void_p) for n in ("input", "out")),
        *((n, POINTER(Matrix)) for n in ("W", "gate")),
        *((n, c_void_p) for n in ("bias", "gate_bias", "gain", "shift", "K", "V")),
        ("cache", POINTER(Cache)),
        ("table", c_void_p),
        ("table_rows", c_int64),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        *((n, c_int32) for n in ("rows", "wanted")),
        *((n, c_void_p) for n in ("ids", "positions", "visible", "caches", "sources", "source_lengths")),
        *((n, c_int64) for n in ("capacity", "source_capacity")),
        *((n, c_void_p) for n in ("wanted_rows", "logits")),
        ("logits_stride", c_int64),
        *((n, c_void_p) for n in ("cosines", "sines")),
        ("angles", c_int64),
    ]


class Plan(ctypes.Structure):
    _fields_ = [
        *((n, c_int32) for n in ("n_steps", "max_rows", "threads", "widest")),
        ("steps", POINTER(Step)),
        ("temporary", c_void_p),
        ("temporary_stride", c_int64),
        ("prepared", c_void_p),
        ("partial", c_void_p),
        ("partial_floats", c_int64),
        ("scratch", c_void_p),
        ("scratch_bytes", c_int64),
    ]


SIGNATURES = {
    "regard_run": (c_int, [POINTER(Plan), POINTER(Batch)]),
    "regard_sources": (c_char_p, []),
    "regard_sizes": (c_int, [POINTER(c_int64)]),
    "regard_packed_bytes": (c_int64, [c_int32, c_int64, c_int64]),
    "regard_pack": (c_int, [POINTER(Packing), c_int64, c_int32, POINTER(c_int64)]),
    "regard_scratch_bytes": (c_int64, [c_int32]),
    "regard_cache_bytes": (c_int64, [POINTER(Cache), c_int64]),
    "regard_fork": (None, [POINTER(Cache), c_void_p, c_int64, c_void_p, c_int64, c_int64]),
    "regard_log_totals": (None, [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_int32]),
    "regard_ranked": (c_int, [c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_int32]),
    "regard_choose": (c_char_p, [c_char_p]),
}


def open_library(path: Path) -> ctypes.CDLL:
    """Load the library; calls into it release Python's global lock. An OSError says why it cannot be used."""
    native = ctypes.CDLL(str(path))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
    sizes = (c_int64 * 6)()
    native.regard_sizes(sizes)
    if list(sizes) != [ctypes.sizeof(struct) for struct in (Matrix, Packing, Cache, Step, Batch, Plan)]:
        raise OSError(f"{path} has other structs than library.py")
    if native.regard_sources().decode() != sources():
        raise OSError(f"{path} was built from other sources: run python -m regard.engine.native.build")
    return native


@cache
def library() -> ctypes.CDLL | None:
    """The native library, loaded once; None if it cannot or should not be used."""
    if os.environ.get("REGARD_ENGINE") in OTHERS:
        return None
    path = Path(os.environ.get("REGARD_LIBRARY") or Path(__file__).with_name(NAME))
    try:
        native = open_library(path)
    except (OSError, AttributeError) as problem:
        reason = "it has not been built" if not path.exists() else str(problem)
        log.warning("The native engine is not used (%s); numpy computes instead.", reason)
        return None
    wanted = os.environ.get("REGARD_KERNELS")
    if native.regard_choose(wanted.encode() if wanted else None) is None:
        log.warning("There are no %s kernels here; others are used.", wanted)
        native.regard_choose(None)
    return native
