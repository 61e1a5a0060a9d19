"""Things kept by name, up to a number of them and a number of bytes; what was used longest ago goes first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class Bounded(Generic[T]):
    """`weigh` says what things take together, `most_bytes` what they may take: both are asked again every time something is
    put in or `settle` is called, since lazy things grow. The one used last always stays."""

    def __init__(self, most: int, most_bytes: Callable[[], int], weigh: Callable[[Collection[T]], int]) -> None:
        self.most, self.most_bytes, self._weigh = most, most_bytes, weigh
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        with self._lock:
            return self._weigh(self._kept.values())

    def get(self, name: str) -> T | None:
        with self._lock:
            thing = self._kept.get(name)
            if thing is not None:
                self._kept.move_to_end(name)
            return thing

    def put(self, name: str, thing: T) -> list[T]:
        """Keep it; what had to go for it."""
        with self._lock:
            self._kept[name] = thing
            self._kept.move_to_end(name)
        return self.settle()

    def settle(self) -> list[T]:
        """What has to go since others have grown, or may take less."""
        gone, most = list[T](), self.most_bytes()
        with self._lock:
            while len(self._kept) > 1 and (len(self._kept) > self.most or self._weigh(self._kept.values()) > most):
                gone.append(self._kept.popitem(last=False)[1])
        return gone

    def drop(self, unwanted: Callable[[T], bool]) -> None:
        with self._lock:
            for name in [name for name, thing in self._kept.items() if unwanted(thing)]:
                del self._kept[name]
