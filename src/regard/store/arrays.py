"""An opened model → its weights as float32 numpy arrays, for the reference; without PyTorch."""

import logging
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from regard.model.shapes import shapes
from regard.store.open_model import Opened, plan_weights, refuse_if_too_large

log = logging.getLogger("regard")
Progress = Callable[[int, int], None]  # numbers done, numbers in all


def load_arrays(
    opened: Opened, progress: Progress | None = None, *, only: Callable[[str], bool] = lambda name: True
) -> dict[str, NDArray[np.float32]]:
    """Every parameter, or those for whose name `only` is true, under each of its names; tied ones are the same array."""
    declared = shapes(opened.spec)
    groups = [group for group in opened.spec.tied if any(map(only, group))]
    needed = {name for name in declared if only(name)}.union(*groups)
    moves = [move for move in plan_weights(opened).moves if needed.intersection(move.ours)]
    sizes = [sum(math.prod(declared[ours]) for ours in move.ours) for move in moves]
    refuse_if_too_large(opened.path, 4 * sum(sizes), "cpu")
    found, done, suspicious = dict[str, NDArray[np.float32]](), 0, list[str]()
    for move, size in zip(moves, sizes, strict=True):
        theirs = opened.file.array(move.theirs)
        with np.errstate(over="ignore", invalid="ignore"):
            sum_is_finite = np.isfinite(theirs.sum())
        if not sum_is_finite and not np.isfinite(theirs).all():
            suspicious.append(move.theirs)
        for name, value in zip(move.ours, move.form.load(theirs, [declared[ours] for ours in move.ours]), strict=True):
            found[name] = np.ascontiguousarray(value)
        done += size
        if progress is not None:
            progress(done, sum(sizes))
    for name in needed & set(opened.table.zero) - found.keys():
        found[name] = np.zeros(declared[name], np.float32)
    for group in groups:
        stored = next(found[name] for name in group if name in found)
        found |= dict.fromkeys(group, stored)
    if suspicious:
        named = ", ".join(suspicious[:3])
        log.warning("%s: %d tensors hold NaN or infinite weights (%s)", opened.path, len(suspicious), named)
    return found
