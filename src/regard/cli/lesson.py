"""`regard lesson`: a lecture's example, worked number by number in the terminal."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor


def command(name: Annotated[str | None, typer.Argument(help="Which one; without it, the list.")] = None) -> None:
    """Work through one of the lectures' examples.

    [dim]regard lesson three-inputs[/dim]
    """
    from rich.console import Console

    from regard.explain.lesson import LESSONS, lesson

    console = Console(highlight=False)
    if name is None:
        for key, each in LESSONS.items():
            console.print(f"[bold]{key:<14}[/bold] {each.title}")
        return
    chosen = lesson(name)
    console.print(f"[bold]{chosen.title}[/bold]\n")
    for i, step in enumerate(chosen.steps(), 1):
        console.print(f"{i}. {step.say}")
        names = chosen.words if len(step.value) == len(chosen.words) else ()
        for line in rows(step.formula, step.value, names):
            console.print(line, markup=False)
        if step.by_hand:
            console.print(f"   [dim]{step.by_hand}[/dim]")
        console.print()


def rows(formula: str, value: "Tensor", names: tuple[str, ...]) -> list[str]:
    """The matrix with its formula in front of the middle row and its rows' names behind."""
    cells = [[figure(x) for x in row] for row in value.tolist()]
    width = max(len(c) for row in cells for c in row)
    lines = []
    for i, row in enumerate(cells):
        lead = f"{formula} = " if i == len(cells) // 2 else ""
        left, right = ("[", "]") if len(cells) == 1 else ("⎡⎢⎣"[edge(i, len(cells))], "⎤⎥⎦"[edge(i, len(cells))])
        name = f"  {names[i]}" if names else ""
        lines.append(
            f"   {lead:>{len(formula) + 3}}{left} " + "  ".join(f"{c:>{width}}" for c in row) + f" {right}{name}"
        )
    return lines


def edge(i: int, n: int) -> int:
    return 0 if i == 0 else 2 if i == n - 1 else 1


def figure(x: float) -> str:
    """Whole numbers plainly, others with six decimals."""
    return f"{x:.0f}" if x == round(x) else f"{x:.6f}"
