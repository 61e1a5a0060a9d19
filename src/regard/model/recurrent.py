"""The recurrent encoder-decoder of 2015 as a network with the same doors as the Transformer: encode, states, logits."""

import torch
from torch import Tensor, nn

from regard.model.spec import RecurrentSpec, Spec
from regard.nn.embed import Embed, Unembed
from regard.nn.recurrent import AdditiveAttention, RecurrentEncoder, RecurrentState
from regard.nn.see import Part, see, watched


class Reader(Part):
    """The encoder: embeddings, and a GRU in each direction over them."""

    def __init__(self, d: int, r: RecurrentSpec) -> None:
        super().__init__()
        self.embed = Embed(r.n_vocab, d, dropout=r.dropout)
        self.reader = RecurrentEncoder(d, r.hidden)


class Writer(Part):
    """The decoder: it looks at the source (`cross`), updates its state (`cell`) and says a word (`out`)."""

    def __init__(self, d: int, r: RecurrentSpec) -> None:
        super().__init__()
        h = r.hidden
        self.embed = Embed(r.n_vocab, d, dropout=r.dropout)
        self.first = nn.Linear(h, h)  # the first state, from the source's
        self.cross = AdditiveAttention(h, 2 * h, h)
        self.cell = nn.GRUCell(d + 2 * h, h)
        self.out = nn.Linear(h + 2 * h + d, d)  # state, what was read, and the word before


class Recurrent(Part):
    def __init__(self, spec: Spec, r: RecurrentSpec) -> None:
        super().__init__()
        self.spec, self.recurrent = spec, r
        self.encoder, self.decoder = Reader(spec.d, r), Writer(spec.d, r)
        self.unembed = Unembed(spec.d, r.n_vocab, bias=False)
        self.dropout = nn.Dropout(r.dropout)

    def new_cache(self, capacity: int) -> RecurrentState:
        return RecurrentState()

    def encode(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """States of every source token, (B, N, 2h)."""
        H: Tensor = self.encoder.reader(self.encoder.embed(ids, ids), real)
        return self.dropout(H)

    def states(
        self,
        target_ids: Tensor,
        memory: Tensor,
        memory_real: Tensor | None = None,
        real: Tensor | None = None,
        cache: RecurrentState | None = None,
    ) -> Tensor:
        """One token after the other: each needs the state that the one before left. (B, M, d)"""
        side, h = self.decoder, self.recurrent.hidden
        Y = side.embed(target_ids, target_ids)
        cache = RecurrentState() if cache is None else cache
        if cache.state is None or cache.keys is None:
            cache.keys = side.cross.keys(memory)
            cache.state = torch.tanh(side.first(memory[:, 0, h:]))  # the backward GRU ends at the first token
        said = list[Tensor]()
        steps = dict[str, list[Tensor]]((name, []) for name in ("cross.scores", "cross.weights", "cross.Z", "states"))
        for t in range(Y.shape[1]):
            read, S, A = side.cross(cache.state, cache.keys, memory, memory_real)
            cache.state = side.cell(torch.cat([Y[:, t], read], -1), cache.state)
            said.append(side.out(torch.cat([cache.state, read, Y[:, t]], -1)))
            for kept, x in zip(steps.values(), (S, A, read, cache.state), strict=True):
                kept.append(x)
        cache.length += Y.shape[1]
        if watched():  # what happened step by step, shown at once: (B, 1, M, …), as one head
            for name, each in steps.items():
                see(f"decoder.{name}", torch.stack(each, 1) if name == "states" else torch.stack(each, 1)[:, None])
        return self.dropout(see("decoder.out", torch.tanh(see("decoder.dense", torch.stack(said, 1)))))

    def logits(self, states: Tensor) -> Tensor:
        return see("logits", self.unembed(states))

    def forward(
        self, ids: Tensor, target_ids: Tensor, real: Tensor | None = None, target_real: Tensor | None = None
    ) -> Tensor:
        return self.logits(self.states(target_ids, self.encode(ids, real), real))
