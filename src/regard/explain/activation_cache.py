"""The activation cache of a trace: which arrays of the run are in memory, within a limit of bytes.

Arrays outside blocks (embeddings, the output of each block, final norm, logits) are never evicted: from them any block can
be run again. Arrays inside blocks are evicted block by block, the least recently used first; `Trace` recomputes them.
"""

import re
from collections import Counter, OrderedDict
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from regard.errors import TaskError

Array = NDArray[Any]

BLOCK = re.compile(r"(encoder|decoder)\.\d+(?=\.)")


class ActivationCache:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.outside: dict[str, Array] = {}
        self.inside: OrderedDict[str, dict[str, Array]] = OrderedDict()  # by block, the most recently used last
        self._sizes: Counter[str | None] = Counter()  # bytes, by block; None: outside
        self.nbytes = 0  # in total; other threads may read it while a block runs

    def put(self, name: str, block: str | None, x: Array) -> None:
        """Store an array that is inside `block`, or outside blocks (None)."""
        stored = self.outside if block is None else self.inside.setdefault(block, {})
        before = stored.get(name)
        more = x.nbytes - (0 if before is None else before.nbytes)
        self._sizes[block] += more
        self.nbytes += more
        stored[name] = x

    def get(self, name: str, block: str) -> Array | None:
        """An array inside a block, if it is in memory."""
        x = self.inside.get(block, {}).get(name)
        if x is not None:
            self.inside.move_to_end(block)
        return x

    def evict(self, newest: str, size: int, tokens: int) -> None:
        """Evict blocks until the limit holds, after `newest` has run, whose inside takes `size` bytes.

        If it does not fit alone, refuse; tokens: the length of the text, for the message.
        """
        needed = self._sizes[None] + size
        if needed > self.limit:
            raise TaskError(
                f"Tracing the inside of {newest} on {tokens:,} tokens takes {needed / 1e9:.2f} GB, and the limit is "
                f"{self.limit / 1e9:.2f} GB; give a shorter text, select nodes with sites=['*.weights', …], or "
                "raise memory_limit."
            )
        for block in [block for block in self.inside if block != newest]:
            if self.nbytes <= self.limit:
                return
            self.nbytes -= self._sizes.pop(block)
            del self.inside[block]


def block_of(name: str) -> str | None:
    """The block that a node belongs to ("decoder.3"), its output included; None for other nodes."""
    found = BLOCK.match(name)
    return found[0] if found else None


@lru_cache(maxsize=1 << 14)  # called for every array of every run
def inside_of(name: str) -> str | None:
    """The block that a node is inside of. A block's output counts as outside."""
    block = block_of(name)
    return None if name == f"{block}.out" else block


def is_block(place: str) -> bool:
    """Whether a part's path is that of a block."""
    return block_of(f"{place}.") == place
