"""`regard verify`: checks the laws on a given model, the equalities of two ways to compute the same logits (or states).

With and without KV cache, in a batch and alone, reference, native engine and PyTorch, PyTorch's fused kernels and the
readable definition: the largest difference for each; and against `transformers` where it is installed and can load the
same files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.engine.native_engine import NativeDecoder, NativeTranslator
from regard.engine.pack_network import engine_of_network
from regard.engine.reference_decoder import (
    ReferenceDecoder,
    ReferenceTranslator,
    any_weight,
    as_network_arrays,
    pad,
    to_numpy,
    without_gradients,
)
from regard.engine.select import use_native
from regard.engine.top_k import Floats
from regard.model.reference import Network, Seq2Seq
from regard.model.transformer import DecoderOnly, EncoderOnly, class_logits
from regard.nn.see import watching

# For outputs up to 1; for larger outputs the tolerance grows in proportion, as rounding errors do.
TOLERANCE = {"float32": 1e-4, "float16": 5e-2, "bfloat16": 3e-1}
NO_TORCH = "PyTorch is not installed (pip install 'regard[train]')"


@dataclass(frozen=True)
class Check:
    """The result of checking one law."""

    law: str
    difference: float | None  # None: could not be checked, and `note` says why
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.difference is None or self.difference <= self.tolerance


def verify(
    net: Network,
    rows: list[list[int]],
    source: Path,
    config: dict[str, Any],
    *,
    arrays: Mapping[str, Floats],
    module: Network | None,
) -> Iterator[Check]:
    """Check every law, one after the other. net: the network to check, with the weights `arrays`; module: the same as a
    PyTorch module, where that is installed; rows: ids of at least two sequences of different lengths."""
    scale = max(float(np.abs(out).max()) for out in run(net, rows))
    tolerance = TOLERANCE[str(any_weight(net).dtype).removeprefix("torch.")] * max(1.0, scale)
    laws: dict[str, tuple[Callable[[], float | None], str]] = {
        "cached = uncached": (lambda: cached_or_not(net, rows), "this model has no KV cache"),
        "batch = single": (lambda: batch_or_single(net, rows), ""),
        "readable = fused": (lambda: None if module is None else readable_or_fused(module, rows), NO_TORCH),
        "native = reference": (
            lambda: native_or_not(net, arrays, rows),
            "the native engine is not built, or does not support this network",
        ),
        "PyTorch = reference": (lambda: None if module is None else one_or_other(module, net, rows), NO_TORCH),
    }
    for law, (measure, otherwise) in laws.items():
        difference = measure()
        yield Check(law, difference, tolerance, "" if difference is not None else otherwise)
    yield against_transformers(net, rows, source, config, tolerance)


def run(net: Network, rows: list[list[int]]) -> list[Floats]:
    """Logits (or states) of each row in one batch, without those of padding."""
    ids, real = as_network_arrays(net, *pad(rows, net.spec.pad_id or 0, left=False))
    with without_gradients(net):
        if net.spec.head.kind == "classify":
            return list(to_numpy(class_logits(net, ids, real)))
        out = to_numpy(net(ids, ids, real, real) if isinstance(net, Seq2Seq) else net(ids, real))
    return [each[: len(row)] if each.ndim == 2 else each for each, row in zip(out, rows, strict=True)]


def largest(a: Sequence[Floats], b: Sequence[Floats]) -> float:
    """The largest difference; NaN if there is one anywhere."""
    return float(np.max([np.abs(x - y).max() for x, y in zip(a, b, strict=True)]))


def one_or_other(one: Network, other: Network, rows: list[list[int]]) -> float:
    return largest(run(one, rows), run(other, rows))


def batch_or_single(net: Network, rows: list[list[int]]) -> float:
    return largest(run(net, rows), [run(net, [row])[0] for row in rows])


def readable_or_fused(net: Network, rows: list[list[int]]) -> float:
    plain = run(net, rows)
    with watching(lambda name, x: x):
        return largest(plain, run(net, rows))


def cached_or_not(net: Network, rows: list[list[int]]) -> float | None:
    if isinstance(net, EncoderOnly) or net.spec.head.kind != "lm":
        return None
    row = max(rows, key=len)
    half = max(1, len(row) // 2)
    whole = run(net, [row])[0]
    decoder: ReferenceDecoder | ReferenceTranslator
    if isinstance(net, DecoderOnly):
        decoder = ReferenceDecoder(net, [row[:half]], len(row))
    else:
        decoder = ReferenceTranslator(net, [row], [row[:half]], len(row))
    steps = [decoder.prefill()[0]]
    steps += [decoder.step([id])[0] for id in row[half:]]
    return largest([np.stack(steps[:-1] or steps)], [whole[half - 1 : len(row) - 1 if len(steps) > 1 else None]])


def native_or_not(net: Network, arrays: Mapping[str, Floats], rows: list[list[int]]) -> float | None:
    """The native engine, packed from these weights, against the network: logits after each row; an encoder's states."""
    device = getattr(any_weight(net), "device", "cpu")  # numpy's arrays have one since its version 2
    if not use_native("auto", net.spec, str(device)):
        return None
    engine = engine_of_network(arrays, net.spec)
    if engine is None:
        return None
    if isinstance(net, EncoderOnly):
        with without_gradients(net):
            theirs = [to_numpy(net.states(*as_network_arrays(net, np.array([row]))))[0] for row in rows]
        return largest(list(engine.states(rows)), theirs)
    if isinstance(net, DecoderOnly):
        return largest([NativeDecoder(engine, rows, 1).prefill()], [ReferenceDecoder(net, rows, 1).prefill()])
    starts = [row[:1] for row in rows]
    return largest(
        [NativeTranslator(engine, rows, starts, 1).prefill()], [ReferenceTranslator(net, rows, starts, 1).prefill()]
    )


def against_transformers(
    net: Network, rows: list[list[int]], source: Path, config: dict[str, Any], tolerance: float
) -> Check:
    law = "regard = transformers"
    try:
        import torch
        import transformers
    except ModuleNotFoundError as missing:
        return Check(law, None, tolerance, f"{missing.name} is not installed")
    weight, references = any_weight(net), []
    try:
        theirs = load_theirs(transformers, source, config)
        theirs = theirs if isinstance(weight, np.ndarray) else theirs.to(weight)
    except Exception as problem:  # whatever another library raises is a remark here
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0][:80].rstrip(".")
        return Check(law, None, tolerance, f"transformers could not load it: {reason}")
    for row in rows:
        ids = torch.tensor([row], device=theirs.device)
        writes = isinstance(net, Seq2Seq) and net.spec.head.kind == "lm"
        with torch.no_grad():
            out = theirs(input_ids=ids, decoder_input_ids=ids) if writes else theirs(input_ids=ids)
        references.append(to_numpy((out.logits if "logits" in out else out.last_hidden_state)[0]))
    return Check(law, largest(references, [run(net, [row])[0] for row in rows]), tolerance)


def load_theirs(transformers: Any, source: Path, config: dict[str, Any]) -> Any:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    named = config.get("architectures")
    if not named:
        raise ValueError("its configuration names no architecture")
    cls = getattr(transformers, named[0])
    if source.suffix == ".gguf":
        return cls.from_pretrained(source.parent, gguf_file=source.name, dtype="float32").eval()
    return cls.from_pretrained(source, dtype="float32").eval()
