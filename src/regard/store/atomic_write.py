"""Atomic writes: a file is replaced as a whole or not at all.

In: a path to replace. Out: a file or directory to write to. The bytes are written to a temporary file on the same disk,
flushed to the disk (fsync) and only then renamed, so a full disk or a killed process leaves the old file, and a memory map
of the old file stays valid.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.errors import CheckpointError


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A temporary hidden directory inside `directory`, hence on the same disk; removed when the block ends.

    A failure to write (disk full, no permission) is a CheckpointError.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".", suffix=".part") as temporary:
            yield Path(temporary)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise CheckpointError(
            f"{directory} cannot be written to: {reason}; choose another place or free some space."
        ) from problem


def move_into_place(stage: Path, directory: Path, names: Sequence[str]) -> None:
    """Flush all finished files to the disk, and only then rename them, in the given order."""
    for name in names:
        refuse_special(directory / name)
        flush(stage / name)
    for name in names:
        os.replace(stage / name, directory / name)
        if os.name != "nt":  # Windows cannot flush a directory
            flush(directory)


def refuse_special(path: Path) -> None:
    """Refuse to replace a directory, a device or a pipe: root could replace even /dev/null."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a regular file, so it is not replaced; choose another name.")


def flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` when the block ends without an exception."""
    refuse_special(path)
    with staging(path.parent) as stage:
        with (stage / path.name).open("xb") as file:
            yield file
        move_into_place(stage, path.parent, [path.name])


def write_json_atomically(path: Path | str, value: object) -> None:
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    with replace_file(Path(path)) as file:
        file.write(text.encode())
