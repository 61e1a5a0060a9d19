"""Which engine computes: the native one where it is built and knows the network, else PyTorch.

It packs a file's numbers as they lie there: a GGUF file's blocks, a checkpoint's 16 bits. The network itself is only made
when somebody looks into it, or changes it; then it is packed as it is. REGARD_ENGINE=torch, or
`regard.load(…, engine="torch")`, chooses PyTorch.
"""

import ctypes
import logging
from collections.abc import Callable
from contextlib import suppress

from regard.engine.fast import Engine
from regard.engine.native.library import library
from regard.engine.packing import Progress
from regard.engine.supported import unsupported
from regard.engine.weights import FileWeights
from regard.errors import ConfigError
from regard.model.shapes import count_parameters
from regard.model.spec import Spec
from regard.store.gguf import GGUF
from regard.store.open import Opened, refuse_if_too_large
from regard.store.quant import named_format

log = logging.getLogger("regard")
ENGINES = ("auto", "native", "torch")
HEADS = ("lm", "none")  # after which the engine has all that is asked of a network; others are PyTorch's
FLOATS = {"F64", "F32", "F16", "BF16"}
CACHES = {"f32": "F32", "f16": "F16", "q8": "Q8_0"}  # as they are asked for, and as the engine names them


def wanted(engine: str, spec: Spec, device: str) -> bool:
    """Whether the native engine is to be used; "native" insists."""
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}; it can be {', '.join(ENGINES)}.")
    if engine == "torch":
        return False
    reason = "it has not been built, or REGARD_ENGINE says torch" if library() is None else None
    if reason is None and (what := unsupported(spec)) is not None:
        reason = f"it does not know {what} of this {spec.family} network"
        log.info("PyTorch computes: the native engine does not know %s of this %s network.", what, spec.family)
    if reason is None and device != "cpu":
        reason = f"it computes on the CPU, not on {device}"
    if reason is not None and engine == "native":
        raise ConfigError(f"The native engine cannot be used: {reason}.")
    return reason is None


def cache_format(name: str | None) -> str | None:
    """The number format of keys and values. None: as exact as the weights, float32 beside float32, else 16 bits."""
    if name not in (None, *CACHES):
        raise ConfigError(f"cache is {name!r}; it can be {', '.join(CACHES)}.")
    return None if name is None else CACHES[name]


def engine_of_file(
    opened: Opened,
    progress: Progress | None = None,
    cache: str | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Engine | None:
    """None if somebody else must read it: numbers that only PyTorch knows, or a head that only PyTorch has.

    Keys and values are as exact as what was asked for: a checkpoint is computed with in float32, GGUF as it is.
    progress: called with parameters done, in all. meanwhile: what Python can do while C packs.
    """
    opened.file.check()
    weights, gguf = FileWeights(opened), isinstance(opened.file, GGUF)
    if not gguf and (opened.spec.head.kind not in HEADS or weights.formats - FLOATS):
        return None
    forms = [weights.form(name) for name, shape in weights.shapes.items() if len(shape) == 2]
    refuse_if_too_large(opened.path, sum(named_format(f).nbytes((n, m)) for f, n, m in forms), "cpu")
    exact = not gguf or weights.formats == {"F32"}
    kept = cache or ("F32" if exact else "F16")
    parameters = count_parameters(opened.spec)

    def tell(done: int, total: int) -> None:
        assert progress is not None
        progress(parameters * done // total, parameters)

    shown = None if progress is None else tell
    engine = Engine(opened.spec, weights, cache=kept, progress=shown, meanwhile=meanwhile)
    weights.warn(engine.arena.suspicious)
    opened.file.release()
    trim()
    return engine


def trim() -> None:
    """Give back what reading took and freed. Other C libraries than GNU's do that by themselves, or not at all."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
