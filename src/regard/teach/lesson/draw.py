"""A figure of a lesson, for a slide or a handout: a panel per step with bars, a line per column."""

from pathlib import Path
from typing import Any

from regard.errors import TaskError, require
from regard.teach.lesson.step import Lesson, Load, Step, open_by_name

COLOURS = ("#1b6ca8", "#d95f02", "#7a8da8", "#8a5a9e", "#333333")
FORMATS = (".svg", ".png", ".pdf")


def draw(lesson: Lesson, path: Path, load: Load = open_by_name) -> Path:
    """Draw to a file in the format of its suffix: .svg, .png or .pdf."""
    if path.suffix.lower() not in FORMATS:
        raise TaskError(f"The suffix of {path} is not one of {', '.join(FORMATS)}.")
    steps = [step for step in lesson.steps(load) if step.bars]
    if not steps:
        raise TaskError(f"The lesson {lesson.title!r} has nothing to plot: its matrices are shown as numbers only.")
    matplotlib = require("matplotlib", "A picture")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(steps), figsize=(4.4 * len(steps), 3.8), layout="constrained", squeeze=False)
    for axis, step in zip(axes[0], steps, strict=True):
        _panel(axis, step)
    figure.suptitle(lesson.title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path


def _panel(axis: Any, step: Step) -> None:
    for column, values in enumerate(step.value.T.tolist()):
        label = step.columns[column] if step.columns else None
        axis.plot(range(len(values)), values, "o-", ms=3, lw=1.4, color=COLOURS[column % len(COLOURS)], label=label)
    axis.set(title=step.formula, yscale=step.bars)
    axis.set_xticks(range(len(step.rows)), [_short(name) for name in step.rows], fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    if step.columns:
        axis.legend(frameon=False, fontsize=8)


def _short(name: str) -> str:
    """`layer 3` → `3`."""
    return name.rpartition(" ")[2]
