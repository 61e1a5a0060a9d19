"""A table looked up by numbers from outside (ids, positions, token types), where one without a row is refused in words."""

from collections.abc import Callable

from torch import Tensor
from torch.compiler import is_compiling

from regard.errors import RegardError


def find_rows(
    look_up: Callable[[Tensor], Tensor], index: Tensor, n_rows: int, refuse: Callable[[int, int], RegardError]
) -> Tensor:
    """`look_up(index)`. refuse: the error about a number, and how many rows there are."""
    if not (index.is_cpu or index.is_meta or is_compiling()):  # a GPU would stop at it, for every text and for good
        check(index, n_rows, refuse)
    try:
        return look_up(index)
    except IndexError:  # on the CPU PyTorch compares every number with the table's size: nothing is compared twice
        check(index, n_rows, refuse)
        raise


def check(index: Tensor, n_rows: int, refuse: Callable[[int, int], RegardError]) -> None:
    for number in (int(index.min()), int(index.max())):
        if not 0 <= number < n_rows:
            raise refuse(number, n_rows)
