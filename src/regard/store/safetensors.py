"""Safetensors checkpoints in Hugging Face's layout ⇄ named tensors.

In comes a model directory (`model.safetensors`, or shards and their index) or one file; out goes a `Checkpoint` whose
tensors are mapped from the disk, not read. `save_checkpoint` goes the other way. Each header is checked here before the
safetensors library maps the file, so what is wrong is said in a sentence naming the file and the tensor. Pickles are
never opened, since opening one runs whatever program is inside.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open

from regard.errors import CheckpointError, NotFound, quoted
from regard.store.atomic import move_into_place, staging
from regard.store.jsonfile import parse_object, read_json
from regard.store.named import Planned

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 100_000
MAX_RANK = 8
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_FORMATS = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """A tensor as a file's header describes it; its bytes are counted from the end of the header."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Checkpoint:
    """Named tensors in one or more files, held open: replacing a file on the disk does not change what is read here."""

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
        self._open = [_map_file(path) for path in self.files]

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

    def dtype(self, name: str) -> torch.dtype:
        return self.entry(name).dtype

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor in its own dtype, mapped privately: writing to it never reaches the disk."""
        home = self._home[self.entry(name).name]
        try:
            return self._open[home].get_tensor(name)
        except (SafetensorError, RuntimeError, ValueError) as problem:
            raise _damaged(self.files[home], f"tensor {quoted(name)} cannot be read ({problem})") from problem


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
    said = read_json(index, "the index of shards").get("weight_map")
    if not isinstance(said, dict) or not said or not all(isinstance(file, str) for file in said.values()):
        raise _damaged(index, "there is no weight_map from tensor names to file names")
    for file, name in {file: name for name, file in said.items()}.items():
        if not file.endswith(".safetensors") or set(file) & set("/\\\0"):
            raise _damaged(index, f"tensor {quoted(name)} is put in {quoted(file)}, which is not a file beside it")
        if not os.path.isfile(directory / file):
            raise _damaged(index, f"tensor {quoted(name)} is put in {quoted(file)}, which is missing")
    checkpoint = Checkpoint([directory / file for file in sorted(set(said.values()))])
    found = {name: checkpoint.file(name).name for name in checkpoint.names}
    for name in (*said, *found):
        if said.get(name) != found.get(name):
            here, there = (quoted(files[name]) if name in files else "no file" for files in (said, found))
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
    """The tensors of a file in the order of their bytes, proved to fill it exactly, and its free-form metadata."""
    try:
        with path.open("rb") as file:
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
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"{subject} is not described by a dtype, a shape and data_offsets")
    kind, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    dtype = DTYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise _damaged(path, f"{subject} has dtype {quoted(kind)}, which is none of {', '.join(DTYPES)}")
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        raise _damaged(path, f"{subject} has shape {quoted(shape)}, not a list of at most {MAX_RANK} sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(path, f"{subject} has data_offsets {quoted(offsets)}, not a beginning and an end")
    needed, given = math.prod(shape) * dtype.itemsize, offsets[1] - offsets[0]
    if needed != given:
        raise _damaged(
            path, f"{subject} of shape {tuple(shape)} takes {needed} bytes, but its data_offsets span {given}"
        )
    return Entry(name, dtype, tuple(shape), *offsets)


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


def _map_file(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError, RuntimeError) as problem:
        raise _damaged(path, f"the safetensors library refuses it ({problem})") from problem


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def save_checkpoint(
    directory: Path | str,
    tensors: Mapping[str, torch.Tensor | Callable[[], torch.Tensor]] | Iterable[Planned],
    *,
    max_shard_bytes: int = 5_000_000_000,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the tensors into `directory`, and remove files of an earlier save that are no longer part of it.

    Tensors may be given as they are, or as functions that make them when their turn comes (and once before that, to
    learn their shape), or `Planned`, which makes them once. One is held in memory at a time. All files are on the disk
    before the first takes its name, so saving over the very checkpoint the tensors are mapped from is safe. `metadata`
    is text for every file's header; by default the `format` that transformers looks for.
    """
    directory = Path(directory)
    plans = [_planned(*pair) for pair in tensors.items()] if isinstance(tensors, Mapping) else list(tensors)
    _check(directory, plans)
    shards = _shards(plans, max_shard_bytes)
    files = _file_names(len(shards))
    with staging(directory) as stage:
        for file, shard in zip(files, shards, strict=True):
            write_file(stage / file, shard, {"format": "pt"} if metadata is None else metadata)
        if len(shards) > 1:
            (stage / INDEX).write_bytes(_index(files, shards))
            files.append(INDEX)
        if any((directory / file).exists() for file in files if file != SINGLE):
            (directory / INDEX).unlink(missing_ok=True)  # lest old and new shards are ever opened as one checkpoint
        move_into_place(stage, directory, files)
        for path in directory.iterdir():
            if path.name not in files and (path.name in {SINGLE, INDEX} or SHARD.fullmatch(path.name)):
                path.unlink()


def _planned(name: str, source: torch.Tensor | Callable[[], torch.Tensor]) -> Planned:
    """A plan to write a tensor in the dtype it has."""
    tensor = source if isinstance(source, torch.Tensor) else source()
    if tensor.dtype not in _FORMATS:
        raise CheckpointError(f"Tensor {quoted(name)} has dtype {tensor.dtype}, which safetensors files cannot hold.")
    make = (lambda: source) if isinstance(source, torch.Tensor) else source
    return Planned(name, tuple(tensor.shape), _FORMATS[tensor.dtype], make)


def _check(directory: Path, plans: list[Planned]) -> None:
    names = set()
    for plan in plans:
        subject = f"{directory} cannot be saved to: tensor {quoted(plan.name)}"
        if plan.name in names or plan.name == "__metadata__":
            raise CheckpointError(f"{subject} has a name that is taken.")
        if plan.format not in DTYPES:
            raise CheckpointError(f"{subject} is to be {plan.format}, which is none of {', '.join(DTYPES)}.")
        names.add(plan.name)


def _nbytes(plan: Planned) -> int:
    return math.prod(plan.shape) * DTYPES[plan.format].itemsize


def _shards(plans: list[Planned], most_bytes: int) -> list[list[Planned]]:
    """Cut the list where a shard would become too large; a tensor larger than that has a shard to itself."""
    shards: list[list[Planned]] = [[]]
    filled = 0
    for plan in plans:
        if shards[-1] and filled + _nbytes(plan) > most_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(plan)
        filled += _nbytes(plan)
    return shards


def _file_names(count: int) -> list[str]:
    return [SINGLE] if count == 1 else [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def _index(files: list[str], shards: list[list[Planned]]) -> bytes:
    weight_map = {plan.name: file for file, shard in zip(files, shards, strict=True) for plan in shard}
    total = sum(_nbytes(plan) for shard in shards for plan in shard)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
    return f"{text}\n".encode()


def write_file(path: Path, plans: list[Planned], metadata: Mapping[str, str]) -> None:
    """The length of the header u64, the header padded to 8 bytes, the tensors; wider numbers first, so all are aligned."""
    plans = sorted(plans, key=lambda plan: -DTYPES[plan.format].itemsize)
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for plan in plans:
        offsets = [at, at + _nbytes(plan)]
        header[plan.name] = {"dtype": plan.format, "shape": list(plan.shape), "data_offsets": offsets}
        at = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for plan in plans:
            file.write(_numbers(plan))


def _numbers(plan: Planned) -> memoryview:
    made = torch.as_tensor(plan.make())
    if tuple(made.shape) != tuple(plan.shape):
        raise CheckpointError(
            f"Tensor {quoted(plan.name)} was planned with shape {tuple(plan.shape)}, made with {tuple(made.shape)}."
        )
    flat = made.detach().to("cpu", DTYPES[plan.format]).contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
