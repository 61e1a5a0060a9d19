"""`metrics.jsonl`: a line of JSON per logged step, evaluation and recording of the probes.

In: a run's directory. Out: the lines as dictionaries whose values have the types that the training loop writes. A killed
run leaves half a line, a full disk or an editor worse: invalid lines are skipped, with one warning.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError, NotFound
from regard.safe_open import BadJSON, open_file, parse_json
from regard.store.atomic_write import replace_file

log = logging.getLogger("regard")

METRICS = "metrics.jsonl"
MAX_BYTES = 1 << 30
MAX_LINE_BYTES = 1 << 20  # bytes; a line has a few numbers per layer and head
MAX_ENTRIES = 4096  # metrics or layers in a line


def read_metrics(run: Path) -> list[dict[str, Any]]:
    path = run / METRICS
    if not path.exists():
        raise NotFound(f"{run} has no metrics.jsonl, so it is not a training run.")
    return [line for _, line in _good_lines(path)]


def trim_metrics(run: Path, step: int) -> None:
    """Drop what was logged after the checkpoint that the run is resumed from; it will be logged again."""
    path = run / METRICS
    if path.exists():
        with replace_file(path) as file:
            for raw, line in _good_lines(path):
                if line["step"] <= step:
                    file.write(raw.rstrip() + b"\n")


def _good_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    damaged = 0
    try:
        for raw in _raw_lines(path):
            line = _parsed(raw)
            if line is not None:
                yield raw, line
            elif raw.strip():
                damaged += 1
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror}.") from problem
    if damaged:
        log.warning("%s: %d damaged line%s skipped", path, damaged, " is" if damaged == 1 else "s are")


def _raw_lines(path: Path) -> Iterator[bytes]:
    """The lines; of one that is too long, only the beginning."""
    with open_file(path, DataError, MAX_BYTES) as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield line
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = parse_json(raw, allow_nan=True)
    except BadJSON:
        return None
    if not isinstance(line, dict) or "step" not in line or ("lr" in line and "loss" not in line):
        return None
    return line if all(FITS[name](value) for name, value in line.items() if name in FITS) else None


def _is_number(value: object) -> bool:
    """Whether it is a number; NaN and infinity are, since an evaluation may result in them."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and len(value) <= MAX_ENTRIES and all(map(_is_number, value.values()))


def _are_heads(value: object) -> bool:
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_ENTRIES:
        return False
    return all(isinstance(heads, list) and heads and all(map(_is_number, heads)) for heads in value.values())


FITS: dict[str, Callable[[Any], bool]] = {
    "step": lambda value: type(value) is int and 0 <= value < 1 << 53,
    **dict.fromkeys(("loss", "lr", "grad_norm", "rate", "memory", "seconds"), _is_number),
    **dict.fromkeys(("eval", "layer_norms"), _are_numbers),
    "entropy": _are_heads,
}
