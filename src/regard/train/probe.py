"""Sentences looked at again and again while a model learns: what each head attends to, as frames that can be replayed.

A frame is `frames/step-000100.safetensors`: for every probe, all layers' attention weights in 16 bits. `frames/probes.json`
has the sentences and their tokens. The entropy of each head (how widely it looks) goes into the metrics.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import ConfigError, quoted
from regard.model.transformer import Network, Seq2Seq
from regard.nn.see import watching
from regard.store.atomic import replace_file, staging
from regard.store.named import Planned
from regard.store.safetensors_write import write_file
from regard.text.tokenizer import Tokenizer

LONGEST = 64  # tokens


class Probes:
    """`room`: how many tokens the network reads; of a translation, of its source and of its target. `writes`: of several
    processes that look together, one keeps what is seen."""

    def __init__(
        self,
        run: Path,
        sentences: Sequence[str],
        tokenizer: Tokenizer,
        writes: bool = True,
        *,
        room: tuple[int, ...] = (LONGEST,),
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.folder, self.writes = run / "frames", writes
        self.pairs = [read(text, tokenizer, room, say) for text in sentences]
        if sentences and writes:
            told = [
                {"text": text, "tokens": [tokenizer.pieces(ids) for ids in pair]}
                for text, pair in zip(sentences, self.pairs, strict=True)
            ]
            with replace_file(self.folder / "probes.json") as file:
                file.write((json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode())

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def look(self, net: Network, step: int) -> dict[str, list[float]]:
        """Write the frame of this step; layer → entropy of each of its heads, in bits, over all probes."""
        frame: dict[str, Tensor] = {}
        for i, pair in enumerate(self.pairs):
            for name, A in attention_of(net, pair).items():
                frame[f"{i}.{name}"] = A
        if self.writes:
            with staging(self.folder) as stage:
                file = stage / f"step-{step:06d}.safetensors"
                write_file(file, [planned(name, A) for name, A in frame.items()], {"step": str(step)})
                file.replace(self.folder / file.name)
        sites = dict.fromkeys(name.partition(".")[2] for name in frame)
        return {
            site.removesuffix(".weights"): mean_entropy(
                [A for name, A in frame.items() if name.partition(".")[2] == site]
            )
            for site in sites
        }


def read(text: str, tokenizer: Tokenizer, room: Sequence[int], say: Callable[[str], None]) -> list[list[int]]:
    """The ids of a probe, or of its source and its target; what is too long is cut, and said."""
    parts = text.split("\t") if len(room) > 1 else [text]
    found = [tokenizer.encode(part) for part in parts]
    if len(parts) > len(room) or not all(part.strip() and ids for part, ids in zip(parts, found, strict=True)):
        what = "a source, a tab and a target" if len(room) > 1 else "a text"
        raise ConfigError(f"The probe {quoted(text)} is not {what}; none may be empty.")
    for ids, fits in zip(found, room if len(found) == len(room) else [min(room)], strict=True):
        most = min(fits, LONGEST)
        if len(ids) > most:
            say(f"Of the probe {quoted(text)} the first {most} of {len(ids)} tokens are looked at.")
            del ids[most:]
    return found


@torch.no_grad()
def attention_of(net: Network, pair: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Every layer's attention weights, (h, N, T), for a text (or a source and a target)."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        if name.endswith(".weights"):
            seen[name] = x[0]
        return x

    training = net.training
    net.eval()
    try:
        with watching(keep):
            ids = [torch.tensor([list(each)]) for each in pair]
            if isinstance(net, Seq2Seq):
                start = torch.tensor([[net.spec.start_id or 0]])
                net(ids[0], torch.cat([start, ids[-1][:, :-1]], 1))
            else:
                net(ids[0])
    finally:
        net.train(training)
    return seen


def mean_entropy(weights: Sequence[Tensor]) -> list[float]:
    """Of each head: -Σ a log₂ a over a row's keys, averaged over rows."""
    each = [-(A * A.clamp_min(1e-12).log2()).sum(-1).mean(-1) for A in weights]  # (h,)
    return [round(float(x), 4) for x in torch.stack(each).mean(0)]


def planned(name: str, A: Tensor) -> Planned:
    return Planned(name, tuple(A.shape), "F16", lambda: A)
