"""Metadata and named tensors → a GGUF file.

In: a path, metadata values by key and `Planned` tensors. Out: a file as strict as llama.cpp's reader demands: tensors in
order, without gaps beyond the padding, under short unique names. The header has each tensor's offset, so shapes and formats
are needed first; the numbers are made one tensor at a time, so that writing needs the memory of the largest tensor only.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import CheckpointError, quoted
from regard.store.atomic_write import replace_file
from regard.store.gguf import ALIGNMENT, ARRAY, KINDS, LETTERS, MAGIC, MAX_RANK, U32, U64, Long, padded
from regard.store.named_tensors import Planned
from regard.store.number_formats import Bytes, named_format, quantize

MAX_NAME_BYTES = 63  # llama.cpp's limit

RANGES = {
    "uint32": range(1 << 32),
    "int32": range(-(1 << 31), 1 << 31),
    "int64": range(-(1 << 63), 1 << 63),
    "uint64": range(1 << 64),
}

Row = Planned | tuple[str, tuple[int, ...], str, Callable[[], Any]]  # a Planned, or its four parts


@dataclass(frozen=True)
class Typed:
    """A metadata value, or the elements of a list, with an explicit kind: `Typed("uint8", [0, 1])`."""

    kind: str
    value: object


def write_gguf(path: Path | str, metadata: Mapping[str, object], tensors: Iterable[Row]) -> None:
    """Write version 3, one tensor in memory at a time, replacing `path` only when all of it is on the disk.

    A value gets the first kind that can represent it of bool, string, uint32 (in lists, int32), wider integers and float32,
    unless it is `Typed`. The alignment is always 32, so a `general.alignment` among the keys is left out.
    """
    path, plans = Path(path), [Planned(*row) for row in tensors]
    header = _header({key: value for key, value in metadata.items() if key != "general.alignment"}, plans, path)
    with replace_file(path) as file:
        file.write(header + _padding(len(header)))
        for plan in plans:
            with _about(f"{path} cannot be written: tensor {quoted(plan.name)}"):
                raw = _numbers(plan)
            file.write(raw.data)
            file.write(_padding(raw.nbytes))


def _padding(size: int) -> bytes:
    return bytes(padded(size, ALIGNMENT) - size)


def _header(metadata: Mapping[str, object], plans: list[Planned], path: Path) -> bytearray:
    header = bytearray(MAGIC + U32.pack(3) + U64.pack(len(plans)) + U64.pack(len(metadata)))
    for key, value in metadata.items():
        with _about(f"{path} cannot be written: metadata key {quoted(key)}"):
            if not key:
                raise CheckpointError("it has no name")
            header += _text(key) + _value(value)
    offset, names = 0, set()
    for plan in plans:
        with _about(f"{path} cannot be written: tensor {quoted(plan.name)}"):
            if plan.name in names:
                raise CheckpointError("two tensors have this name")
            header += _description(plan) + U64.pack(offset)
            offset += padded(named_format(plan.format).nbytes(plan.shape), ALIGNMENT)
            names.add(plan.name)
    return header


@contextmanager
def _about(subject: str) -> Iterator[None]:
    """Prefix the message of a CheckpointError inside the block with its subject."""
    try:
        yield
    except CheckpointError as problem:
        raise CheckpointError(f"{subject}: {problem}.") from None


def _description(plan: Planned) -> bytes:
    if not 1 <= len(plan.shape) <= MAX_RANK or 0 in plan.shape:
        raise CheckpointError(f"shape {plan.shape} does not have 1 to {MAX_RANK} non-empty dimensions")
    name = _text(plan.name)
    if len(name) - U64.size > MAX_NAME_BYTES:
        raise CheckpointError(f"the name is longer than {MAX_NAME_BYTES} bytes, which other readers refuse")
    sizes = b"".join(U64.pack(size) for size in reversed(plan.shape))
    return name + U32.pack(len(plan.shape)) + sizes + U32.pack(named_format(plan.format).id)


def _numbers(plan: Planned) -> Bytes:
    made = plan.make()
    if tuple(made.shape) != tuple(plan.shape):
        raise CheckpointError(f"planned with shape {tuple(plan.shape)}, made with {tuple(made.shape)}")
    if not isinstance(made, np.ndarray):  # PyTorch's
        made = made.detach().cpu()
        made = (made.float() if str(made.dtype) == "torch.bfloat16" else made).numpy()
    return quantize(made, plan.format)


def _value(value: object) -> bytes:
    if not isinstance(value, Typed):
        value = Typed(_kind(value), value)
    if value.kind not in KINDS or value.kind == "array":
        raise CheckpointError(f"{value.kind!r} is not a kind of value")
    kind = U32.pack(KINDS[value.kind])
    if isinstance(value.value, list | tuple | Long):
        return U32.pack(ARRAY) + kind + U64.pack(len(value.value)) + _elements(value.kind, value.value)
    return kind + _elements(value.kind, [value.value])


def _kind(value: object) -> str:
    elements, integers = [value], ("uint32", "int32", "int64", "uint64")
    if isinstance(value, list | tuple | Long):
        elements, integers = list(value), ("int32", "uint32", "int64", "uint64")
    types = {type(element) for element in elements}
    if types == {str} or types == {bool}:
        return "string" if types == {str} else "bool"
    if types <= {int, float} and float in types:
        return "float32"
    if types <= {int}:
        for kind in integers:
            if all(element in RANGES[kind] for element in elements):
                return kind
        raise CheckpointError("no integer of GGUF is that large")
    raise CheckpointError(f"GGUF cannot hold values of type {', '.join(sorted(type.__name__ for type in types))}")


def _elements(kind: str, elements: Sequence[Any]) -> bytes:
    if kind == "string":
        return b"".join(_text(element) for element in elements)
    try:
        return struct.pack(f"<{len(elements)}{LETTERS[KINDS[kind]]}", *elements)
    except (struct.error, OverflowError):
        raise CheckpointError(f"a value does not fit {kind}") from None


def _text(text: object) -> bytes:
    if not isinstance(text, str):
        raise CheckpointError(f"{quoted(text)} is not a string")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise CheckpointError(f"{quoted(text)} cannot be written as UTF-8") from None
    return U64.pack(len(encoded)) + encoded
