"""Tune glibc's malloc to keep freed memory in the process instead of returning it to the kernel.

glibc returns large blocks to the kernel when they are freed; allocated again, they cost a page fault per 4 kB. A training
step and a trace allocate a hundred megabytes and more of such blocks, and for a small network on a CPU the page faults are
a tenth of the time and more. With other C libraries this does nothing.
"""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
LARGEST = 1 << 30


@cache
def keep_freed_memory() -> None:
    """Apply to this process, from now on. At most the peak usage stays allocated, and of that at most `LARGEST`."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_TRIM_THRESHOLD, LARGEST)
