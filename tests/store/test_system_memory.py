"""A container's limit counts where it is below what the machine has."""

from pathlib import Path

import pytest

from regard.store import system_memory


def group(path: Path, limit: str, used: int, inactive: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.current").write_text(f"{used}\n")
    (path / "memory.stat").write_text(f"anon {used - inactive}\nfile {inactive}\ninactive_file {inactive}\n")


def test_the_smallest_limit_around_a_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_memory, "CGROUP", tmp_path)
    own = tmp_path / "own"
    own.write_text("0::/pods/one\n")
    group(tmp_path / "pods" / "one", "max", 5 << 20, 0)
    group(tmp_path / "pods", str(100 << 20), 70 << 20, 10 << 20)
    assert system_memory.container_memory(own) == [40 << 20]
    monkeypatch.setattr(system_memory, "container_memory", lambda: [40 << 20])
    assert system_memory.available_memory() == 40 << 20


@pytest.mark.parametrize("said", ["", "12:memory:/docker/x\n", "0::/nowhere\n", "\0"])
def test_without_a_limit_the_machine_counts(tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_memory, "CGROUP", tmp_path)
    (tmp_path / "own").write_text(said)
    assert system_memory.container_memory(tmp_path / "own") == []
