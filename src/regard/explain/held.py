"""The numbers of a run that are in memory, and how many bytes they take.

In: seen tensors by name. What lies between blocks (the spine) is always held. Insides of blocks are held while all of them
fit into the limit; beyond that the blocks used least recently are let go. Whoever asks for such a block runs it again.
"""

import re
from collections import Counter, OrderedDict
from functools import lru_cache

from torch import Tensor

from regard.errors import TaskError

BLOCK = re.compile(r"(encoder|decoder)\.\d+(?=\.)")


class Held:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spine: dict[str, Tensor] = {}
        self.inside: OrderedDict[str, dict[str, Tensor]] = OrderedDict()  # by block, that used last at the end
        self._sizes: Counter[str | None] = Counter()  # bytes, by block; None is the spine
        self.nbytes = 0  # of all: a number, which others may read while a block is run

    def keep(self, name: str, place: str | None, x: Tensor) -> None:
        """One more tensor of a block's inside, or (None) of the spine."""
        held = self.spine if place is None else self.inside.setdefault(place, {})
        before = held.get(name)
        more = x.nbytes - (0 if before is None else before.nbytes)
        self._sizes[place] += more
        self.nbytes += more
        held[name] = x

    def find(self, name: str, place: str) -> Tensor | None:
        """A tensor of a block's inside, if it is there."""
        x = self.inside.get(place, {}).get(name)
        if x is not None:
            self.inside.move_to_end(place)
        return x

    def make_room(self, newest: str, inside: int, tokens: int) -> None:
        """A block has just been run whose inside takes so many bytes; tokens: how long the text is, for a refusal."""
        needed = self._sizes[None] + inside
        if needed > self.limit:
            raise TaskError(
                f"Looking into {newest} of this run of {tokens:,} tokens takes {needed / 1e9:.2f} GB, and the limit "
                f"is {self.limit / 1e9:.2f} GB; give a shorter text, choose nodes by sites=['*.weights', …], or "
                "raise memory_limit."
            )
        for place in [place for place in self.inside if place != newest]:
            if self.nbytes <= self.limit:
                return
            self.nbytes -= self._sizes.pop(place)
            del self.inside[place]


def block_of(name: str) -> str | None:
    """The block that a node lies in ("decoder.3"), if it lies in one."""
    found = BLOCK.match(name)
    return found[0] if found else None


@lru_cache(maxsize=1 << 14)  # asked for every tensor of every run
def inside_of(name: str) -> str | None:
    """The block that a node lies inside of. What a block gives out is on the spine."""
    block = block_of(name)
    return None if name == f"{block}.out" else block


def is_block(place: str) -> bool:
    return block_of(f"{place}.") == place
