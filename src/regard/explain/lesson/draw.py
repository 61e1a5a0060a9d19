"""A lesson's bars as a picture, for a slide or a handout: a panel per step, a line per column."""

from pathlib import Path
from typing import Any

from regard.errors import TaskError
from regard.explain.lesson.step import Lesson, Load, Step, open_by_name

COLOURS = ("#1b6ca8", "#d95f02", "#7a8da8", "#8a5a9e", "#333333")
FORMATS = (".svg", ".png", ".pdf")


def draw(lesson: Lesson, path: Path, load: Load = open_by_name) -> Path:
    """Written as the ending of its name says: .svg, .png or .pdf."""
    if path.suffix.lower() not in FORMATS:
        raise TaskError(f"{path} has no ending that says what to draw: it can be {', '.join(FORMATS)}.")
    steps = [step for step in lesson.steps(load) if step.bars]
    if not steps:
        raise TaskError(f"The lesson {lesson.title!r} has nothing to plot: its matrices are numbers to be read.")
    import matplotlib

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
