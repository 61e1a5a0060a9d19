"""An LRU cache with a limit on the number of items and on their bytes; the least recently used is evicted first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class LRU(Generic[T]):
    """`size_of` returns the bytes of all items together, `max_bytes` the bytes they may take. Both are called again
    whenever an item is added or `evict` is called, since lazily computed items grow. The most recently used item stays."""

    def __init__(self, max_items: int, max_bytes: Callable[[], int], size_of: Callable[[Collection[T]], int]) -> None:
        self.max_items, self.max_bytes, self._size_of = max_items, max_bytes, size_of
        self._items: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def nbytes(self) -> int:
        with self._lock:
            return self._size_of(self._items.values())

    def get(self, name: str) -> T | None:
        with self._lock:
            item = self._items.get(name)
            if item is not None:
                self._items.move_to_end(name)
            return item

    def put(self, name: str, item: T) -> list[T]:
        """Store an item; returns those evicted for it."""
        with self._lock:
            self._items[name] = item
            self._items.move_to_end(name)
        return self.evict()

    def evict(self) -> list[T]:
        """Remove and return the items that exceed the limits, which may have changed, as may the items' sizes."""
        evicted, limit = list[T](), self.max_bytes()
        with self._lock:
            while len(self._items) > 1 and (
                len(self._items) > self.max_items or self._size_of(self._items.values()) > limit
            ):
                evicted.append(self._items.popitem(last=False)[1])
        return evicted

    def remove_if(self, unwanted: Callable[[T], bool]) -> None:
        """Remove the items for which `unwanted` is true."""
        with self._lock:
            for name in [name for name, item in self._items.items() if unwanted(item)]:
                del self._items[name]
