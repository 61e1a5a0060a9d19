"""`regard report`: a figure of a training run's metrics."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import check_writable, show_warnings


def command(
    run: Annotated[Path, typer.Argument(help="A training run's directory.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write: .svg, .png or .pdf; else report.svg in the run.")
    ] = None,
) -> None:
    """Draw the metrics of a training run. Losses, learning rate, gradient norms and attention entropies.

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
    print(f"The figure is {path}.")
