"""The data order: examples are shuffled anew every epoch and cut into batches, from a seed and a cursor of three numbers.

In: how many examples there are (and how long they are), a seed. Out: batches of example indices, and after each of them a
`Cursor` from which the order can be resumed exactly. No permutation is ever stored: where example i goes is computed from
a key, so that resuming in the middle of an epoch costs the same as beginning it. Nothing here depends on a library's
random numbers, which change between versions. The data loader (`train/data.py`) reads the examples.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.splitmix64 import mix

Ints = NDArray[np.int64]
Lengths = NDArray[Any] | Callable[[Ints], NDArray[Any]]

ROUNDS = 8
WINDOW = 8192  # examples among which those of similar length are batched together


class Permutation:
    """A shuffle of 0 … n-1, computed for any index alone.

    A Feistel network permutes the smallest range of 2^k numbers that holds n, halving it into high and low bits that
    take turns in being changed by a keyed hash of the other (Luby and Rackoff, 1988). A number that lands outside goes
    through again until it lands inside, which keeps it a permutation (cycle walking; Black and Rogaway, 2002).
    """

    def __init__(self, n: int, *key: int):
        self.n = n
        bits = max(2, (n - 1).bit_length())
        self._low = bits // 2
        self._masks = [(1 << b) - 1 for b in (bits // 2, bits - bits // 2)]  # of the low and the high half
        text = ",".join(map(str, key)).encode()
        keys = hashlib.blake2b(text, digest_size=8 * ROUNDS, person=b"regard shuffle").digest()
        self._keys = [int.from_bytes(keys[i : i + 8], "little") for i in range(0, len(keys), 8)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        """Where one index goes."""
        if not 0 <= index < self.n:
            raise IndexError(index)
        place: int = self._through(index)
        while place >= self.n:
            place = self._through(place)
        return place

    def __call__(self, indices: NDArray[Any]) -> Ints:
        """Where each of these indices goes."""
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.n):
            raise IndexError(f"{indices.min()} … {indices.max()} of {self.n}")
        places = self._through(indices.astype(np.uint64))
        while len(outside := np.flatnonzero(places >= self.n)):
            places[outside] = self._through(places[outside])
        return places.astype(np.int64)

    def _through(self, x: Any) -> Any:
        """One pass through the Feistel network, of an integer or an array of them (uint64)."""
        halves = [x & self._masks[0], x >> self._low]
        for i, key in enumerate(self._keys):
            changed, other = i % 2, 1 - i % 2
            halves[changed] = halves[changed] ^ (mix(halves[other] + key) & self._masks[changed])
        return halves[0] | (halves[1] << self._low)


@dataclass(frozen=True)
class Cursor:
    """A position in the data: the next batch is number `batch` of window `window` of epoch `epoch`, all from 0."""

    epoch: int = 0
    window: int = 0
    batch: int = 0

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Cursor":
        """The cursor in a checkpoint; `{}` is the beginning."""
        known = set(asdict(cls()))
        if not set(value) <= known or any(type(n) is not int or n < 0 for n in value.values()):
            raise DataError(f"{dict(value)!r} is not a position in the data; resume from another checkpoint.")
        return cls(**value)


class Batch(NamedTuple):
    """The indices of a batch's examples, and the cursor after it."""

    indices: list[int]
    after: Cursor


class Batches:
    """An endless sequence of batches, epoch after epoch, each epoch in an order of its own.

    With `batch_size`, that many examples make a batch; the last one of an epoch may be smaller, or is left out
    (`drop_last`). With `token_budget` and `lengths`, examples are bucketed by length: the epoch's order is cut into windows
    of `window` examples; those of a window are sorted by length and cut into batches whose padded size (examples ×
    longest) is within the budget, and of at most `max_sentences` examples; the window's batches are then shuffled.

    With several ranks (data parallel), a batch is first formed as if there were one and then cut into `world_size`
    contiguous parts whose sizes differ by at most one, so that a step's examples do not depend on the number of ranks. A
    batch of fewer examples than ranks leaves some ranks an empty list. `after` is the same on all ranks.
    """

    def __init__(
        self,
        n: int,
        *,
        seed: int,
        batch_size: int | None = None,
        token_budget: int | None = None,
        lengths: Lengths | None = None,
        max_sentences: int | None = None,
        window: int = WINDOW,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ):
        if (batch_size is None) == (token_budget is None) or (token_budget is not None and lengths is None):
            raise ValueError("Batches need either a batch_size, or a token_budget and lengths.")
        if min(n, batch_size or 1, token_budget or 1, window, world_size) < 1 or not 0 <= rank < world_size:
            raise DataError(f"No batches can be made of {n} examples with these sizes.")
        if drop_last and batch_size is not None and n < batch_size:
            raise DataError(f"There are {n} examples, fewer than one batch of {batch_size}.")
        self.n, self.seed, self.batch_size, self.token_budget = n, seed, batch_size, token_budget
        self.max_sentences, self.shuffle, self.drop_last = max_sentences, shuffle, drop_last
        self.rank, self.world_size = rank, world_size
        self.window = window if batch_size is None else max(1, window // batch_size) * batch_size
        kept = n - n % batch_size if batch_size is not None and drop_last else n
        self.windows = -(-kept // self.window)
        self.dropped = n - kept  # examples that an epoch leaves out
        self._kept, self._lengths = kept, lengths
        if isinstance(lengths, np.ndarray):  # refuse now rather than in the middle of a run
            self._check_fits(int(lengths.argmax()), int(lengths.max()))

    def __iter__(self) -> Iterator[Batch]:
        return self.from_cursor(Cursor())

    def from_cursor(self, cursor: Cursor) -> Iterator[Batch]:
        """The batches from the cursor on, without end."""
        epoch, window, first = cursor.epoch, cursor.window, cursor.batch
        if window >= self.windows or first >= len(self._cut(epoch, window)):
            raise DataError(f"{cursor} is outside the data; it belongs to other data or other batch sizes.")
        while True:
            cut = self._cut(epoch, window)
            following = Cursor(epoch, window + 1) if window + 1 < self.windows else Cursor(epoch + 1)
            for b in range(first, len(cut)):
                after = Cursor(epoch, window, b + 1) if b + 1 < len(cut) else following
                yield Batch(self._share(cut[b]), after)
            epoch, window, first = following.epoch, following.window, 0

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """The batches of one epoch."""
        for batch in self.from_cursor(Cursor(number)):
            yield batch
            if batch.after.epoch > number:
                return

    def count(self, epoch: int = 0) -> int:
        """How many batches an epoch has; with a token budget this differs between epochs and takes a pass over them."""
        if self.batch_size is not None:
            return -(-self._kept // self.batch_size)
        return sum(len(self._cut(epoch, window)) for window in range(self.windows))

    def estimate(self, windows: int = 8) -> float:
        """About how many batches an epoch has, extrapolated from a few windows."""
        if self.batch_size is not None or self.windows <= windows:
            return float(self.count())
        return sum(len(self._cut(0, window)) for window in range(windows)) / windows * (self.n / self.window)

    def _share(self, indices: Ints) -> list[int]:
        start, stop = (len(indices) * r // self.world_size for r in (self.rank, self.rank + 1))
        found: list[int] = indices[start:stop].tolist()
        return found

    def _cut(self, epoch: int, window: int) -> list[Ints]:
        """A window's batches, shuffled."""
        indices = np.arange(window * self.window, min((window + 1) * self.window, self._kept))
        if self.shuffle:
            indices = Permutation(self.n, self.seed, epoch)(indices)
        if self.batch_size is not None:
            return [indices[i : i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        cut = self._by_length(indices)
        return [cut[i] for i in Permutation(len(cut), self.seed, epoch, window)(np.arange(len(cut)))]

    def _by_length(self, indices: Ints) -> list[Ints]:
        assert self.token_budget is not None
        assert self._lengths is not None
        lengths = self._lengths(indices) if callable(self._lengths) else self._lengths[indices]
        order = np.argsort(lengths, kind="stable")
        indices, sizes = indices[order], lengths[order].tolist()
        self._check_fits(int(indices[-1]), sizes[-1])
        starts = [0]
        for i, size in enumerate(sizes):  # ascending, so the newest is the longest
            n = i + 1 - starts[-1]
            if n * size > self.token_budget or (self.max_sentences and n > self.max_sentences):
                starts.append(i)
        return np.split(indices, starts[1:])

    def _check_fits(self, index: int, length: int) -> None:
        if self.token_budget is not None and length > self.token_budget:
            raise DataError(
                f"Example {index} is {length} tokens long and does not fit a batch of {self.token_budget}; "
                "raise the budget, or leave out longer examples."
            )


class Windows:
    """Packing: a stream of tokens cut into blocks of `block_size` inputs, each with the next token as its last target.

    Block i is `span(i)`, block_size + 1 tokens; the next begins block_size later, so that every token but the first is a
    target once an epoch. `dropped` tokens at the end, too few for a block, are never targets. The order of blocks is that
    of `Batches(len(windows), …)`.
    """

    def __init__(self, n_tokens: int, block_size: int):
        self.block_size = block_size
        self._n = max(0, n_tokens - 1) // block_size
        self.dropped = max(0, n_tokens - 1) - self._n * block_size
        if not self._n:
            raise DataError(f"There are {n_tokens} tokens, too few for one block of {block_size}; give more text.")

    def __len__(self) -> int:
        return self._n

    def span(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self._n:
            raise IndexError(index)
        start = index * self.block_size
        return start, start + self.block_size + 1
