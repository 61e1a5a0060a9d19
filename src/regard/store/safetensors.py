"""Safetensors checkpoints in Hugging Face's layout → named tensors.

In: a model directory (`model.safetensors`, or shards and their index) or one file. Out: a `Checkpoint`, whose tensors are
read on demand. Each header is validated here before anything else is read, so that an error message names the file and the
tensor. Pickles are never opened, since unpickling runs code from the file.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError, NotFound, quoted
from regard.safe_open import open_file, parse_object, read_json
from regard.store.named_tensors import OpenFile
from regard.store.number_formats import Bytes

if TYPE_CHECKING:
    import torch

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 100_000
MAX_RANK = 8
# Number formats: the bytes of one number.
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8}
SIZES |= {"F8_E4M3": 1, "F8_E5M2": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
DTYPES = {  # dtype name in PyTorch (and numpy) → number format
    "bool": "BOOL",
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


@dataclass(frozen=True)
class Entry:
    """A tensor as a file's header describes it; `begin` and `end` count bytes from the end of the header."""

    name: str
    format: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Checkpoint:
    """Named tensors in one or more files (shards), held open: replacing a file does not change what is read here."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.metadata: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}
        self._home: dict[str, int] = {}  # tensor → index of its file
        for index, path in enumerate(self.files):
            entries, metadata = _read_header(path)
            for entry in entries:
                if entry.name in self._entries:
                    first = self.files[self._home[entry.name]]
                    raise CheckpointError(
                        f"Tensor {quoted(entry.name)} is both in {first} and in {path}; fetch them again."
                    )
                self._entries[entry.name], self._home[entry.name] = entry, index
            self.metadata |= metadata
        self._opened = [_open_file(path) for path in self.files]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise NotFound(f"{self.files[0].parent} holds no tensor {quoted(name)}.")
        return self._entries[name]

    def file(self, name: str) -> Path:
        return self.files[self._home[self.entry(name).name]]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.entry(name).shape

    def format(self, name: str) -> str:
        return self.entry(name).format

    def dtype(self, name: str) -> "torch.dtype":
        return dtypes()[self.entry(name).format]

    def raw(self, name: str) -> Bytes:
        """The bytes of a tensor as stored: a view of a private memory map (see `OpenFile`)."""
        entry = self.entry(name)
        return self._opened[self._home[name]].data[entry.begin : entry.end]

    def read(self, name: str) -> Bytes:
        entry = self.entry(name)
        return self._opened[self._home[name]].read(entry.begin, entry.end)

    def array(self, name: str) -> NDArray[np.float32]:
        """A floating-point tensor, as float32."""
        entry = self.entry(name)
        if entry.format not in FLOATS:
            raise CheckpointError(f"{self.file(name)}: tensor {quoted(name)} holds {entry.format}, not floating point.")
        with np.errstate(all="ignore"):  # overflow gives ∞, which the loader reports
            return FLOATS[entry.format](self.read(name)).reshape(entry.shape)

    def tensor(self, name: str, *, mapped: bool = False) -> "torch.Tensor":
        """The tensor in its own dtype: writing to it never reaches the disk."""
        import torch

        raw = self.raw(name) if mapped else self.read(name)
        return torch.from_numpy(raw).view(self.dtype(name)).reshape(self.shape(name))

    def check(self) -> None:
        for opened in self._opened:
            opened.check()

    def maps(self, array: Bytes) -> bool:
        return any(opened.maps(array) for opened in self._opened)

    def release(self) -> None:
        for opened in self._opened:
            opened.release()


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open a model directory or a single `.safetensors` file."""
    path = Path(path)
    if os.path.isdir(path):
        if os.path.isfile(path / SINGLE):  # as in transformers, the single file wins over an index
            return Checkpoint([path / SINGLE])
        if os.path.isfile(path / INDEX):
            return _open_shards(path)
        _refuse_directory(path)
    if not os.path.isfile(path):
        raise NotFound(f"{path} does not exist.")
    if path.suffix.lower() in PICKLES:
        _refuse_pickle(path)
    return Checkpoint([path])


def _open_shards(directory: Path) -> Checkpoint:
    index = directory / INDEX
    weight_map = read_json(index, "the index of shards").get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(file, str) for file in weight_map.values())
    ):
        raise _damaged(index, "there is no weight_map from tensor names to file names")
    for file, name in {file: name for name, file in weight_map.items()}.items():
        if not file.endswith(".safetensors") or set(file) & set("/\\\0"):
            raise _damaged(index, f"tensor {quoted(name)} is put in {quoted(file)}, which is not a file next to it")
        if not os.path.isfile(directory / file):
            raise _damaged(index, f"tensor {quoted(name)} is put in {quoted(file)}, which is missing")
    checkpoint = Checkpoint([directory / file for file in sorted(set(weight_map.values()))])
    found = {name: checkpoint.file(name).name for name in checkpoint.names}
    for name in (*weight_map, *found):
        if weight_map.get(name) != found.get(name):
            here, there = (quoted(files[name]) if name in files else "no file" for files in (weight_map, found))
            raise _damaged(index, f"tensor {quoted(name)} is put in {here}, but it is in {there}")
    return checkpoint


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path} is not usable: {problem}; fetch or save it again.")


def _refuse_directory(directory: Path) -> NoReturn:
    try:
        files = sorted(directory.iterdir())
    except OSError as problem:
        raise CheckpointError(f"{directory} cannot be read: {problem.strerror}.") from problem
    others = [file.name for file in files if file.suffix in {".safetensors", ".gguf"}]
    if others:
        advice = "open that file itself" if len(others) == 1 else f"shards need their {INDEX}"
        raise CheckpointError(f"{directory} holds {quoted(others[0])} but no {SINGLE}; {advice}.")
    for file in files:
        if file.suffix.lower() in PICKLES:
            _refuse_pickle(file)
    raise NotFound(f"{directory} holds no weights: there is neither {SINGLE} nor {INDEX}.")


def _refuse_pickle(path: Path) -> NoReturn:
    raise CheckpointError(
        f"{path} is a pickle, and nothing is ever unpickled because that runs the program inside; if you trust it, "
        'convert it with transformers: AutoModel.from_pretrained("old").save_pretrained("new") writes safetensors.'
    )


def _read_header(path: Path) -> tuple[list[Entry], dict[str, str]]:
    """The tensors of a file in the order of their bytes, checked to cover it exactly, and its free-form metadata."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise _damaged(path, f"the file of {size} bytes claims a header of {length}")
            if length > MAX_HEADER_BYTES:
                raise _damaged(path, f"the header takes {length} bytes, and at most {MAX_HEADER_BYTES} are read")
            text = file.read(length)
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read: {problem.strerror}.") from problem
    if (count := text.count(b'"data_offsets"')) > MAX_TENSORS:
        raise _damaged(path, f"the header lists {count} tensors, and at most {MAX_TENSORS} are read")
    header = parse_object(text, f"The header of {path}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(path, "its __metadata__ is not text by name")
    entries = [_entry(path, name, described) for name, described in header.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    _check_layout(path, entries, size - 8 - length)
    return entries, metadata


def _entry(path: Path, name: str, described: Any) -> Entry:
    subject = f"tensor {quoted(name)}"
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise _damaged(path, f"{subject} has half a character in its name")
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"{subject} is not described by a dtype, a shape and data_offsets")
    kind, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    size = SIZES.get(kind) if isinstance(kind, str) else None
    if size is None:
        raise _damaged(path, f"{subject} has dtype {quoted(kind)}, which is none of {', '.join(SIZES)}")
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        raise _damaged(path, f"{subject} has shape {quoted(shape)}, not a list of at most {MAX_RANK} sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(path, f"{subject} has data_offsets {quoted(offsets)}, not a beginning and an end")
    needed, given = math.prod(shape) * size, offsets[1] - offsets[0]
    if needed != given:
        raise _damaged(
            path, f"{subject} of shape {tuple(shape)} takes {needed} bytes, but its data_offsets span {given}"
        )
    return Entry(name, kind, tuple(shape), *offsets)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def _check_layout(path: Path, entries: list[Entry], size: int) -> None:
    """Tensors must follow each other without overlap or hole and end where the file ends."""
    at = 0
    for entry in entries:
        subject = f"tensor {quoted(entry.name)}"
        if entry.begin < at:
            raise _damaged(path, f"{subject} overlaps the one before it")
        if entry.begin > at:
            raise _damaged(path, f"{subject} begins {entry.begin - at} bytes after the one before it ends")
        if entry.end > size:
            raise _damaged(path, f"{subject} ends {entry.end - size} bytes after the file does")
        at = entry.end
    if at < size:
        raise _damaged(path, f"the last {size - at} bytes belong to no tensor")


def _open_file(path: Path) -> OpenFile:
    """The file from the end of its header on."""
    opened = OpenFile(path)
    opened.start = 8 + int.from_bytes(opened.read(0, 8).tobytes(), "little")
    return opened


def _eight_bits(raw: Bytes) -> NDArray[np.float32]:
    """E4M3: a sign, four bits of exponent, three of fraction; no infinity, and NaN where all but the sign are 1."""
    bits = np.arange(128)
    exponent, fraction = bits >> 3, bits & 7
    positive = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    positive[127] = np.nan
    return np.concatenate([positive, -positive]).astype(np.float32)[raw]


def _as_float32(kind: str) -> Callable[[Bytes], NDArray[np.float32]]:
    return lambda raw: raw.view(kind).astype(np.float32, copy=False)


FLOATS: dict[str, Callable[[Bytes], NDArray[np.float32]]] = {  # bytes (owned by the result) → numbers
    "F8_E4M3": _eight_bits,
    "F8_E5M2": lambda raw: (raw.astype(np.uint16) << 8).view(np.float16).astype(np.float32),
    "BF16": lambda raw: (raw.view("<u2").astype(np.uint32) << 16).view(np.float32),
    **{format: _as_float32(kind) for format, kind in {"F16": "<f2", "F32": "<f4", "F64": "<f8"}.items()},
}


def dtypes() -> "dict[str, torch.dtype]":
    """Number formats as PyTorch names them."""
    import torch

    return {format: getattr(torch, name) for name, format in DTYPES.items()}
