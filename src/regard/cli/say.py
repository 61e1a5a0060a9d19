"""How the command line listens and speaks: answers go to stdout, progress and remarks to stderr."""

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from regard.errors import RegardError, clean

if TYPE_CHECKING:
    from regard.api import Model

ModelName = Annotated[
    str, typer.Argument(help="A name, a directory, a .gguf file, or a name on the hub.", metavar="MODEL")
]
Texts = Annotated[
    list[str] | None, typer.Argument(help="Texts; without any, a line each from standard input.", metavar="TEXT")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut texts that are too long for the model, instead of refusing them.")
]
Device = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, …", metavar="NAME", show_default=False)
]
Dtype = Annotated[str | None, typer.Option(help="float32 (unless given), bfloat16 or float16.", metavar="NAME")]
Cache = Annotated[
    str | None, typer.Option(help="Keys and values in f32, f16 or q8; else as the weights are.", metavar="NAME")
]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same text.", metavar="N")]
MaxNewTokens = Annotated[int | None, typer.Option(help="The longest answer, in tokens.", metavar="N")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy; higher is more varied.", metavar="T")]
TopK = Annotated[int | None, typer.Option(help="Sample among the K likeliest; 0 is off.", metavar="K")]
TopP = Annotated[float | None, typer.Option(help="Sample among the likeliest that sum to P.", metavar="P")]
MinP = Annotated[float | None, typer.Option(help="Leave out what is below this share of the likeliest.", metavar="P")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 discourages what was said before.", metavar="X")]
PromptLookup = Annotated[
    int | None, typer.Option(help="Guess up to N tokens from earlier text: faster, the same text.", metavar="N")
]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.", metavar="TEXT")]

MOMENT = 0.4  # seconds before a bar appears

# ── listening ───────────────────────────────────────────────────────────────────────────────────────────────────────


def texts_or_stdin(texts: list[str] | None) -> list[str]:
    """What was given as arguments, else the lines of standard input; a lone - means standard input too.

    Blank lines count, so that what is printed for line 7 stands on line 7.
    """
    return texts if texts and texts != ["-"] else read_stdin().removesuffix("\n").split("\n")


def text_or_stdin(text: str | None) -> str:
    """One text: the argument, else all of standard input without its last line break."""
    return text if text is not None and text != "-" else read_stdin().removesuffix("\n")


def stdin_lines() -> Iterator[str]:
    """Lines as they come, so that a conversation can be had through a pipe."""
    try:
        yield from sys.stdin
    except UnicodeDecodeError as problem:
        raise RegardError(f"Standard input is not {problem.encoding.upper()} text.") from None


def read_stdin() -> str:
    if sys.stdin.isatty():
        raise RegardError("No text was given: put it behind the model's name, or pipe it into the command.")
    text = "".join(stdin_lines())
    if not text.strip():
        raise RegardError("Standard input is empty: put the text behind the model's name, or pipe it in.")
    return text


def check_writable(path: Path, *, directory: bool = False) -> None:
    """Refuse a place that cannot be written to before the long work rather than after it."""
    if not path.name:
        raise RegardError(f"{path} is a directory; give the name of a file in it.")
    if path.exists() and not path.is_file() and not (directory and path.is_dir()):
        kind = "a directory; give the name of a file in it" if path.is_dir() else "no regular file; choose another name"
        raise RegardError(f"{path} is {kind}.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise RegardError(f"{path} cannot be written, since {folder} is not a directory that may be written to.")
    if path.is_file() and not os.access(path, os.W_OK):
        raise RegardError(f"{path} may not be written to; choose another name.")


def generation_settings(**settings: Any) -> dict[str, Any]:
    """Only what the person set, refused if out of range before a model is loaded; its own settings say the rest."""
    from regard.engine.settings import Settings

    given = {name: value for name, value in settings.items() if value is not None}
    Settings().replace(**given)
    return given


def load_model(where: str, device: str = "auto", dtype: str | None = None, cache: str | None = None) -> "Model":
    show_warnings()
    with progress(f"Loading {Path(where).name}", "parameters") as tell:
        from regard.api import load

        return load(where, device=device, dtype=dtype, cache=cache, progress=tell)


def show_warnings() -> None:
    """What the package logs becomes a remark."""
    import logging

    class Remarks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            remark(f"regard: {record.getMessage()}")

    logging.getLogger("regard").handlers = [Remarks(logging.WARNING)]


# ── speaking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_json(value: object) -> None:
    """A list stands one item per line, an object one key per line; what JSON has no number for is null."""
    value = finite(value)
    if isinstance(value, list) and value:
        print("[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]")
    else:
        print(json.dumps(value, ensure_ascii=False, indent=2))


def finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def remark(text: str) -> None:
    print(clean(text), file=sys.stderr)


class Screen:
    """Standard output where it is a terminal: what a model or a file says is shown there and never obeyed.

    Pipes and files get every character as it is. Only the styles of this package go past it, to `stream`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(clean(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def on_screen() -> Iterator[None]:
    """Meanwhile `sys.stdout` is a `Screen`, if a person is looking."""
    before: Any = sys.stdout
    screen: Any = Screen(before) if before.isatty() else before
    sys.stdout = screen
    try:
        yield
    finally:
        sys.stdout.flush()
        if sys.stdout is screen:  # typer has put something else there when the reader has gone
            sys.stdout = before


def with_styles() -> TextIO:
    """Standard output for text that is clean already and has styles in it."""
    return sys.stdout.stream if isinstance(sys.stdout, Screen) else sys.stdout


def print_styled(text: str) -> None:
    """Print what `bold` and `dim` made, together with text of this package's own."""
    print(text, file=with_styles())


def bold(text: str) -> str:
    return styled(text, 1)


def dim(text: str) -> str:
    return styled(text, 2)


def styled(text: str, code: int) -> str:
    """Plain wherever nobody looks, and where NO_COLOR or the terminal's own kind asks for it."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{code}m{clean(text)}\033[0m"


def print_aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Rows as columns two spaces apart; those numbered in `right` flush right. Wide characters count as two."""
    from rich.cells import cell_len

    rows = [[" ".join(cell.split("\n")) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if i in right else cell + space)
        print("  ".join(cells).rstrip())


@contextmanager
def progress(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left, on stderr, where a person is looking and work takes longer than a moment.

    It vanishes when the block ends.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    waiting = Waiting(clean(what), unit)
    try:
        yield waiting.tell
    finally:
        waiting.end()


class Waiting:
    """Work in progress, whose bar appears after a moment: importing it alone takes as long as loading a small model."""

    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit = what, unit
        self.done, self.total = 0, 0
        self.shown, self.ended, self.lock = ExitStack(), False, threading.Lock()
        self.move: Callable[[int, int], None] | None = None
        self.timer = threading.Timer(MOMENT, self.show)
        self.timer.daemon = True
        self.timer.start()

    def tell(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.move is not None:
            self.move(done, total)

    def show(self) -> None:
        from regard.cli.bar import bar

        with self.lock:
            if not self.ended:
                self.move = self.shown.enter_context(bar(self.what, self.unit, self.done, self.total))

    def end(self) -> None:
        self.timer.cancel()
        with self.lock:
            self.ended = True
            self.shown.close()


def readable_path(path: Path) -> str:
    """The shortest way to write it."""
    here, home = Path.cwd(), Path(os.path.expanduser("~"))
    written = [str(path)]
    if path.is_relative_to(home):
        written.append(f"~/{path.relative_to(home)}")
    if path.is_relative_to(here):
        written.append(str(path.relative_to(here)))
    return min(written, key=len)
