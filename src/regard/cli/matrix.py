"""A matrix in the terminal: digits on a blue-white-orange background, as many as fit, and a line about what was left out.

The colours add nothing to the digits. rich detects the terminal's colours and width.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from regard.explain.trace import Array

BLUE, WHITE, ORANGE = (33, 102, 172), (247, 247, 247), (214, 96, 20)  # distinguishable with every kind of colour vision
ROWS, LABEL = 16, 14
NAME = (11, 5)  # maximum width of a column's name: with few columns, with many


def print_matrix(
    console: "Console", values: "Array", rows: Sequence[str], columns: Sequence[str], shares: bool = False
) -> None:
    """Print a matrix. Zero is white, the largest magnitude (of shares: 1) the full colour."""
    import numpy as np

    finite = values[np.isfinite(values)]
    largest = 1.0 if shares else float(np.abs(finite).max()) if finite.size else 1.0
    digits = decimals(largest, shares)
    shown_rows = min(len(rows), ROWS)
    cells = [[figure(x, digits) for x in row] for row in values[:shown_rows].tolist()]
    label = min(LABEL, max(cell_len(visible(name)) for name in rows[:shown_rows]))
    widest = max((len(c) for row in cells for c in row), default=1)
    width = max(widest, min(NAME[len(columns) > 8], max(cell_len(visible(name)) for name in columns))) + 1
    shown = max(1, min(len(columns), (console.width - label - 3) // width))
    head = "".join(right(name, width) for name in columns[:shown])
    console.print(Text(f"  {'':<{label}} {head}", style="dim"), soft_wrap=True)
    for name, row, numbers in zip(rows, values.tolist(), cells, strict=False):
        line = Text(f"  {fit(name, label)} ")
        for x, written in zip(row[:shown], numbers, strict=False):
            line.append(written.rjust(width), ground(x, largest))
        console.print(line, soft_wrap=True)
    left = [f"{shown} of {len(columns):,} columns"] if shown < len(columns) else []
    left += [f"{shown_rows} of {len(rows):,} rows"] if shown_rows < len(rows) else []
    if left:
        console.print(Text(f"  first {' and first '.join(left)}; --json has all", style="dim"))


def ground(x: float, largest: float) -> Style:
    """The background colour of a number, with black or white digits for contrast."""
    if not math.isfinite(x):
        return Style(dim=True)
    share = max(-1.0, min(1.0, x / (largest or 1.0)))
    end = ORANGE if share > 0 else BLUE
    red, green, blue = (round(w + (e - w) * abs(share)) for w, e in zip(WHITE, end, strict=True))
    light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
    return Style(bgcolor=Color.from_rgb(red, green, blue), color=Color.from_rgb(*((0, 0, 0) if light else (255,) * 3)))


def decimals(largest: float, shares: bool) -> int:
    """Three digits or so: 0.123, 1.23, 12.3, 123."""
    if shares:
        return 2
    return 0 if largest >= 100 else 1 if largest >= 10 else 2 if largest >= 0.1 else 4


def figure(x: float, digits: int) -> str:
    if not math.isfinite(x):
        return "-∞" if x < 0 else "∞" if x > 0 else "?"
    return f"{x:.{digits}f}"


def fit(text: str, width: int) -> str:
    """The text in exactly this width, padded, or truncated with …."""
    text = visible(text)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def right(text: str, width: int) -> str:
    """The text right-aligned in this width, with at least a space before it."""
    text = visible(text)
    text = text if cell_len(text) < width else fit(text, width - 1)
    return " " * (width - cell_len(text)) + text


def visible(text: str) -> str:
    """A token on one line: spaces are made visible and control characters replaced."""
    shown = text.replace(" ", "␣").replace("\n", "↵").replace("\t", "→")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
