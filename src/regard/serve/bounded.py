"""Things kept by name, up to a number of them and a number of bytes; what was used longest ago goes first."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Bounded(Generic[T]):
    """Weights are asked for again whenever something is put in, since a lazy thing grows. The newest always stays."""

    def __init__(self, most: int, most_bytes: int, weigh: Callable[[T], int]) -> None:
        self.most, self.most_bytes, self._weigh = most, most_bytes, weigh
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

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
            weights = [self._weigh(each) for each in self._kept.values()]
            gone, held = list[T](), sum(weights)
            while len(self._kept) > 1 and (len(self._kept) > self.most or held > self.most_bytes):
                held -= weights[len(gone)]
                gone.append(self._kept.popitem(last=False)[1])
            return gone

    def drop(self, unwanted: Callable[[T], bool]) -> None:
        with self._lock:
            for name in [name for name, thing in self._kept.items() if unwanted(thing)]:
                del self._kept[name]
