"""A scheduler's slots computed by PyTorch: each piece on its own, so that what else is there changes no bit (lanes.py)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.engine.decode import lay_out_for_decoding, numbers
from regard.engine.lanes import CHUNK, Piece, bytes_per_token
from regard.engine.rank import Floats
from regard.model.transformer import DecoderOnly


class TorchLanes:
    seamless = False

    def __init__(self, net: DecoderOnly, slots: int, room: int, chunk: int = CHUNK) -> None:
        lay_out_for_decoding(net)
        self.net, self.slots, self.room, self.chunk = net, slots, room, chunk
        weight = net.embed.tokens.weight
        self.device = weight.device
        self.most_bytes = slots * room * bytes_per_token(net.stack, weight.element_size())
        self._caches = [net.new_cache(room) for _ in range(slots)]

    @torch.inference_mode()
    def feed(self, pieces: Sequence[Piece]) -> Floats:
        rows = [self._row(piece) for piece in pieces]
        wanted = [row for row in rows if row is not None]
        return numbers(torch.cat(wanted) if wanted else torch.empty(0, self.net.spec.n_vocab))

    def _row(self, piece: Piece) -> Tensor | None:
        cache = self._caches[piece.slot]
        assert cache.length + len(piece.ids) <= self.room, "a text outgrew its slot"
        states = self.net.states(torch.tensor([piece.ids], device=self.device), None, cache)
        return self.net.logits(states[:, -1:])[:, 0] if piece.wanted else None  # only what is wanted is unembedded

    @torch.inference_mode()
    def share(self, source: int, slot: int, length: int) -> None:
        if source != slot:
            for mine, theirs in zip(self._caches[slot].layers, self._caches[source].layers, strict=True):
                assert mine.length <= length <= theirs.length
                if theirs.K is not None and theirs.V is not None and mine.length < length:
                    new = slice(mine.length, length)
                    mine.extend(theirs.K[:, :, new], theirs.V[:, :, new])
        self._caches[slot].cut(length)

    def free(self, slot: int) -> None:
        self._caches[slot] = self.net.new_cache(self.room)

    @property
    def nbytes(self) -> int:
        """Taken now."""
        return sum(cache.nbytes() for cache in self._caches)
