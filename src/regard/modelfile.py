"""The one way in which files of a model or run directory are opened, since such a directory may come from a stranger.

In: a path. Out: an open file or its bytes. Only regular files are opened: a FIFO would never end, a device would never be
empty. Links are followed, because the Hugging Face cache is made of them (`snapshots/…/config.json` → `blobs/…`) and
people keep weights on another disk; what a link leads to must be a regular file of the allowed size like any other.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path

from regard.errors import CheckpointError, RegardError

SMALL = 1 << 20  # settings and templates
LARGE = 64 << 20  # vocabularies and shard indexes; the largest of known models have 35 MB
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_file(path: Path, error: type[RegardError] = CheckpointError, limit: int | None = None) -> BufferedReader:
    """The regular file at `path`, open for reading; refused with `error` if it is another thing or beyond `limit` bytes."""
    try:
        _check(os.stat(path), path, error, limit)  # before it is opened: opening a device or a FIFO can do something
        handle = os.open(path, _FLAGS)  # which does not wait, should it have become a FIFO since
        try:
            _check(os.fstat(handle), path, error, limit)
        except RegardError:
            os.close(handle)
            raise
        return os.fdopen(handle, "rb")
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}.") from problem
    except ValueError:  # a NUL in its name
        raise error(f"{os.fspath(path)!r} cannot be the name of a file.") from None


def read_file(path: Path, limit: int, error: type[RegardError] = CheckpointError) -> bytes:
    """All of a file of at most `limit` bytes."""
    with open_file(path, error, limit) as file:
        try:
            content = file.read(limit + 1)
        except OSError as problem:
            raise error(f"{path} cannot be read: {problem.strerror}.") from problem
    if len(content) > limit:  # it grew, or its size was not told (as in /proc)
        raise _too_large(path, error, limit)
    return content


def _check(found: os.stat_result, path: Path, error: type[RegardError], limit: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path} is not a regular file.")
    if limit is not None and found.st_size > limit:
        raise _too_large(path, error, limit)


def _too_large(path: Path, error: type[RegardError], limit: int) -> RegardError:
    return error(f"{path} is larger than {limit >> 20} MB, which no honest one is.")
