"""Tokenised datasets on the disk: columns of rows of different lengths, in shards, written once and memory-mapped.

In: encoded examples. Out: a directory with a manifest and shards. Shard k of a column is two files:
`NAME-0000k.values`, all its rows concatenated, and `NAME-0000k.ends`, where each of them ends (int64). Everything is little
endian. A directory without `manifest.json` is not a dataset; the manifest is written last and has every file's size and
SHA-256, so a half-written or damaged dataset is never mistaken for a complete one.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.safe_open import open_file, read_json
from regard.train.preprocess import json_sha256

MANIFEST = "manifest.json"
VERSION = 1
SHARD_VALUES = 1 << 27  # values of the longest column after which a new shard begins
FILE_NAME = re.compile(r"[a-z_]+-\d{5}\.(values|ends)")

Array = NDArray[Any]


def dataset_sha256(manifest: Mapping[str, Any]) -> str:
    """A hash of everything the dataset's values depend on: equal for equal data, whatever the files are called."""
    depends = {name: manifest[name] for name in ("version", "task", "tokenizer", "settings")}
    depends["sources"] = [source["sha256"] for source in manifest["sources"]]
    depends["columns"] = {name: column["dtype"] for name, column in manifest["columns"].items()}
    return json_sha256(depends)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Part:
    """A file being written, and its hash."""

    def __init__(self, path: Path):
        self.name, self.bytes, self.digest = path.name, 0, hashlib.sha256()
        self.file: BinaryIO = path.open("xb")

    def write(self, values: Array) -> None:
        data = np.ascontiguousarray(values).data.cast("B") if len(values) else b""
        self.file.write(data)
        self.digest.update(data)
        self.bytes += len(data)

    def close(self) -> dict[str, Any]:
        self.file.close()
        return {"name": self.name, "bytes": self.bytes, "sha256": self.digest.hexdigest()}


class ShardWriter:
    """Writes columns into a directory; `finish` describes them for the manifest."""

    def __init__(self, directory: Path, columns: Mapping[str, str], shard_values: int = SHARD_VALUES):
        for name in columns:
            if not FILE_NAME.fullmatch(f"{name}-00000.ends"):
                raise DataError(f"{name!r} cannot name a column; use small letters and underscores.")
        self._directory, self._columns, self._limit = directory, dict(columns), shard_values
        self._open: dict[str, tuple[_Part, _Part]] = {}
        self._shards: list[dict[str, Any]] = []
        self._rows = 0  # in the open shard
        self._sizes = dict.fromkeys(columns, 0)  # in the open shard
        self._totals = dict.fromkeys(columns, 0)

    def write(self, values: Mapping[str, Array], lengths: Mapping[str, NDArray[np.int64]]) -> None:
        """Append rows: every column's values, concatenated, and their lengths."""
        n = len(next(iter(lengths.values())))
        if n == 0:
            return
        if not self._open:
            self._begin()
        for name, (values_part, ends_part) in self._open.items():
            values_part.write(values[name])
            ends_part.write((self._sizes[name] + np.cumsum(lengths[name])).astype("<i8"))
            self._sizes[name] += len(values[name])
        self._rows += n
        if max(self._sizes.values()) >= self._limit:
            self._end()

    def _begin(self) -> None:
        number = f"{len(self._shards):05d}"
        self._open = {
            name: (
                _Part(self._directory / f"{name}-{number}.values"),
                _Part(self._directory / f"{name}-{number}.ends"),
            )
            for name in self._columns
        }

    def _end(self) -> None:
        files = [part.close() for pair in self._open.values() for part in pair]
        self._shards.append({"rows": self._rows, "files": files})
        for name, size in self._sizes.items():
            self._totals[name] += size
        self._open, self._rows, self._sizes = {}, 0, dict.fromkeys(self._columns, 0)

    def finish(self) -> dict[str, Any]:
        if self._open:
            self._end()
        columns = {n: {"dtype": dtype, "values": self._totals[n]} for n, dtype in self._columns.items()}
        return {"columns": columns, "rows": sum(shard["rows"] for shard in self._shards), "shards": self._shards}

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        for pair in self._open.values():
            for part in pair:
                part.file.close()


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Columns:
    """A dataset: `columns[i]` is row i, a read-only array per column, memory-mapped from the file."""

    def __init__(self, directory: Path | str, *, verify: bool = False):
        self.directory = Path(directory)
        self.manifest = read_json(self.directory / MANIFEST, "the dataset's manifest", DataError)
        try:
            if self.manifest["version"] != VERSION:
                raise self._damaged(f"version {self.manifest['version']!r} is not {VERSION}")
            self.fingerprint = dataset_sha256(self.manifest)
            self.names = tuple(self.manifest["columns"])
            self._shards = [self._map(number, shard) for number, shard in enumerate(self.manifest["shards"])]
            counts = [shard["rows"] for shard in self.manifest["shards"]]
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            raise self._damaged(f"{type(problem).__name__} {problem}") from None
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        if verify:
            self.verify()

    def _damaged(self, what: str) -> DataError:
        return DataError(f"{self.directory} is a damaged dataset: {what}; it has to be prepared again.")

    def _map(self, number: int, shard: Mapping[str, Any]) -> dict[str, tuple[Array, Array]]:
        """Every column's values and ends, memory-mapped, with their sizes checked."""
        recorded = {file["name"]: file["bytes"] for file in shard["files"]}
        found = {}
        for name in self.names:
            dtype = np.dtype(self.manifest["columns"][name]["dtype"]).newbyteorder("<")
            values = self._mapped(f"{name}-{number:05d}.values", recorded, dtype)
            ends = self._mapped(f"{name}-{number:05d}.ends", recorded, np.dtype("<i8"))
            if len(ends) != shard["rows"] or (len(ends) and ends[-1] != len(values)):
                raise self._damaged(f"{name}-{number:05d} does not have the rows it should")
            found[name] = values, ends
        return found

    def _mapped(self, name: str, recorded: Mapping[str, int], dtype: "np.dtype[Any]") -> Array:
        path = self.directory / name
        try:
            size = path.stat().st_size
            if size != recorded[name] or size % dtype.itemsize:
                raise self._damaged(f"{name} has {size} bytes instead of {recorded[name]}")
            return np.asarray(np.memmap(path, dtype, "r")) if size else np.empty(0, dtype)
        except OSError as problem:
            raise self._damaged(f"{name} cannot be read ({problem.strerror})") from None

    def _files(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Every file, and its entry in the manifest."""
        for shard in self.manifest["shards"]:
            for file in shard["files"]:
                yield self.directory / file["name"], file

    def verify(self) -> None:
        """Read everything and compare it with the manifest's SHA-256."""
        for path, recorded in self._files():
            with open_file(path, DataError) as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != recorded["sha256"]:
                    raise self._damaged(f"the content of {path.name} has changed")

    def refuse_if_shrunk(self) -> None:
        """Refuse to read files that have become shorter: reading a mapped file beyond its end would kill the process."""
        for path, recorded in self._files():
            if not path.exists() or path.stat().st_size < recorded["bytes"]:
                raise self._damaged(f"{path.name} was cut off or removed while it was being read")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> dict[str, Array]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        row = int(index - self._starts[number])
        return {name: self._row(name, number, row) for name in self.names}

    def _row(self, name: str, number: int, row: int) -> Array:
        values, ends = self._shards[number][name]
        start, end = (int(ends[row - 1]) if row else 0), int(ends[row])
        if not 0 <= start <= end <= len(values):
            raise self._damaged(f"{name}-{number:05d}.ends puts row {row} from {start} to {end}")
        return values[start:end]

    def lengths(self, name: str) -> NDArray[np.int32]:
        """The length of every row of a column."""
        found = [np.diff(shard[name][1], prepend=0).astype(np.int32) for shard in self._shards]
        return np.concatenate(found) if found else np.empty(0, np.int32)

    def stream(self, name: str) -> "Stream":
        """A column's rows, concatenated, as one sequence."""
        return Stream([shard[name][0] for shard in self._shards])

    def summary(self) -> str:
        """The number of examples and of what was left out, as a message."""
        values = ", ".join(f"{c['values']:,} in {name}" for name, c in self.manifest["columns"].items())
        return f"{len(self):,} examples ({values}); left out: {self.left_out() or 'nothing'}."

    def left_out(self) -> str:
        """How many rows were skipped or truncated, by reason."""
        counts = {**self.manifest["skipped"], **self.manifest.get("shortened", {})}
        return "; ".join(f"{n:,} × {reason}" for reason, n in counts.items())


class Stream:
    """Several arrays as one long one, not copied."""

    def __init__(self, parts: list[Array]):
        self._parts = parts
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, stop: int) -> Array:
        """The values in start … stop - 1; a copy only where they are in two shards."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError((start, stop))
        first, last = np.searchsorted(self._starts, start, "right") - 1, np.searchsorted(self._starts, stop, "left")
        inside = zip(self._parts[first:last], self._starts[first:last], strict=True)
        found = [part[max(0, start - begin) : stop - begin] for part, begin in inside if start < stop]
        return found[0] if len(found) == 1 else np.concatenate([self._parts[0][:0], *found])
