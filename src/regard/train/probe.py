"""Probes: sentences whose attention weights are recorded during training, as frames that the page can replay.

A frame is `frames/step-000100.safetensors`: for every probe, all layers' attention weights in float16. `frames/probes.json`
has the sentences and their tokens. The entropy of each head (how widely it attends) is logged in the metrics.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import ConfigError, quoted
from regard.model.build import Network, Seq2Seq
from regard.model.graph import Graph
from regard.nn.see import watching
from regard.store.atomic_write import replace_file, staging
from regard.store.named_tensors import Planned
from regard.store.safetensors_write import write_file
from regard.text.tokenizer import Tokenizer

MAX_TOKENS = 64  # tokens


class Probes:
    """The probes of a run. `max_tokens`: the network's context; for a translation, of source and target. `save`: whether
    this process writes the frames (all processes compute them)."""

    def __init__(
        self,
        run: Path,
        sentences: Sequence[str],
        tokenizer: Tokenizer,
        save: bool = True,
        *,
        max_tokens: tuple[int, ...] = (MAX_TOKENS,),
        notify: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.folder, self.save = run / "frames", save
        self.pairs = [encode_probe(text, tokenizer, max_tokens, notify) for text in sentences]
        if sentences and save:
            described = [
                {"text": text, "tokens": [tokenizer.pieces(ids) for ids in pair]}
                for text, pair in zip(sentences, self.pairs, strict=True)
            ]
            with replace_file(self.folder / "probes.json") as file:
                file.write((json.dumps(described, ensure_ascii=False, indent=1) + "\n").encode())

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def record(self, net: Network, step: int) -> dict[str, list[float]]:
        """Write the frame of this step; layer → entropy of each of its heads, in bits, over all probes."""
        frame: dict[str, Tensor] = {}
        for i, pair in enumerate(self.pairs):
            for name, A in attention_of(net, pair).items():
                frame[f"{i}.{name}"] = A
        if self.save:
            with staging(self.folder) as stage:
                file = stage / f"step-{step:06d}.safetensors"
                write_file(file, [planned(name, A) for name, A in frame.items()], {"step": str(step)})
                file.replace(self.folder / file.name)
        return {
            site: mean_entropy([frame[f"{i}.{weights}"] for i in range(len(self.pairs))])
            for weights, site in sites_of(net).items()
        }


def encode_probe(
    text: str, tokenizer: Tokenizer, max_tokens: Sequence[int], notify: Callable[[str], None]
) -> list[list[int]]:
    """The ids of a probe, or of its source and its target; what is too long is truncated, with a message."""
    parts = text.split("\t") if len(max_tokens) > 1 else [text]
    found = [tokenizer.encode(part) for part in parts]
    if len(parts) > len(max_tokens) or not all(part.strip() and ids for part, ids in zip(parts, found, strict=True)):
        what = "a source, a tab and a target" if len(max_tokens) > 1 else "a text"
        raise ConfigError(f"The probe {quoted(text)} is not {what}; none may be empty.")
    for ids, fits in zip(found, max_tokens if len(found) == len(max_tokens) else [min(max_tokens)], strict=True):
        limit = min(fits, MAX_TOKENS)
        if len(ids) > limit:
            notify(f"Of the probe {quoted(text)} the first {limit} of {len(ids)} tokens are used.")
            del ids[limit:]
    return found


def sites_of(net: Network) -> dict[str, str]:
    """The nodes of attention weights → where they are."""
    return {site.weights: site.site for site in Graph(net.spec, 1, 1).sites}


@torch.no_grad()
def attention_of(net: Network, pair: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Every layer's attention weights, (h, N, T), for a text (or a source and a target)."""
    seen, sites = dict[str, Tensor](), sites_of(net)

    def record(name: str, x: Tensor) -> Tensor:
        if name in sites:
            seen[name] = x[0]
        return x

    training = net.training
    net.eval()
    try:
        with watching(record):
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
