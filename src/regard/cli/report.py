"""`regard report`: a picture of a training run."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import check_writable


def command(
    run: Annotated[Path, typer.Argument(help="A training run's directory.")],
    out: Annotated[Path | None, typer.Option(help="Where to draw it: .svg, .png or .pdf.")] = None,
) -> None:
    """Draw a training run. Its losses, learning rate, gradient norms and attention entropies.

    regard report runs/book
    """
    from regard.train.report import draw, summarise

    if out is not None:
        check_writable(out)
    path = draw(run, out)
    print(summarise(run))
    print(f"The picture is {path}.")
