"""Memory straight from the system, in pages that are filled when they are written, and weights in large pages.

A processor finds its way through large pages (2 MB) faster: decoding gains a quarter. But large ones may be long in coming,
a second for 100 MB where memory is fragmented or a virtual machine's host has to provide it first, so weights are written
into ordinary pages, and Linux gathers these into large ones in the background when the first answer is under way.
"""

import ctypes
import mmap
import sys
import threading
import time
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # bytes of a cache line
LARGE = 1 << 20  # bytes from which an array has pages of its own
HUGE = 2 << 20  # bytes of a large page
WORTH = 16 << 20  # bytes from which large pages pay
MADV_COLLAPSE = 25  # since Linux 6.1; Python's mmap does not know it
SECONDS = 0.3  # after which an answer has begun


def pages(size: int) -> mmap.mmap:
    """Zeros straight from the system, which keeps each page until it is written."""
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    return mmap.mmap(-1, max(size, 1), **own)


def zeros(*shape: int, dtype: type = np.float32) -> NDArray:
    """Zeros at an address that whole cache lines begin at. Of a large array only what is written takes memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.frombuffer(pages(size), np.uint8) if size >= LARGE else np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class Stretch:
    """Memory for `size` bytes that begins where a large page does."""

    def __init__(self, size: int) -> None:
        self.size, self.memory = size, pages(size + HUGE)
        whole = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.start = whole + -whole % HUGE
        self.later = size >= WORTH and collapse(self.start, 0)  # of no bytes: whether it can
        if not self.later and hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)

    def enlarge(self) -> None:
        """What has been written moves into large pages, in the background."""
        if self.later:
            threading.Thread(target=self._enlarge, name="large pages", daemon=True).start()

    def _enlarge(self) -> None:
        time.sleep(SECONDS)
        for start in range(self.start, self.start + self.size - HUGE + 1, HUGE):
            if not collapse(start, HUGE):
                return


def collapse(start: int, size: int) -> bool:
    """Whether the system has gathered these bytes into large pages."""
    if sys.platform != "linux":
        return False
    with suppress(AttributeError):  # a C library without it
        return not ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_COLLAPSE)
    return False
