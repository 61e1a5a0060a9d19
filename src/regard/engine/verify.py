"""The laws, checked on the model at hand: what must be equal, and how far it is from being so.

Cache or none, batch or alone, padded or not, fused or readable: the largest difference of logits (or states) for each,
and against `transformers` where it is installed and can read the same files.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.engine.decode import Decoder, Translator, pad
from regard.model.transformer import DecoderOnly, EncoderDecoder, EncoderOnly, Network
from regard.nn.see import watching

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
    tolerance = TOLERANCE[next(net.parameters()).dtype]
    laws: dict[str, Callable[[Network, list[list[int]]], float | None]] = {
        "cached = uncached": cached_or_not,
        "batch = single": batch_or_single,
        "readable = fused": readable_or_fused,
    }
    for law, measure in laws.items():
        difference = measure(net, rows)
        note = "" if difference is not None else "this model keeps no cache"
        yield Check(law, difference, tolerance, note)
    yield against_transformers(net, rows, source, config, tolerance)


def run(net: Network, rows: list[list[int]]) -> list[Tensor]:
    """Logits (or states) of each row, without what stands on padding."""
    ids, real = pad(rows, net.spec.pad_id or 0, left=False, device=next(net.parameters()).device)
    out = net(ids, ids, real, real) if isinstance(net, EncoderDecoder) else net(ids, real)
    return [each[: len(row)] if each.dim() == 2 else each for each, row in zip(out, rows, strict=True)]


def largest(a: list[Tensor], b: list[Tensor]) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


def batch_or_single(net: Network, rows: list[list[int]]) -> float:
    return largest(run(net, rows), [run(net, [row])[0] for row in rows])


def readable_or_fused(net: Network, rows: list[list[int]]) -> float:
    plain = run(net, rows)
    with watching(lambda name, x: x):
        return largest(plain, run(net, rows))


def cached_or_not(net: Network, rows: list[list[int]]) -> float | None:
    if isinstance(net, EncoderOnly):
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
    steps += [stepper.step(torch.tensor([id], device=whole.device))[0] for id in row[half:]]
    return largest([torch.stack(steps[:-1] or steps)], [whole[half - 1 : len(row) - 1 if len(steps) > 1 else None]])


def against_transformers(
    net: Network, rows: list[list[int]], source: Path, config: dict[str, Any], tolerance: float
) -> Check:
    law = "regard = transformers"
    if importlib.util.find_spec("transformers") is None:
        return Check(law, None, tolerance, "transformers is not installed")
    try:
        theirs = load_theirs(source, config).to(next(net.parameters()).dtype)
    except Exception as problem:  # whatever another library raises is a remark here
        return Check(law, None, tolerance, f"transformers could not load it: {str(problem).splitlines()[0][:80]}")
    differences = []
    for row in rows:
        ids = torch.tensor([row])
        given = {"input_ids": ids, **({"decoder_input_ids": ids} if isinstance(net, EncoderDecoder) else {})}
        out = theirs(**given)
        reference = out.logits if "logits" in out else out.last_hidden_state
        differences.append(largest([reference[0]], run(net, [row])))
    return Check(law, max(differences), tolerance)


def load_theirs(source: Path, config: dict[str, Any]) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    cls = getattr(transformers, config["architectures"][0])
    if source.suffix == ".gguf":
        return cls.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32).eval()
    return cls.from_pretrained(source, dtype=torch.float32).eval()
