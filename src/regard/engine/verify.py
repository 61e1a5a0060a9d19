"""The laws, checked on the model at hand: what must be equal, and how far it is from being so.

Cache or none, batch or alone, padded or not, fused or readable: the largest difference of logits (or states) for each,
and against `transformers` where it is installed and can read the same files.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engine.choose import wanted
from regard.engine.decode import Decoder, Translator, pad
from regard.engine.fast import FastDecoder, FastTranslator
from regard.engine.of_network import engine_of_network
from regard.engine.rank import Floats
from regard.model.transformer import DecoderOnly, EncoderOnly, Network, Seq2Seq, class_logits
from regard.nn.see import watching

# For outputs up to 1; where they are larger, so is what rounding leaves between two ways of computing them.
Numbers = Sequence[Tensor | Floats]
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 3e-1}


@dataclass(frozen=True)
class Check:
    law: str
    difference: float | None  # None: could not be checked, and `note` says why
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.difference is None or self.difference <= self.tolerance


@torch.no_grad()
def verify(net: Network, rows: list[list[int]], source: Path, config: dict[str, Any]) -> Iterator[Check]:
    """`rows`: at least two texts of different lengths, as ids."""
    scale = max(float(out.abs().max()) for out in run(net, rows))
    tolerance = TOLERANCE[next(net.parameters()).dtype] * max(1.0, scale)
    laws: dict[str, tuple[Callable[[Network, list[list[int]]], float | None], str]] = {
        "cached = uncached": (cached_or_not, "this model keeps no cache"),
        "batch = single": (batch_or_single, ""),
        "readable = fused": (readable_or_fused, ""),
        "native = PyTorch": (native_or_not, "the native engine is not here, or does not know this network"),
    }
    for law, (measure, otherwise) in laws.items():
        difference = measure(net, rows)
        yield Check(law, difference, tolerance, "" if difference is not None else otherwise)
    yield against_transformers(net, rows, source, config, tolerance)


def run(net: Network, rows: list[list[int]]) -> list[Tensor]:
    """Logits (or states) of each row, without what stands on padding."""
    ids, real = pad(rows, net.spec.pad_id or 0, left=False, device=next(net.parameters()).device)
    if net.spec.head.kind == "classify":
        return list(class_logits(net, ids, real))
    out = net(ids, ids, real, real) if isinstance(net, Seq2Seq) else net(ids, real)
    return [each[: len(row)] if each.dim() == 2 else each for each, row in zip(out, rows, strict=True)]


def largest(a: Numbers, b: Numbers) -> float:
    """The largest difference; NaN if there is one anywhere."""
    pairs = ((torch.as_tensor(x).cpu(), torch.as_tensor(y).cpu()) for x, y in zip(a, b, strict=True))
    return float(torch.stack([(x - y).abs().max() for x, y in pairs]).max())


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
    stepper: Decoder | Translator
    if isinstance(net, DecoderOnly):
        stepper = Decoder(net, [row[:half]], len(row))
    else:
        stepper = Translator(net, [row], [row[:half]], len(row))
    steps = [stepper.start()[0]]
    steps += [stepper.step([id])[0] for id in row[half:]]
    return largest([np.stack(steps[:-1] or steps)], [whole[half - 1 : len(row) - 1 if len(steps) > 1 else None]])


def native_or_not(net: Network, rows: list[list[int]]) -> float | None:
    """The native engine, packed from this network: what follows each row; of an encoder, the states."""
    if not wanted("auto", net.spec, str(next(net.parameters()).device)):
        return None
    engine = engine_of_network(net, net.spec)
    if engine is None:
        return None
    if isinstance(net, EncoderOnly):
        return largest(list(engine.states(rows)), [net.states(torch.tensor([row]))[0] for row in rows])
    if isinstance(net, DecoderOnly):
        return largest([FastDecoder(engine, rows, 1).start()], [Decoder(net, rows, 1).start()])
    starts = [row[:1] for row in rows]
    theirs = Translator(net, rows, starts, 1).start()
    return largest([FastTranslator(engine, rows, starts, 1).start()], [theirs])


def against_transformers(
    net: Network, rows: list[list[int]], source: Path, config: dict[str, Any], tolerance: float
) -> Check:
    law = "regard = transformers"
    if importlib.util.find_spec("transformers") is None:
        return Check(law, None, tolerance, "transformers is not installed")
    try:
        theirs = load_theirs(source, config).to(next(net.parameters()))
    except Exception as problem:  # whatever another library raises is a remark here
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0][:80].rstrip(".")
        return Check(law, None, tolerance, f"transformers could not load it: {reason}")
    references = []
    for row in rows:
        ids = torch.tensor([row], device=theirs.device)
        writes = isinstance(net, Seq2Seq) and net.spec.head.kind == "lm"
        out = theirs(input_ids=ids, decoder_input_ids=ids) if writes else theirs(input_ids=ids)
        references.append((out.logits if "logits" in out else out.last_hidden_state)[0])
    return Check(law, largest(references, [run(net, [row])[0] for row in rows]), tolerance)


def load_theirs(source: Path, config: dict[str, Any]) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    named = config.get("architectures")
    if not named:
        raise ValueError("its configuration names no architecture")
    cls = getattr(transformers, named[0])
    if source.suffix == ".gguf":
        return cls.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32).eval()
    return cls.from_pretrained(source, dtype=torch.float32).eval()
