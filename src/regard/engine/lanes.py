"""Where the texts of a scheduler stand: slots, each with a cache of its own, that are fed new tokens side by side.

In: pieces of texts, each for its slot. Out: the logits of what follows those pieces that ask for them. `Lanes` is what a
scheduler needs of an engine; `NativeLanes` are the native engine's, `TorchLanes` (torch_lanes.py) PyTorch's.

**What a text gives must not depend on what else is there**, to the last bit. The native engine sums every row by itself, in
an order that depends on nothing else, so all pieces go through together, may be cut anywhere, and a cache may be taken over
at any length: it is `seamless`. PyTorch may round a product of many rows differently from the product of each row alone, so
`TorchLanes` computes every piece on its own; and it may round differently when a text is cut into other pieces, so a prompt
is always cut at multiples of `chunk`, and a cache is taken over by another text at such places only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regard.engine.fast import Engine
from regard.engine.packing import up
from regard.engine.rank import Floats
from regard.model.spec import StackSpec

CHUNK = 64  # tokens of a prompt that are read at a time


@dataclass(frozen=True)
class Piece:
    """New tokens of the text in a slot, and whether to tell what follows them."""

    slot: int
    ids: Sequence[int]
    wanted: bool


class Lanes(Protocol):
    @property
    def slots(self) -> int:
        """Texts that there is room for."""
        ...

    @property
    def room(self) -> int:
        """Tokens that a slot holds, prompt and answer together."""
        ...

    @property
    def chunk(self) -> int:
        """Tokens of a prompt to read at a time."""
        ...

    @property
    def seamless(self) -> bool:
        """Whether the numbers are the same however a text is cut into pieces."""
        ...

    @property
    def most_bytes(self) -> int:
        """What the caches take when every slot is full."""
        ...

    def feed(self, pieces: Sequence[Piece]) -> Floats:
        """Append the pieces, at most one to a slot; logits (wanted pieces, n_vocab) of what follows.

        If this raises, any of the slots may or may not have grown; `share(slot, slot, length)` puts that right.
        """
        ...

    def share(self, source: int, slot: int, length: int) -> None:
        """Make the slot hold the first `length` tokens that `source` holds, of which it has the beginning already.

        With `source` the slot itself: forget what comes after them.
        """
        ...

    def free(self, slot: int) -> None:
        """Forget the slot's text and give its memory back."""
        ...


def bytes_per_token(stack: StackSpec, element: int = 4) -> int:
    """Of keys and values in all layers."""
    return 2 * stack.n_layers * stack.attention.kv_heads * stack.attention.d_k * element


class NativeLanes:
    seamless = True

    def __init__(self, engine: Engine, slots: int, room: int, chunk: int = CHUNK) -> None:
        self.engine, self.slots, self.room, self.chunk = engine, slots, room, chunk
        self.capacity = up(room, 32)
        self.most_bytes = slots * native_bytes(engine, room)
        self._texts = [engine.text(room) for _ in range(slots)]

    def feed(self, pieces: Sequence[Piece]) -> Floats:
        texts, ids = [self._texts[piece.slot] for piece in pieces], [piece.ids for piece in pieces]
        return self.engine.write(texts, ids, self.capacity, wanted=[piece.wanted for piece in pieces])

    def share(self, source: int, slot: int, length: int) -> None:
        mine, theirs = self._texts[slot], self._texts[source]
        assert length <= theirs.length
        if source != slot:
            self.engine.copy(theirs, mine, length)
        mine.cut(length)

    def free(self, slot: int) -> None:
        self._texts[slot] = self.engine.text(self.room)


def native_bytes(engine: Engine, room: int) -> int:
    """What a slot takes when it is full."""
    return engine.text_bytes(engine.written, up(room, 32))
