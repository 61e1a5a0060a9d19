"""Slots of a scheduler: each holds the KV cache of one sequence, and all are fed new tokens in one batch.

In: new tokens, each piece for its slot. Out: the logits after those pieces that want them. `Slots` is what a scheduler
needs of an engine; `NativeSlots` run on the native engine, `ReferenceSlots` (reference_slots.py) on the reference network,
with numpy arrays or PyTorch tensors.

**The logits of a sequence must not depend on what else is in the batch**, to the last bit. The native engine sums every row
by itself, in an order that depends on nothing else, so all pieces share a batch, a prompt may be cut anywhere, and a prefix
of a KV cache can be reused at any length: it is `chunk_invariant`. numpy and PyTorch may round a product of many rows
differently from the product of each row alone, so `ReferenceSlots` computes every piece on its own; and they may round
differently when a prompt is cut into other chunks, so its prefill is always cut at multiples of `chunk`, and another
sequence can reuse a prefix of the KV cache only up to such a multiple.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regard.engine.native_engine import NativeEngine
from regard.engine.packing import up
from regard.engine.top_k import Floats
from regard.model.spec import StackSpec

CHUNK = 64  # prompt tokens of one prefill step


@dataclass(frozen=True)
class SlotInput:
    """New tokens of the sequence in a slot: a chunk of its prompt, or its newest token. wanted: whether to return the
    logits after them."""

    slot: int
    ids: Sequence[int]
    wanted: bool


class Slots(Protocol):
    """A fixed number of slots with a KV cache each, on some engine."""

    @property
    def n_slots(self) -> int:
        """Sequences that can run at the same time."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens of a slot's KV cache, prompt and answer together."""
        ...

    @property
    def chunk(self) -> int:
        """Prompt tokens of one prefill step."""
        ...

    @property
    def chunk_invariant(self) -> bool:
        """Whether the logits are the same to the bit however a sequence is cut into pieces."""
        ...

    @property
    def max_bytes(self) -> int:
        """Memory of the KV caches when every slot is full."""
        ...

    def feed(self, pieces: Sequence[SlotInput]) -> Floats:
        """Append the pieces, at most one to a slot, in one forward pass; logits (wanted pieces, n_vocab) after them.

        If this raises, any of the slots may or may not have grown: `share(slot, slot, length)` cuts it back.
        """
        ...

    def share(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` tokens of the KV cache of `source` into the slot, which may hold a part of them already.

        With `source` the slot itself: truncate its KV cache to `length` tokens.
        """
        ...

    def free(self, slot: int) -> None:
        """Evict the slot's sequence and release the memory of its KV cache."""
        ...


def bytes_per_token(stack: StackSpec, element: int = 4) -> int:
    """Bytes of the KV cache per token: keys and values of all layers, `element` bytes per number."""
    return 2 * stack.n_layers * stack.attention.kv_heads * stack.attention.d_k * element


class NativeSlots:
    """`Slots` on the native engine: all pieces in one batch."""

    chunk_invariant = True

    def __init__(self, engine: NativeEngine, n_slots: int, capacity: int, chunk: int = CHUNK) -> None:
        self.engine, self.n_slots, self.capacity, self.chunk = engine, n_slots, capacity, chunk
        self.max_bytes = n_slots * native_slot_bytes(engine, capacity)
        self._caches = [engine.new_cache(capacity) for _ in range(n_slots)]

    def feed(self, pieces: Sequence[SlotInput]) -> Floats:
        caches, ids = [self._caches[piece.slot] for piece in pieces], [piece.ids for piece in pieces]
        return self.engine.forward(caches, ids, up(self.capacity, 32), wanted=[piece.wanted for piece in pieces])

    def share(self, source: int, slot: int, length: int) -> None:
        mine, theirs = self._caches[slot], self._caches[source]
        assert length <= theirs.length
        if source != slot:
            self.engine.copy_prefix(theirs, mine, length)
        mine.truncate(length)

    def free(self, slot: int) -> None:
        self._caches[slot] = self.engine.new_cache(self.capacity)


def native_slot_bytes(engine: NativeEngine, capacity: int) -> int:
    """Memory of one full slot."""
    return engine.cache_bytes(engine.decoder_layout, up(capacity, 32))
