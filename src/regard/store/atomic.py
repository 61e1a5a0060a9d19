"""Writing a file so that it is either the old one or the new one, never a half.

In comes a path to be replaced; out goes somewhere to write. The bytes are written beside their destination, flushed to
the disk and only then renamed, so a full disk or a killed process leaves what was there, and a file still mapped into
memory keeps its bytes until it is let go.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.errors import CheckpointError


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A hidden directory inside `directory`, hence on the same disk, to write in; it is gone when the block ends.

    What cannot be written (disk full, no permission) is refused in one sentence.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".", suffix=".part") as temporary:
            yield Path(temporary)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise CheckpointError(
            f"{directory} cannot be written to: {reason}; choose another place or make room."
        ) from problem


def move_into_place(stage: Path, directory: Path, names: Sequence[str]) -> None:
    """Flush finished files to the disk, all of them, and only then give them their names, in the order told."""
    for name in names:
        refuse_special(directory / name)
        flush(stage / name)
    for name in names:
        os.replace(stage / name, directory / name)
        if os.name != "nt":  # Windows cannot flush a directory
            flush(directory)


def refuse_special(path: Path) -> None:
    """A directory has no bytes to replace, and a device or pipe would be gone for everybody: /dev/null too, for root."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a regular file, so nothing takes its place; choose another name.")


def flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well."""
    refuse_special(path)
    with staging(path.parent) as stage:
        with (stage / path.name).open("xb") as file:
            yield file
        move_into_place(stage, path.parent, [path.name])
