"""The number of compute threads: PyTorch's where PyTorch is imported, else OMP_NUM_THREADS, else this process's cores."""

import os
import sys
from contextlib import suppress


def threads() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):  # it may be half imported, by another thread
        number: int = torch.get_num_threads()
        return number
    with suppress(KeyError, ValueError):
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(number: int) -> None:
    """Set the number of threads of the native engine, and of PyTorch in this thread and those started later."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(number)
    else:
        os.environ["OMP_NUM_THREADS"] = str(number)  # which PyTorch reads when it is imported
