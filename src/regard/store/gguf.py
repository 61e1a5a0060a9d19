"""GGUF files → metadata and named tensors.

In: a path. Out: a `GGUF`: its metadata as Python values and its tensors by name, memory-mapped and dequantized on demand.
Nothing in the file is trusted: every count, length and offset is checked against the size of the file before it is used,
so a damaged or malicious file is refused quickly, with one error message and without a large allocation. Text that is not
UTF-8 is refused too, as the format demands UTF-8. Layout (versions 2 and 3, little-endian):

    magic "GGUF" · version u32 · tensor count u64 · key count u64
    keys      name · kind u32 · value            a string is its length u64 and its UTF-8 bytes
    tensors   name · rank u32 · sizes u64, fastest first · number format u32 · offset u64
    padding to the alignment, then the tensors' bytes at their offsets
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError, NotFound, quoted
from regard.safe_open import open_file
from regard.store.named_tensors import OpenFile
from regard.store.number_formats import FORMATS, Bytes, Format, dequantize

if TYPE_CHECKING:
    import torch

MAGIC = b"GGUF"
ALIGNMENT = 32
MAX_RANK = 4
MAX_ENTRIES = 1 << 15  # keys, and tensors: ten times what large models have
MAX_VALUES = 1 << 22  # elements of all metadata arrays together: several times the largest vocabulary
MAX_NAME_BYTES = 65_535
STRINGS = 1 << 16  # parsed at once
LONG = 1 << 10  # elements from which an array is parsed lazily

# Metadata kinds: their number in the file and, for scalars, the format character of `struct`.
KINDS = {"uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "float32": 6, "bool": 7}
KINDS |= {"string": 8, "array": 9, "uint64": 10, "int64": 11, "float64": 12}
LETTERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
BOOL, STRING, ARRAY = KINDS["bool"], KINDS["string"], KINDS["array"]
_FORMAT_BY_ID = {form.id: form for form in FORMATS.values()}
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's place in the file: `shape` is slowest first, as in torch; `offset` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    format: str
    offset: int
    nbytes: int


class Long(Sequence[Any]):
    """A long metadata array, parsed again on each access: as Python objects a vocabulary would take ten megabytes."""

    def __init__(self, count: int, values: Callable[[], list[Any]]) -> None:
        self.n, self.values = count, values

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: Any) -> Any:
        return self.values()[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.values() == list(other)


class GGUF:
    """An open GGUF file. Raw bytes are views of a private memory map, so writing to them never changes the file."""

    def __init__(
        self, opened: OpenFile, version: int, metadata: dict[str, Any], tensors: dict[str, TensorInfo]
    ) -> None:
        self.path = opened.path
        self.version = version
        self.metadata = metadata
        self.tensors = tensors
        self._opened = opened

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise NotFound(f"{self.path} holds no tensor {quoted(name)}.")
        return self.tensors[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.info(name).shape

    def format(self, name: str) -> str:
        return self.info(name).format

    def raw(self, name: str) -> Bytes:
        """The bytes of a tensor as stored in the file: a view, not a copy."""
        info = self.info(name)
        return self._opened.data[info.offset : info.offset + info.nbytes]

    def check(self) -> None:
        self._opened.check()

    def maps(self, array: Bytes) -> bool:
        return self._opened.maps(array)

    def release(self) -> None:
        self._opened.release()

    def array(self, name: str, *, mapped: bool = False) -> NDArray[np.float32]:
        info = self.info(name)
        raw = self.raw(name) if mapped else self._opened.read(info.offset, info.offset + info.nbytes)
        return dequantize(raw, info.format, info.shape)

    def tensor(self, name: str, dtype: "torch.dtype | None" = None, *, mapped: bool = False) -> "torch.Tensor":
        import torch

        return torch.from_numpy(self.array(name, mapped=mapped)).to(dtype)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_gguf(path: Path | str) -> GGUF:
    """Open the file at `path`; a CheckpointError if it is damaged."""
    path = Path(path)
    if not os.path.isfile(path):
        raise NotFound(f"{path} is not a file.")
    try:
        with open_file(path) as file:
            if file.read(4) != MAGIC:
                raise CheckpointError(f"{path} is not a GGUF file: it does not begin with the letters GGUF.")
        return _Reader(OpenFile(path)).read()
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read: {problem.strerror}.") from problem


class _Reader:
    """The parser: a position in the file, and the name of what is being parsed there, for error messages."""

    def __init__(self, opened: OpenFile) -> None:
        self.opened, self.path = opened, opened.path
        self.data = opened.map
        self.end = len(self.data)
        self.at = len(MAGIC)
        self.values_left = MAX_VALUES
        self.subject = "the header"

    def refuse(self, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} is not a usable GGUF file: {self.subject} {problem}; fetch or make it again."
        )

    def read(self) -> GGUF:
        version = self.version()
        tensor_count = self.count("tensors", least_bytes=32)
        key_count = self.count("keys", least_bytes=13)
        metadata = self.metadata(key_count)
        infos = [self.tensor_info() for _ in range(tensor_count)]
        tensors = self.place(infos, self.alignment(metadata))
        return GGUF(self.opened, version, metadata, tensors)

    # Primitive values.

    def need(self, size: int) -> int:
        """Advance by `size` bytes; returns where they begin."""
        if size > self.end - self.at:
            raise self.refuse("runs past the end of the file")
        start, self.at = self.at, self.at + size
        return start

    def u32(self) -> int:
        return int(U32.unpack_from(self.data, self.need(4))[0])

    def u64(self) -> int:
        return int(U64.unpack_from(self.data, self.need(8))[0])

    def string(self, max_bytes: int | None = None) -> str:
        length = self.u64()
        if max_bytes is not None and length > max_bytes:
            raise self.refuse(f"has a name of {length} bytes")
        start = self.need(length)
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError:
            raise self.refuse("is not UTF-8 text") from None

    def strings(self, count: int) -> Long:
        """`string` count times, vectorised: parsing the vocabulary dominates the time to open a file."""
        parts, done = list[bytes | list[str]](), 0
        while done < count:
            next_ones = min(count - done, STRINGS)
            parts.append(self.short_strings(next_ones) or self.any_strings(next_ones, done))
            done += next_ones
        return Long(count, lambda: [text for part in parts for text in strings_of(part)])

    def short_strings(self, count: int) -> bytes | None:
        """All strings in one buffer, each preceded by a zero byte, if each has 1 to 255 bytes and no zero byte. A length is
        then one byte and seven zeros: candidates are found first and checked against each other. None if any differs."""
        window = np.frombuffer(self.data[self.at : self.at + 40 * count], np.uint8)
        by_offset = [np.flatnonzero(eights(window[i:]) < 256) for i in range(8)]
        starts = np.sort(np.concatenate([8 * found + i for i, found in enumerate(by_offset)]))[:count]
        if len(starts) < count:
            return None
        ends = starts + 8 + window[starts]
        if starts[0] or (starts[1:] != ends[:-1]).any() or ends[-1] > len(window):
            return None
        text, selected = window[: ends[-1]].copy(), np.ones(ends[-1], bool)
        text[starts] = 0  # the separator that remains of a length
        for i in range(1, 8):
            selected[starts + i] = False
        joined = text[selected].tobytes()
        try:
            joined.decode()
        except UnicodeDecodeError:
            return None
        if joined.count(0) != count:
            return None
        self.at += int(ends[-1])
        return joined

    def any_strings(self, count: int, first: int) -> list[str]:
        """`string` in an inlined loop, for elements from index `first` on."""
        data, end, at, length_at = self.data, self.end, self.at, U64.unpack_from
        found = []
        try:
            for _ in range(count):
                start = at + 8
                at = start + length_at(data, at)[0]
                if at > end:
                    raise self.refuse("runs past the end of the file")
                found.append(data[start:at].decode())
        except struct.error:
            raise self.refuse("runs past the end of the file") from None
        except UnicodeDecodeError:
            raise self.refuse(f"has an element {first + len(found)} that is not UTF-8 text") from None
        self.at = at
        return found

    # The sections, in the order of the file.

    def version(self) -> int:
        version = self.u32()
        if version & 0xFFFF == 0:
            raise self.refuse("is big-endian, and only little-endian files are read")
        if version not in (2, 3):
            raise self.refuse(f"has version {version}, and only versions 2 and 3 are read")
        return version

    def count(self, what: str, least_bytes: int) -> int:
        count = self.u64()
        if count > MAX_ENTRIES or count * least_bytes > self.end:
            raise self.refuse(f"claims {count} {what}, more than the file can hold or than are read")
        return count

    def metadata(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index in range(count):
            self.subject = f"metadata key {index}"
            key = self.string(MAX_NAME_BYTES)
            self.subject = f"metadata key {quoted(key)}"
            if key in found:
                raise self.refuse("is given twice")
            found[key] = self.value(self.u32())
        return found

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array()
        return self.plain(kind, 1)[0]

    def array(self) -> Sequence[Any]:
        kind, count = self.u32(), self.u64()
        if kind == ARRAY:
            raise self.refuse("is an array of arrays, which is not supported")
        if count > self.values_left:
            raise self.refuse(f"claims {count} elements, more than a file may have")
        self.values_left -= count
        found = self.strings(count) if kind == STRING else self.plain(kind, count)
        return found if count >= LONG else list(found)

    def plain(self, kind: int, count: int) -> Long:
        if kind not in LETTERS:
            raise self.refuse(f"has a value of unknown kind {kind}")
        layout = f"<{count}{LETTERS[kind]}"
        start = self.need(struct.calcsize(layout))
        raw = self.data[start : self.at]
        if kind == BOOL and max(raw, default=0) > 1:
            raise self.refuse("has a truth value that is neither 0 nor 1")
        return Long(count, lambda: list(struct.unpack(layout, raw)))

    def alignment(self, metadata: Mapping[str, Any]) -> int:
        alignment = metadata.get("general.alignment", ALIGNMENT)
        self.subject = "metadata key 'general.alignment'"
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            raise self.refuse(f"is {quoted(alignment)}, not a power of two")
        return alignment

    def tensor_info(self) -> TensorInfo:
        """One entry of the tensor list; its offset still counts from the start of the tensor data."""
        self.subject = "a tensor"
        name = self.string(MAX_NAME_BYTES)
        self.subject = f"tensor {quoted(name)}"
        rank = self.u32()
        if not 1 <= rank <= MAX_RANK:
            raise self.refuse(f"has {rank} dimensions, not 1 to {MAX_RANK}")
        shape = tuple(self.u64() for _ in range(rank))[::-1]
        if 0 in shape:
            raise self.refuse(f"has an empty dimension in its shape {shape}")
        form = _FORMAT_BY_ID.get(kind := self.u32())
        if form is None:
            raise self.refuse(f"is in number format {kind}, which is none of {', '.join(FORMATS)}")
        return TensorInfo(name, shape, form.name, self.u64(), self.nbytes(form, shape))

    def nbytes(self, form: Format, shape: tuple[int, ...]) -> int:
        try:
            return form.nbytes(shape)
        except CheckpointError as problem:
            raise self.refuse(f"has a shape {shape} that is impossible: {problem}") from None

    def place(self, infos: list[TensorInfo], alignment: int) -> dict[str, TensorInfo]:
        """Absolute offsets, checked against the file's size and for overlap."""
        base = padded(self.at, alignment)
        placed: dict[str, TensorInfo] = {}
        for info in infos:
            self.subject = f"tensor {quoted(info.name)}"
            if info.name in placed:
                raise self.refuse("is given twice")
            if info.offset % alignment:
                raise self.refuse(f"begins at offset {info.offset}, which is not a multiple of {alignment}")
            if base + info.offset + info.nbytes > self.end:
                raise self.refuse(f"of {info.nbytes} bytes at offset {info.offset} runs past the end of the file")
            placed[info.name] = TensorInfo(info.name, info.shape, info.format, base + info.offset, info.nbytes)
        taken = 0
        for info in sorted(placed.values(), key=lambda info: info.offset):
            if info.offset < taken:
                self.subject = f"tensor {quoted(info.name)}"
                raise self.refuse("overlaps another tensor")
            taken = info.offset + info.nbytes
        return placed


def strings_of(part: bytes | list[str]) -> list[str]:
    return part.decode().split("\0")[1:] if isinstance(part, bytes) else part


def eights(raw: Bytes) -> NDArray[np.uint64]:
    """The bytes as little-endian uint64, without a remainder."""
    return raw[: len(raw) // 8 * 8].view("<u8")


def padded(size: int, alignment: int) -> int:
    return size + -size % alignment
