"""`regard lesson`: a lecture's example, worked number by number in the terminal."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.say import AsJSON, bold, dim, print_aligned, print_json

if TYPE_CHECKING:
    from torch import Tensor


def command(
    name: Annotated[str | None, typer.Argument(help="Which one; without it, the list.", metavar="NAME")] = None,
    json: AsJSON = False,
) -> None:
    """Work through one of the lectures' examples. Every matrix is computed while you look.

    regard lesson
    regard lesson three-inputs
    regard lesson the-cat-sat --json
    """
    from regard.explain.lesson import LESSONS, lesson

    if name is None:
        if json:
            print_json([{"name": key, "title": each.title} for key, each in LESSONS.items()])
        else:
            print_aligned([(key, each.title) for key, each in LESSONS.items()])
        return
    chosen = lesson(name)
    if json:
        print_json([{"say": s.say, "formula": s.formula, "value": s.value.tolist()} for s in chosen.steps()])
        return
    print(bold(chosen.title))
    for i, step in enumerate(chosen.steps(), 1):
        print(f"\n{i}. {step.say}")
        names = chosen.words if len(step.value) == len(chosen.words) else ()
        for line in rows(step.formula, step.value, names):
            print(f"   {line}")
        if step.by_hand:
            print(dim(f"   {step.by_hand}"))


def rows(formula: str, value: "Tensor", names: tuple[str, ...]) -> list[str]:
    """The matrix with its formula in front of the middle row and its rows' names behind."""
    cells = [[figure(x) for x in row] for row in value.tolist()]
    width = max(len(c) for row in cells for c in row)
    lines = []
    for i, row in enumerate(cells):
        lead = f"{formula} = " if i == len(cells) // 2 else " " * (len(formula) + 3)
        left, right = ("[", "]") if len(cells) == 1 else ("⎡⎢⎣"[edge(i, len(cells))], "⎤⎥⎦"[edge(i, len(cells))])
        name = f"  {names[i]}" if names else ""
        lines.append(f"{lead}{left} " + "  ".join(f"{c:>{width}}" for c in row) + f" {right}{name}")
    return lines


def edge(i: int, n: int) -> int:
    return 0 if i == 0 else 2 if i == n - 1 else 1


def figure(x: float) -> str:
    """Whole numbers plainly, others with six decimals."""
    return f"{x:.0f}" if x == round(x) else f"{x:.6f}"
