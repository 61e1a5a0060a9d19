"""Memory that was freed is the next step's, or the next run's, not the system's.

glibc returns large blocks to the kernel when they are freed; whoever asks for them again gets them one page fault, 4 kB of
zeros, at a time. A step of training and a run with all its numbers kept (a trace) write a hundred megabytes and more of
such memory, and for a small network on a CPU the faults are a tenth of the time and more. Elsewhere this does nothing.
"""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
LARGEST = 1 << 30


@cache
def keep_freed_memory() -> None:
    """From now on, in this process. No more is kept than was in use at once, and of that no more than `LARGEST`."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_TRIM_THRESHOLD, LARGEST)
