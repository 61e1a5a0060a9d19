"""The bar of long work: there for who looks and waits, and nowhere else."""

import io
import time
from contextlib import redirect_stderr

import pytest

from regard.cli import say


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    return Screen()


def wait_for_bar(waiting: say.Waiting) -> None:
    for _ in range(1000):
        if waiting.move is not None:
            return
        time.sleep(0.01)
    pytest.fail("no bar appeared")


def test_what_is_done_in_a_moment_shows_nothing(screen):
    with redirect_stderr(screen), say.progress("Loading", "bytes") as tell:
        tell(5, 10)
    assert screen.getvalue() == ""


def test_what_takes_longer_shows_how_far_it_is(screen, monkeypatch):
    monkeypatch.setattr(say, "MOMENT", 0.01)
    with redirect_stderr(screen), say.progress("Loading", "bytes") as tell:
        tell(5, 10)
        wait_for_bar(tell.__self__)
        tell(7, 10)
    shown = screen.getvalue()
    assert "Loading" in shown
    assert "70%" in shown


def test_nobody_looks(capsys, monkeypatch):
    monkeypatch.setattr(say, "MOMENT", 0.0)
    with say.progress("Loading", "bytes") as tell:
        time.sleep(0.05)
        tell(5, 10)
    assert capsys.readouterr().err == ""


def test_work_that_fails_leaves_no_bar_behind(screen, monkeypatch):
    monkeypatch.setattr(say, "MOMENT", 0.01)
    seen = []

    def work() -> None:
        with redirect_stderr(screen), say.progress("Loading", "bytes") as tell:
            seen.append(tell.__self__)
            wait_for_bar(seen[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert seen[0].ended
    seen[0].timer.join(5)
    assert not seen[0].timer.is_alive()
