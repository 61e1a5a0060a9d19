"""Small work on one thread.

Choosing a token from a row of logits gains nothing from several threads, and PyTorch's keep spinning for a while after they
are done, on the cores that the native engine's next step needs: two thirds of its speed were lost to that.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes on one thread for this caller; also a decorator."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
