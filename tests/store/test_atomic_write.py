"""Only regular files are replaced."""

import os
import stat
from pathlib import Path

import pytest

from regard.errors import CheckpointError
from regard.store.atomic_write import move_into_place, replace_file, staging


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """A pipe here; for root /dev/null would be gone for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        with (
            pytest.raises(CheckpointError, match=f"{name} is not a regular file"),
            replace_file(tmp_path / name) as file,
        ):
            file.write(b"new")
        with staging(tmp_path) as stage:
            (stage / name).write_bytes(b"new")
            with pytest.raises(CheckpointError, match=f"{name} is not a regular file"):
                move_into_place(stage, tmp_path, [name])
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "pipe"]
