"""Engine selection: the native engine where it is built and supports the network, else the reference, which is the network
on numpy arrays. PyTorch computes where it is requested: by `engine="torch"`, a dtype, a device, or tensors as inputs.

The native engine packs a file's weights as stored: a GGUF file's blocks, a checkpoint's 16 bits. The network itself is
only built when it is traced or changed; then the engine packs its weights. REGARD_ENGINE=numpy or torch, or
`regard.load(…, engine="numpy")`, selects another engine.
"""

import ctypes
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from regard.engine.lowering import unsupported
from regard.engine.native.library import OTHERS, library
from regard.engine.native_engine import NativeEngine
from regard.engine.packing import Progress
from regard.engine.weights import FileWeights
from regard.errors import ConfigError
from regard.model.shapes import count_parameters
from regard.model.spec import Spec
from regard.store.gguf import GGUF
from regard.store.number_formats import named_format
from regard.store.open_model import Opened, refuse_if_too_large

log = logging.getLogger("regard")
ENGINES = ("auto", "native", *OTHERS)
FLOATS = {"F64", "F32", "F16", "BF16"}
CACHES = {"f32": "F32", "f16": "F16", "q8": "Q8_0"}  # value of `cache=` → the engine's number format


def torch_requested(engine: str) -> bool:
    """Whether PyTorch is requested: by the caller or, with "auto", by REGARD_ENGINE."""
    return engine == "torch" or (engine == "auto" and os.environ.get("REGARD_ENGINE") == "torch")


def use_native(engine: str, spec: Spec, device: str) -> bool:
    """Whether to use the native engine; engine="native" raises a `ConfigError` where it cannot be used."""
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}; it can be {', '.join(ENGINES)}.")
    if engine in OTHERS:
        return False
    reason = "it has not been built, or REGARD_ENGINE names another" if library() is None else None
    if reason is None and (what := unsupported(spec)) is not None:
        reason = f"it {what}"
        log.info("The native engine %s; the reference computes instead.", what)
    if reason is None and device != "cpu":
        reason = f"it computes on the CPU, not on {device}"
    if reason is not None and engine == "native":
        raise ConfigError(f"The native engine cannot be used: {reason}.")
    return reason is None


def cache_format(name: str | None) -> str | None:
    """The number format of the KV cache. None: float32 if the weights are float32, else 16 bits."""
    if name not in (None, *CACHES):
        raise ConfigError(f"cache is {name!r}; it can be {', '.join(CACHES)}.")
    return None if name is None else CACHES[name]


def start_engine(
    opened: Opened, progress: Progress | None = None, cache: str | None = None
) -> Callable[[], NativeEngine] | None:
    """Start to pack a file's weights for the native engine, in C, in a thread. Calling the result waits for it and returns
    the engine. None if the weights are in a number format that the engine does not support.

    Heads on an encoder's states are computed by numpy. cache: the number format of the KV cache; by default F32 for a
    checkpoint, which is computed in float32, and for GGUF in F32, else F16. progress: called, in that
    thread, with parameters done, total.
    """
    opened.file.check()
    weights, gguf = FileWeights(opened), isinstance(opened.file, GGUF)
    if not gguf and weights.formats - FLOATS:
        return None
    forms = [weights.form(name) for name, shape in weights.shapes.items() if len(shape) == 2]
    refuse_if_too_large(opened.path, sum(named_format(f).nbytes((n, m)) for f, n, m in forms), "cpu")
    exact = not gguf or weights.formats == {"F32"}
    kept = cache or ("F32" if exact else "F16")
    parameters = count_parameters(opened.spec)

    def report(done: int, total: int) -> None:
        assert progress is not None
        progress(parameters * done // total, parameters)

    shown = None if progress is None else report
    engine = NativeEngine(opened.spec, weights, cache=kept, pack=False)
    background = ThreadPoolExecutor(1)
    packing = background.submit(engine.arena.fill, shown)

    def finish() -> NativeEngine:
        packing.result()
        background.shutdown()
        weights.warn(engine.arena.suspicious)
        opened.file.release()
        trim()
        return engine

    return finish


def trim() -> None:
    """Return freed memory to the system (glibc's malloc_trim); other C libraries do it by themselves or not at all."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
