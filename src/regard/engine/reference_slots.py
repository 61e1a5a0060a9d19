"""A scheduler's slots on the reference network: each piece is a forward pass of its own, so that the rest of the batch
changes no bit of it (slots.py)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.engine.reference_decoder import (
    any_weight,
    as_network_arrays,
    prepare_for_decoding,
    to_numpy,
    without_gradients,
)
from regard.engine.slots import CHUNK, SlotInput, bytes_per_token
from regard.engine.top_k import Floats
from regard.model.transformer import DecoderOnly


class ReferenceSlots:
    """`Slots` on the reference network, with numpy arrays or PyTorch tensors."""

    chunk_invariant = False

    def __init__(self, net: DecoderOnly, n_slots: int, capacity: int, chunk: int = CHUNK) -> None:
        prepare_for_decoding(net)
        self.net, self.n_slots, self.capacity, self.chunk = net, n_slots, capacity, chunk
        self.max_bytes = n_slots * capacity * bytes_per_token(net.stack, any_weight(net).itemsize)
        self._caches = [net.new_cache(capacity) for _ in range(n_slots)]

    def feed(self, pieces: Sequence[SlotInput]) -> Floats:
        with without_gradients(self.net):
            rows = [self._forward(piece) for piece in pieces]
            wanted = [to_numpy(row) for row in rows if row is not None]
        return np.concatenate(wanted) if wanted else np.empty((0, self.net.spec.n_vocab), np.float32)

    def _forward(self, piece: SlotInput) -> Any:
        cache = self._caches[piece.slot]
        assert cache.length + len(piece.ids) <= self.capacity, "a sequence is longer than its slot's capacity"
        (ids,) = as_network_arrays(self.net, np.array([piece.ids], np.int64))
        states = self.net.states(ids, None, cache)
        return self.net.logits(states[:, -1:])[:, 0] if piece.wanted else None  # only the last position is unembedded

    def share(self, source: int, slot: int, length: int) -> None:
        if source != slot:
            with without_gradients(self.net):
                self._copy(source, slot, length)
        self._caches[slot].cut(length)

    def _copy(self, source: int, slot: int, length: int) -> None:
        for mine, theirs in zip(self._caches[slot].layers, self._caches[source].layers, strict=True):
            assert mine.length <= length <= theirs.length
            if theirs.K is not None and theirs.V is not None and mine.length < length:
                new = slice(mine.length, length)
                mine.extend(theirs.K[:, :, new], theirs.V[:, :, new])

    def free(self, slot: int) -> None:
        self._caches[slot] = self.net.new_cache(self.capacity)

    @property
    def nbytes(self) -> int:
        """Memory that the KV caches take now."""
        return sum(cache.nbytes() for cache in self._caches)
