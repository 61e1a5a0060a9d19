"""`regard report`: a picture of a training run."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import check_writable, show_warnings


def command(
    run: Annotated[Path, typer.Argument(help="A training run's directory.")],
    out: Annotated[Path | None, typer.Option(help="Where to draw it: .svg, .png or .pdf.")] = None,
) -> None:
    """Draw a training run. Its losses, learning rate, gradient norms and attention entropies.

    regard report runs/book
    """
    from regard.train.metrics import read_metrics
    from regard.train.report import draw, summarise

    show_warnings()
    if out is not None:
        check_writable(out)
    lines = read_metrics(run)
    path = draw(run, out, lines)
    print(summarise(run, lines))
    print(f"The picture is {path}.")
