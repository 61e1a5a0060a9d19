"""Memory from mmap, whose pages take space only once written, and huge pages for the weights.

Huge pages (2 MB) need fewer TLB entries: decoding is a quarter faster. But allocating them can take long, a second for
100 MB where memory is fragmented or a virtual machine's host has to provide it first, so weights are written into ordinary
pages, and Linux collapses these into huge pages in the background while the first answer is being generated.
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
LARGE = 1 << 20  # bytes from which an array is allocated with mmap
HUGE = 2 << 20  # bytes of a huge page
WORTH = 16 << 20  # bytes from which huge pages pay
MADV_COLLAPSE = 25  # since Linux 6.1; Python's mmap does not know it
SECONDS = 0.3  # delay, until the first answer has started


def pages(size: int) -> mmap.mmap:
    """Zeroed memory from mmap; a page takes space only once it is written."""
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    return mmap.mmap(-1, max(size, 1), **own)


def zeros(*shape: int, dtype: type = np.float32) -> NDArray:
    """An array of zeros, aligned to a cache line. Of a large array only what is written takes memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.frombuffer(pages(size), np.uint8) if size >= LARGE else np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class HugePages:
    """Memory for `size` bytes, aligned to a huge page."""

    def __init__(self, size: int) -> None:
        self.size, self.memory = size, pages(size + HUGE)
        whole = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.start = whole + -whole % HUGE
        self.later = size >= WORTH and collapse(self.start, 0)  # zero bytes: only tests for support
        if not self.later and hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)

    def enlarge(self) -> None:
        """Collapse what has been written into huge pages, in a background thread."""
        if self.later:
            threading.Thread(target=self._enlarge, name="large pages", daemon=True).start()

    def _enlarge(self) -> None:
        time.sleep(SECONDS)
        for start in range(self.start, self.start + self.size - HUGE + 1, HUGE):
            if not collapse(start, HUGE):
                return


def collapse(start: int, size: int) -> bool:
    """Collapse these bytes into huge pages (madvise MADV_COLLAPSE); whether the system did it."""
    if sys.platform != "linux":
        return False
    with suppress(AttributeError):  # a C library without it
        return not ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_COLLAPSE)
    return False
