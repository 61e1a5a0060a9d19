"""TensorBoard where it is installed, and nothing where it is not."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from regard.train.tensorboard import board

LOGS: list[dict[str, Any]] = [
    {"kind": "message", "text": "…"},
    {
        "kind": "log",
        "step": 10,
        "loss": 2.5,
        "lr": 1e-3,
        "grad_norm": 0.5,
        "rate": 1e4,
        "memory": 90,
        "layer_norms": {},
    },
    {"kind": "log", "step": 10, "eval": {"loss": 2.25, "chrf": 40.0}, "seconds": 1.0},
    {"kind": "log", "step": 20, "entropy": {"decoder.0.attend": [1.5, 0.5]}},
]


class Writer:
    made: ClassVar["list[Writer]"] = []

    def __init__(self, log_dir: str, purge_step: int) -> None:
        self.where, self.purged, self.shown, self.open = log_dir, purge_step, list[tuple[str, float, int]](), True
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert self.open
        self.shown.append((name, value, step))

    def close(self) -> None:
        self.open = False


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    stub = ModuleType("torch.utils.tensorboard")
    stub.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stub)
    monkeypatch.setattr(Writer, "made", [])
    return Writer.made


def test_scalars(installed: list[Writer], tmp_path: Path):
    heard = list[dict[str, Any]]()
    with board(tmp_path, heard.append) as tell:
        for event in LOGS:
            tell(event)
    (writer,) = installed
    assert heard == LOGS
    assert (writer.where, writer.purged, writer.open) == (str(tmp_path / "board"), 10, False)
    assert writer.shown == [
        ("train/loss", 2.5, 10),
        ("train/lr", 1e-3, 10),
        ("train/grad_norm", 0.5, 10),
        ("train/rate", 1e4, 10),
        ("train/memory", 90, 10),
        ("eval/loss", 2.25, 10),
        ("eval/chrf", 40.0, 10),
        ("entropy/decoder.0.attend/0", 1.5, 20),
        ("entropy/decoder.0.attend/1", 0.5, 20),
    ]


def test_closed_when_the_run_fails(installed: list[Writer], tmp_path: Path):
    def run() -> None:
        with board(tmp_path, lambda event: None) as tell:
            tell(LOGS[1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert not installed[0].open


def test_only_the_first_process_writes_scalars(installed: list[Writer], tmp_path: Path):
    with board(tmp_path, lambda event: None, first=False) as tell:
        tell(LOGS[1])
    assert not installed


def test_nothing_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # an import of it fails
    heard = list[dict[str, Any]]()
    with board(tmp_path, heard.append) as tell:
        tell(LOGS[1])
    assert heard == [LOGS[1]]
    assert not list(tmp_path.iterdir())
