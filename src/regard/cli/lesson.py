"""`regard lesson`: an example from the lectures, computed step by step in the terminal."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import (
    AsJSON,
    bold,
    check_writable,
    dim,
    load_model,
    print_aligned,
    print_json,
    print_styled,
    readable_path,
)

if TYPE_CHECKING:
    from regard.explain.trace import Array
    from regard.teach.lesson import Step


def command(
    name: Annotated[
        str | None, typer.Argument(help="A lesson's name; without it, all are listed.", metavar="NAME")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the lesson's bars to a file: .svg, .png or .pdf.", metavar="FILE")
    ] = None,
    json: AsJSON = False,
) -> None:
    """Work through one of the lectures' examples. Every matrix is computed when the lesson is shown.

    regard lesson
    regard lesson three-inputs
    regard lesson gradient-flow --plot flow.svg
    regard lesson the-cat-sat --json
    """
    from regard.teach.lesson import LESSONS, lesson

    if name is None:
        if json:
            print_json([{"name": key, "title": each.title} for key, each in LESSONS.items()])
        else:
            print_aligned([(key, each.title) for key, each in LESSONS.items()])
        return
    chosen = lesson(name)
    if plot is not None:
        from regard.teach.lesson.draw import draw

        check_writable(plot)
        draw(chosen, plot, load_model)
    if json:
        print_json(chosen.to_json(load_model)["steps"])
        return
    print_styled(bold(chosen.title))
    for i, step in enumerate(chosen.steps(load_model), 1):
        print()
        print_wrapped(step.say, f"{i}. ")
        names = chosen.names(step)
        for line in bars(step, names) if step.bars else rows(step.formula, step.value, names, step.columns):
            print_styled(f"   {line}")
        if step.by_hand:
            print_wrapped(step.by_hand, "   ", faint=True)
    if plot is not None:
        print(f"\nThe figure is {readable_path(plot.absolute())}.")


def print_wrapped(text: str, lead: str, faint: bool = False) -> None:
    import textwrap

    for line in textwrap.wrap(text, 80, initial_indent=lead, subsequent_indent=" " * len(lead)):
        print_styled(dim(line) if faint else line)


LINE = 77  # characters of a line, after an indent of three


def rows(formula: str, value: "Array", names: tuple[str, ...], columns: tuple[str, ...] = ()) -> list[str]:
    """The matrix with its formula before the middle row, its rows' names after them and its columns' names above."""
    finite = value[abs(value) < math.inf]  # a mask's −∞ has no decimals
    decimals = next((n for n in range(6) if not (abs(finite.round(n) - finite) > 1e-9).any()), 6)
    cells = [[figure(x, decimals) for x in row] for row in value.tolist()]
    widths = [max(len(c) for row in cells for c in row)] * len(cells[0])
    if columns:
        widths = [max(width, len(name)) for width, name in zip(widths, columns, strict=True)]
    label = f"{formula} = "
    wide = len(label) + sum(widths) + 2 * len(widths) + 4 + max(map(len, names), default=0) > LINE
    lines = [label.rstrip()] if wide else []  # a formula that leaves too little room has a line of its own
    indent = 3 if wide else len(label)
    if columns:
        lines.append(" " * (indent + 2) + "  ".join(f"{c:>{w}}" for c, w in zip(columns, widths, strict=False)))
    for i, row in enumerate(cells):
        lead = label if i == len(cells) // 2 and not wide else " " * indent
        left, right = ("[", "]") if len(cells) == 1 else ("⎡⎢⎣"[edge(i, len(cells))], "⎤⎥⎦"[edge(i, len(cells))])
        name = f"  {names[i]}" if names else ""
        written = "  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True))
        lines.append(f"{lead}{left} {written} {right}{name}")
    return lines


def edge(i: int, n: int) -> int:
    return 0 if i == 0 else 2 if i == n - 1 else 1


def figure(x: float, decimals: int) -> str:
    """Whole numbers plainly, others with the decimals the matrix needs, and ∞ as itself."""
    if abs(x) == float("inf"):
        return "∞" if x > 0 else "-∞"
    return f"{x:.0f}" if x == round(x) else f"{x:z.{decimals}f}"  # z: no -0.000000


# ── bars ────────────────────────────────────────────────────────────────────────────────────────────────────────────

EIGHTHS = " ▏▎▍▌▋▊▉█"
NUMBER = 7  # characters of 1.2e-05, or of 28155.4 rounded


def bars(step: "Step", names: tuple[str, ...]) -> list[str]:
    """A bar and a number per cell, all on one scale, which the last line gives."""
    import math

    label = max(len(name) for name in names)
    width = min(24, (76 - label) // len(step.columns) - NUMBER - 3)
    values = step.value.tolist()
    placed = [[math.log10(x) if step.bars == "log" else x for x in row] for row in values]
    low = math.floor(min(min(row) for row in placed)) if step.bars == "log" else 0.0
    high = max(max(row) for row in placed)
    lines = [step.formula, " " * label + "".join(f"  {name:<{width + NUMBER + 1}}" for name in step.columns)]
    for name, row, lengths in zip(names, values, placed, strict=True):
        drawn = (bar((x - low) / ((high - low) or 1), width) for x in lengths)
        cells = (f"  {each} {short(x):>{NUMBER}}" for each, x in zip(drawn, row, strict=True))
        lines.append(f"{name:<{label}}{''.join(cells)}")
    scale = f"logarithmic, from {short(10**low)}" if step.bars == "log" else "from 0"
    return [line.rstrip() for line in lines] + [dim(f"Bars are {scale}.")]


def bar(share: float, width: int) -> str:
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return f"{'█' * (eighths // 8)}{EIGHTHS[eighths % 8].strip()}".ljust(width)


def short(x: float) -> str:
    """At most seven characters: 0.0123, 14.8, 28155, 1.2e-05."""
    return f"{x:.3g}" if 1e-3 <= abs(x) < 1e3 or x == 0 else f"{x:.0f}" if 1e3 <= abs(x) < 1e6 else f"{x:.1e}"
