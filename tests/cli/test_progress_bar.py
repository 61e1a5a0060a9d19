"""The progress bar of long work: in a terminal after a delay, and nowhere else."""

import io
import time
from contextlib import redirect_stderr
from typing import Any

import pytest

from regard.cli import console


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    return Screen()


def wait_for_bar(bar: console.DelayedBar) -> None:
    for _ in range(1000):
        if bar.move is not None:
            return
        time.sleep(0.01)
    pytest.fail("no bar appeared")


def test_short_work_shows_no_bar(screen):
    with redirect_stderr(screen), console.progress("Loading", "bytes") as tell:
        tell(5, 10)
    assert screen.getvalue() == ""


def test_long_work_shows_a_bar(screen, monkeypatch):
    monkeypatch.setattr(console, "BAR_DELAY", 0.01)
    tell: Any
    with redirect_stderr(screen), console.progress("Loading", "bytes") as tell:
        tell(5, 10)
        wait_for_bar(tell.__self__)
        tell(7, 10)
    shown = screen.getvalue()
    assert "Loading" in shown
    assert "70%" in shown


def test_no_bar_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(console, "BAR_DELAY", 0.0)
    with console.progress("Loading", "bytes") as tell:
        time.sleep(0.05)
        tell(5, 10)
    assert capsys.readouterr().err == ""


def test_work_that_fails_leaves_no_bar_behind(screen, monkeypatch):
    monkeypatch.setattr(console, "BAR_DELAY", 0.01)
    seen = []

    def work() -> None:
        tell: Any
        with redirect_stderr(screen), console.progress("Loading", "bytes") as tell:
            seen.append(tell.__self__)
            wait_for_bar(seen[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert seen[0].ended
    seen[0].timer.join(5)
    assert not seen[0].timer.is_alive()
