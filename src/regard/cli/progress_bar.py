"""The progress bar of long work: how much is done, how fast, and the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text


class Rate(ProgressColumn):
    """The rate, in units per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{short(speed)} {self.unit}/s", style="progress.data.speed")


def short(number: float) -> str:
    """Three figures or so: 7.3, 412, 98.1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


@contextmanager
def bar(what: str, unit: str, done: int = 0, total: int = 0) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; until the total is known it is indeterminate."""
    shown = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        Rate(unit),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with shown:
        task = shown.add_task(what, total=total or None, completed=done)
        yield lambda done, total: shown.update(task, completed=done, total=total)
