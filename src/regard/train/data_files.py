"""Patterns on a command line → files → bytes and lines.

In: what follows `--data`: names, globs, `-` for standard input, `a.en,b.fr` for two parallel files. Out: `Source`s, and
their content as a stream: never more than one line of it in memory, every byte of it hashed, so that unchanged files can
be recognised later.
"""

import atexit
import glob
import hashlib
import io
import os
import shutil
import sys
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO

from regard.errors import DataError

MAX_LINE = 16 << 20  # bytes; a longer line is a mistake, or a format that is not made of lines
MTIME_RESOLUTION = 2_000_000_000  # ns; on some file systems two changes closer than this have the same time
COMPANIONS = ("_", ".", "readme", "license", "licence")  # prefixes of files in an archive that are not its text


def expand(patterns: Sequence[str]) -> list[Path]:
    """The files that match names, globs (sorted) and `-`, which is standard input, copied to a temporary file."""
    return [path for pattern in patterns for path in _files_matching(pattern)]


def _files_matching(pattern: str) -> list[Path]:
    if pattern == "-":
        return [_spooled(sys.stdin.buffer)]
    if os.path.isdir(pattern):
        raise DataError(f"{pattern} is a directory; name the files in it, for example {pattern.rstrip('/')}/*.txt.")
    if os.path.exists(pattern):  # a name may contain [ and ]
        return [Path(pattern)]
    found = sorted(Path(name) for name in glob.glob(pattern, recursive=True) if os.path.isfile(name))
    if not found:
        raise DataError(f"{pattern} names no file; check the spelling and the directory it is in.")
    return found


def _spooled(stream: IO[bytes]) -> Path:
    """A stream copied to a temporary file: standard input can be read once, and training reads it several times."""
    folder = tempfile.mkdtemp(prefix="regard-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "stdin.txt")
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as problem:
        raise DataError(f"Standard input cannot be copied to {folder}: {problem.strerror}; set TMPDIR.") from problem
    return path


@dataclass(frozen=True)
class Stamp:
    """A file's size and time of change, known without reading it."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class File:
    """A file, or the one text inside a zip archive."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    @property
    def suffix(self) -> str:
        return PurePath(self.member or self.path).suffix.lower()

    def stamp(self) -> Stamp:
        with _read_errors(self):
            state = self.path.stat()
            if self.member is None:
                size = state.st_size
            else:
                with zipfile.ZipFile(self.path) as archive:
                    size = archive.getinfo(self.member).file_size
            return Stamp(size, state.st_mtime_ns)

    def open(self) -> IO[bytes]:
        with _read_errors(self):
            if self.member is None:
                return self.path.open("rb", buffering=0)
            return zipfile.ZipFile(self.path).open(self.member)  # the archive closes with its last open member

    def sha256(self) -> str:
        """The hash of the content, computed by reading it."""
        with _read_errors(self), self.open() as content:
            digest = hashlib.sha256()
            while block := content.read(1 << 20):
                digest.update(block)
            return digest.hexdigest()


@contextmanager
def _read_errors(file: File) -> Iterator[None]:
    """Reading errors become `DataError`s with the file's name."""
    try:
        yield
    except OSError as problem:
        raise DataError(f"{file.name} cannot be read: {problem.strerror or problem}.") from problem
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, KeyError) as problem:
        raise DataError(f"{file.name} is not a zip archive that can be opened: {problem}.") from problem


def open_path(path: Path) -> File:
    """The file at a path; for an archive, the one text in it that is not a readme or a licence."""
    if path.suffix.lower() != ".zip":
        return File(path)
    with _read_errors(File(path)), zipfile.ZipFile(path) as archive:
        names = [i.filename for i in archive.infolist() if not i.is_dir()]
    texts = [n for n in names if not PurePath(n).name.lower().startswith(COMPANIONS) and "__MACOSX" not in n]
    if len(texts) != 1:
        raise DataError(f"{path} contains {len(texts)} texts; unpack it and name the files to be used.")
    return File(path, texts[0])


@dataclass(frozen=True)
class Source:
    """A file of rows, or two parallel files that are read in step, line by line."""

    files: tuple[File, ...]
    format: str


@dataclass
class Tally:
    """What was read so far: bytes, complete files with their hashes, and how many rows were skipped or shortened, by
    reason."""

    bytes: int = 0
    files: list[dict[str, object]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    shortened: Counter[str] = field(default_factory=Counter)


class Content(io.RawIOBase):
    """A file's bytes as a stream, counted and hashed; at its end the file is recorded in the tally."""

    def __init__(self, file: File, stamp: Stamp, inside: IO[bytes], tally: Tally):
        self._file, self._stamp, self._inside, self._tally = file, stamp, inside, tally
        self._mtime_reliable = stamp.mtime_ns < time.time_ns() - MTIME_RESOLUTION
        self._digest, self._size = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _read_errors(self._file):
            block = self._inside.read(len(buffer))
        buffer[: len(block)] = block
        self._digest.update(block)
        self._size += len(block)
        self._tally.bytes += len(block)
        return len(block)

    def close(self) -> None:
        self._inside.close()
        super().close()

    def record(self) -> None:
        """Call at the end of the file. Its time of change is recorded only if it is old enough to tell later changes."""
        if self._file.stamp() != self._stamp or self._size != self._stamp.size:
            raise DataError(f"{self._file.name} was changed while it was being read; start again when it is complete.")
        mtime_ns = self._stamp.mtime_ns if self._mtime_reliable else None
        stamp = {"path": self._file.name, "size": self._size, "mtime_ns": mtime_ns}
        self._tally.files.append({**stamp, "sha256": self._digest.hexdigest()})


@contextmanager
def _reader(file: File, tally: Tally) -> Iterator["io.BufferedReader[Content]"]:
    """A file to read to its end."""
    with Content(file, file.stamp(), file.open(), tally) as content, io.BufferedReader(content, 1 << 20) as reader:
        yield reader
        content.record()


def blocks(file: File, tally: Tally, size: int = 1 << 16) -> Iterator[bytes]:
    """The content in blocks of `size` bytes."""
    with _reader(file, tally) as reader:
        while block := reader.read(size):
            yield block


def lines(file: File, tally: Tally) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, each with its line end; a byte order mark at the start is dropped."""
    with _reader(file, tally) as reader:
        number = 0
        while line := reader.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise DataError(f"{file.name}:{number}: the line is longer than {MAX_LINE >> 20} MB; break it up.")
            try:
                text = line.decode()
            except UnicodeDecodeError as problem:
                raise not_utf8(file, number, problem) from None
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def not_utf8(file: File, number: int, problem: UnicodeDecodeError) -> DataError:
    byte = problem.object[problem.start]
    return DataError(
        f"{file.name}:{number}: byte 0x{byte:02x} is not UTF-8 text; convert the file, for example with "
        "`iconv -f latin1 -t utf8`."
    )
