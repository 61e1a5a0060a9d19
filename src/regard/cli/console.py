"""Input and output of all verbs: shared arguments and options, stdin, JSON and tables. Results go to stdout, progress and
messages to stderr."""

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
    str, typer.Argument(help="A model's name, directory or .gguf file, or a name on the hub.", metavar="MODEL")
]
Texts = Annotated[
    list[str] | None, typer.Argument(help="Texts; without any, each line of standard input is one.", metavar="TEXT")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Truncate texts that are longer than the model's context, without an error.")
]
Device = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, …", metavar="NAME", show_default=False)
]
Dtype = Annotated[str | None, typer.Option(help="float32 (the default), bfloat16 or float16.", metavar="NAME")]
Cache = Annotated[
    str | None,
    typer.Option(help="Format of the KV cache: f32, f16 or q8; else that of the weights.", metavar="NAME"),
]
Seed = Annotated[int | None, typer.Option(help="Sampling seed: the same seed gives the same text.", metavar="N")]
MaxNewTokens = Annotated[int | None, typer.Option(help="Maximum number of tokens to generate.", metavar="N")]
Temperature = Annotated[
    float | None, typer.Option(help="Sampling temperature: 0 is greedy, higher more varied.", metavar="T")
]
TopK = Annotated[int | None, typer.Option(help="Sample among the K most likely tokens; 0 is off.", metavar="K")]
TopP = Annotated[
    float | None,
    typer.Option(help="Sample among the most likely tokens whose probabilities sum to P.", metavar="P"),
]
MinP = Annotated[
    float | None, typer.Option(help="Drop tokens less likely than P times the most likely one.", metavar="P")
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Above 1 makes tokens that have occurred less likely.", metavar="X")
]
PromptLookup = Annotated[
    int | None,
    typer.Option(
        help="Speculative decoding: draft up to N tokens from earlier text; faster, same output.", metavar="N"
    ),
]
Stop = Annotated[
    list[str] | None, typer.Option(help="Stop before this text; may be given several times.", metavar="TEXT")
]

BAR_DELAY = 0.4  # seconds before a progress bar appears

# ── input ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def texts_or_stdin(texts: list[str] | None) -> list[str]:
    """The texts given as arguments, else the lines of standard input; a lone - means standard input too.

    Blank lines count, so that the result of line 7 is on line 7.
    """
    return texts if texts and texts != ["-"] else read_stdin().removesuffix("\n").split("\n")


def text_or_stdin(text: str | None) -> str:
    """One text: the argument, else all of standard input without its last line break."""
    return text if text is not None and text != "-" else read_stdin().removesuffix("\n")


def stdin_lines() -> Iterator[str]:
    """Lines as they arrive, so that a program can chat through a pipe."""
    try:
        yield from sys.stdin
    except UnicodeDecodeError as problem:
        raise RegardError(f"Standard input is not {problem.encoding.upper()} text.") from None


def read_stdin() -> str:
    if sys.stdin.isatty():
        raise RegardError("No text was given: put it after the model's name, or pipe it into the command.")
    text = "".join(stdin_lines())
    if not text.strip():
        raise RegardError("Standard input is empty: put the text after the model's name, or pipe it in.")
    return text


def check_writable(path: Path, *, directory: bool = False) -> None:
    """Refuse an output path that cannot be written, before the long work rather than after it."""
    if not path.name:
        raise RegardError(f"{path} is a directory; give the name of a file in it.")
    if path.exists() and not path.is_file() and not (directory and path.is_dir()):
        kind = "a directory; give the name of a file in it" if path.is_dir() else "not a regular file; choose another"
        raise RegardError(f"{path} is {kind}.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise RegardError(f"{path} cannot be written, since {folder} is not a directory that may be written to.")
    if path.is_file() and not os.access(path, os.W_OK):
        raise RegardError(f"{path} may not be written to; choose another name.")


def generation_settings(**settings: Any) -> dict[str, Any]:
    """The generation settings that were given, checked before a model is loaded; the others are the model's own."""
    from regard.engine.settings import Settings

    given = {name: value for name, value in settings.items() if value is not None}
    Settings().replace(**given)
    return given


def load_model(where: str, device: str = "auto", dtype: str | None = None, cache: str | None = None) -> "Model":
    show_warnings()
    with progress(f"Loading {Path(where).name}", "parameters") as update:
        from regard.api import load

        return load(where, device=device, dtype=dtype, cache=cache, progress=update)


def show_warnings() -> None:
    """Print the package's warnings on stderr, a line each."""
    import logging

    class ToStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print_stderr(f"regard: {record.getMessage()}")

    logging.getLogger("regard").handlers = [ToStderr(logging.WARNING)]


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_json(value: object) -> None:
    """Print JSON: a list with one item per line, an object with one key per line; NaN and infinity become null."""
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


def print_stderr(text: str) -> None:
    print(clean(text), file=sys.stderr)


class SafeTerminal:
    """Standard output where it is a terminal: escape sequences in text from a model or a file are made visible, so that the
    terminal does not execute them.

    Pipes and files get every character unchanged. Only this package's own styles bypass it, by `stream`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(clean(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def safe_stdout() -> Iterator[None]:
    """Within the block `sys.stdout` is a `SafeTerminal`, if it is a terminal."""
    before: Any = sys.stdout
    terminal: Any = SafeTerminal(before) if before.isatty() else before
    sys.stdout = terminal
    try:
        yield
    finally:
        sys.stdout.flush()
        if sys.stdout is terminal:  # typer replaces it when the reader has closed the pipe
            sys.stdout = before


def raw_stdout() -> TextIO:
    """Standard output for text that is cleaned already and has styles in it."""
    return sys.stdout.stream if isinstance(sys.stdout, SafeTerminal) else sys.stdout


def print_styled(text: str) -> None:
    """Print text with styles from `bold` and `dim`; everything else in it must be this package's own text."""
    print(text, file=raw_stdout())


def bold(text: str) -> str:
    return styled(text, 1)


def dim(text: str) -> str:
    return styled(text, 2)


def styled(text: str, code: int) -> str:
    """The text with an ANSI style; plain if stdout is not a terminal, NO_COLOR is set or TERM is dumb."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{code}m{clean(text)}\033[0m"


def print_aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows as a table, columns two spaces apart, those in `right` right-aligned. Wide characters count as two."""
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
    """A progress bar with rate and time left, on stderr if that is a terminal, once the work has taken BAR_DELAY seconds.

    Call what it yields with the units done and in all. It disappears when the block ends.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar = DelayedBar(clean(what), unit)
    try:
        yield bar.update
    finally:
        bar.end()


class DelayedBar:
    """A progress bar that appears after a delay: importing rich alone takes as long as loading a small model."""

    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit = what, unit
        self.done, self.total = 0, 0
        self.shown, self.ended, self.lock = ExitStack(), False, threading.Lock()
        self.move: Callable[[int, int], None] | None = None
        self.timer = threading.Timer(BAR_DELAY, self.show)
        self.timer.daemon = True
        self.timer.start()

    def update(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.move is not None:
            self.move(done, total)

    def show(self) -> None:
        from regard.cli.progress_bar import bar

        with self.lock:
            if not self.ended:
                self.move = self.shown.enter_context(bar(self.what, self.unit, self.done, self.total))

    def end(self) -> None:
        self.timer.cancel()
        with self.lock:
            self.ended = True
            self.shown.close()


def readable_path(path: Path) -> str:
    """The shortest form of a path: absolute, relative to the current directory, or with ~."""
    here, home = Path.cwd(), Path(os.path.expanduser("~"))
    written = [str(path)]
    if path.is_relative_to(home):
        written.append(f"~/{path.relative_to(home)}")
    if path.is_relative_to(here):
        written.append(str(path.relative_to(here)))
    return min(written, key=len)
