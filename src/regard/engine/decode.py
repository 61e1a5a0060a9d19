"""The torch path's inner step: new ids in, logits of the newest position out, everything else kept in a cache.

`Decoder` continues prompts, `Translator` writes a target beside an encoder's output; both are a `Stepper`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.engine.rank import Floats
from regard.model.transformer import DecoderOnly, Seq2Seq
from regard.nn.attention import MultiHead
from regard.nn.mlp import GatedMLP
from regard.nn.pack import lay_out


@torch.inference_mode(False)  # the weights stay fit for gradients, whoever asks first
def lay_out_for_decoding(net: nn.Module) -> None:
    """Store the weights the way that one-row products read fastest. No number changes; once is enough."""
    if getattr(net, "laid_out", False):
        return
    packed: set[nn.Linear] = set()
    for module in net.modules():
        if isinstance(module, MultiHead | GatedMLP):
            module.pack()
            packed.update(module.packed.maps if module.packed else ())
    for module in net.modules():
        if isinstance(module, nn.Linear) and module not in packed:
            lay_out(module)
    net.laid_out = True  # type: ignore[assignment]


def pad(rows: Sequence[Sequence[int]], fill: int, *, left: bool, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Rows of different lengths → ids (B, N) and where they are real; None when all are."""
    N = max(map(len, rows))
    ids = torch.full((len(rows), N), fill, dtype=torch.long)
    real = torch.zeros(len(rows), N, dtype=torch.bool)
    for i, row in enumerate(rows):
        place = slice(N - len(row), N) if left else slice(0, len(row))
        ids[i, place], real[i, place] = torch.tensor(row, dtype=torch.long), True
    return ids.to(device), None if bool(real.all()) else real.to(device)


def numbers(logits: Tensor) -> Floats:
    """As sampling takes them."""
    listed: Floats = logits.float().cpu().numpy()
    return listed


class Decoder:
    """Continues prompts, which stand flush right in the batch, so that all rows write to the same column."""

    def __init__(self, net: DecoderOnly, prompts: Sequence[Sequence[int]], room: int) -> None:
        lay_out_for_decoding(net)
        device = net.embed.tokens.weight.device
        self.net = net
        self.ids, real = pad(prompts, net.spec.pad_id or 0, left=True, device=device)
        N = self.ids.shape[1]
        self.cache = net.new_cache(N + room)
        self.real: Tensor | None = None  # (B, N + room): what follows the prompts is never padding
        if real is not None:
            self.real = torch.ones(len(prompts), N + room, dtype=torch.bool, device=device)
            self.real[:, :N] = real

    def start(self) -> Floats:
        return self._logits(self.ids)

    def step(self, ids: Sequence[int]) -> Floats:
        return self._logits(torch.tensor(ids, device=self.ids.device)[:, None])

    @torch.inference_mode()
    def pick(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows, device=self.ids.device)
        self.cache.pick(index)
        self.real = None if self.real is None else self.real[index]

    @torch.inference_mode()
    def _logits(self, ids: Tensor) -> Floats:
        T = self.cache.length + ids.shape[1]
        states = self.net.states(ids, None if self.real is None else self.real[:, :T], self.cache)
        return numbers(self.net.logits(states[:, -1:])[:, 0])  # only the newest position is unembedded


class Translator:
    """Writes a target for each source. The encoder runs once, and cross attention keeps its keys and values."""

    @torch.inference_mode()
    def __init__(
        self,
        net: Seq2Seq,
        sources: Sequence[Sequence[int]],
        starts: Sequence[Sequence[int]],
        room: int,
        *,
        lay_out: bool = True,  # not while it is being trained
    ) -> None:
        if lay_out:
            lay_out_for_decoding(net)
        device = next(net.parameters()).device
        self.net = net
        ids, self.source_real = pad(sources, net.spec.pad_id or 0, left=False, device=device)
        self.memory = net.encode(ids, self.source_real)
        self.ids, real = pad(starts, net.spec.pad_id or 0, left=True, device=device)
        assert real is None, "targets begin with equally many tokens"
        self.cache: Any = net.new_cache(self.ids.shape[1] + room)

    def start(self) -> Floats:
        return self._logits(self.ids)

    def step(self, ids: Sequence[int]) -> Floats:
        return self._logits(torch.tensor(ids, device=self.ids.device)[:, None])

    @torch.inference_mode()
    def pick(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows, device=self.memory.device)
        self.cache.pick(index)
        self.memory = self.memory[index]
        self.source_real = None if self.source_real is None else self.source_real[index]

    @torch.inference_mode()
    def _logits(self, ids: Tensor) -> Floats:
        states = self.net.states(ids, self.memory, self.source_real, cache=self.cache)
        return numbers(self.net.logits(states[:, -1:])[:, 0])
