"""How the command line speaks: answers go to stdout, progress and remarks to stderr."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api import Model

ModelName = Annotated[
    str, typer.Argument(help="A name, a directory, a .gguf file, or a name on the hub.", metavar="MODEL")
]
Texts = Annotated[list[str] | None, typer.Argument(help="Texts; without any, a line each from standard input.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
Dtype = Annotated[str | None, typer.Option(help="float32 (unless given), bfloat16 or float16.")]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same text.")]
MaxNewTokens = Annotated[int | None, typer.Option(help="The longest answer, in tokens.")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy; higher is more varied.")]
TopK = Annotated[int | None, typer.Option(help="Sample among the k likeliest; 0 is off.")]
TopP = Annotated[float | None, typer.Option(help="Sample among the likeliest that sum to p.")]
MinP = Annotated[float | None, typer.Option(help="Leave out what is less likely than this share of the likeliest.")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 discourages what was said before.")]
Stop = Annotated[list[str] | None, typer.Option(help="End where this text would appear; may be given several times.")]


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def remark(text: str) -> None:
    print(text, file=sys.stderr)


@contextmanager
def progress(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left, on stderr, only where a person is looking and only for what takes long."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    counts = (DownloadColumn(), Speed()) if unit == "bytes" else (MofNCompleteColumn(), TextColumn(unit))
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *counts,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def load_model(where: str, device: str = "auto", dtype: str | None = None) -> "Model":
    import logging

    from regard.api import load

    logging.basicConfig(format="regard: %(message)s", level=logging.WARNING)
    with progress(f"Loading {where}", "bytes") as tell:
        scale = 4
        return load(where, device=device, dtype=dtype, progress=lambda done, total: tell(scale * done, scale * total))


def texts_or_stdin(texts: list[str] | None) -> list[str]:
    """What was given as arguments, else the lines of standard input; a lone - means standard input too."""
    if texts and texts != ["-"]:
        return texts
    if sys.stdin.isatty():
        raise RegardError("No text was given: put it behind the model's name, or pipe lines into the command.")
    return [line.rstrip("\n") for line in sys.stdin if line.strip()]


def given(**settings: Any) -> dict[str, Any]:
    """Only what the person set; the rest is for the model's own settings to say."""
    return {name: value for name, value in settings.items() if value is not None}


def readable_path(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
