"""`regard.load(where)` → a `Model`.

Weights are packed for the native engine by C in a thread. Python meanwhile imports what reads and writes text, and reads
the tokenizer: those imports stand inside functions here and in store/open_model.py, because the first token of an answer
would wait for them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.api.device import choose_device, choose_dtype
from regard.engine.select import cache_format, start_engine, torch_requested, use_native
from regard.errors import require
from regard.store.gguf import GGUF
from regard.store.open_model import Opened, open_files

if TYPE_CHECKING:
    import torch

    from regard.api.model import Model


def load(
    where: str | Path | Opened,
    *,
    dtype: "str | torch.dtype | None" = None,
    device: str = "auto",
    quantize: str | None = None,
    engine: str = "auto",
    cache: str | None = None,
    progress: Any = None,
) -> "Model":
    """Load a model by name, directory, .gguf file or training run, or from files that `store.open_model` has opened.

    dtype: float32 by default, in which results equal Hugging Face's; others need PyTorch. device: auto uses a GPU if there
    is one and PyTorch is installed. quantize: "q8" or "q4" quantizes the matrices. engine: "auto" generates and embeds with
    the native engine where it can, else with numpy; "numpy" and "torch" never use it. cache: the number format of the
    native engine's KV cache, "f32", "f16" or "q8"; by default as precise as the weights. progress: called with the weights
    loaded and all weights.

    Weights are packed for the native engine as stored in the file: a GGUF file's 16, 8 and 4 bits, unless a dtype is
    given, and a checkpoint's 32 or 16, which are computed with in float32. The network, in float32, is then made on first
    use, for example by a trace.
    """
    kind, kv_format = choose_dtype(dtype), cache_format(cache)
    opened, chosen = where if isinstance(where, Opened) else open_files(where), choose_device(device)
    name = "" if isinstance(where, Opened) else str(where)
    native = use_native(engine, opened.spec, chosen)
    as_stored = dtype is None or (kind == "float32" and not isinstance(opened.file, GGUF))
    if native and as_stored and quantize is None:
        packing = start_engine(opened, progress, kv_format)
        try:
            from regard.api.model import Model

            _ = opened.tokenizer  # read while C packs the weights
        finally:  # whatever happens: C reads the mapped file, which may change as soon as this function has returned
            packed = None if packing is None else packing()
        if packed is not None:
            return Model(None, opened, name, native=True, engine=packed, cache=kv_format)
    from regard.api.model import Model
    from regard.store.arrays import load_arrays
    from regard.store.quantize import quantize_weights

    by_torch, rounded = torch_requested(engine) or kind != "float32" or chosen != "cpu", None
    if by_torch:
        torch = require("torch", f"dtype={kind!r}" if kind != "float32" else "engine='torch'")
        if quantize is None:
            from regard.store.network import load_network

            net = load_network(opened, getattr(torch, kind), chosen, progress)
            return Model(net, opened, name, native=native, by_torch=True, cache=kv_format)
    arrays = load_arrays(opened, progress)
    if quantize is not None:
        arrays, rounded = quantize_weights(arrays, quantize)
    if not by_torch:
        return Model(None, opened, name, arrays=arrays, native=native, rounded=rounded, cache=kv_format)
    from regard.store.network import network_of_arrays

    net = network_of_arrays(opened.spec, arrays, getattr(torch, kind), chosen)
    return Model(net, opened, name, native=native, rounded=rounded, by_torch=True, cache=kv_format)
