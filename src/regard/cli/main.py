"""`regard`: one command with verbs. Each verb is a file here and imports what is heavy only when it runs."""

import os
import sys

import typer

from regard.cli import (
    chat,
    classify,
    convert,
    embed,
    env,
    fill,
    generate,
    inspect,
    lesson,
    models,
    pull,
    tag,
    translate,
    verify,
)
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Transformers you can look inside: run, convert and examine encoder, decoder and encoder-decoder models.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Models are names (see [bold]regard models[/bold]), Hugging Face directories, .gguf files, or names on the hub.",
)

for verb in (
    chat,
    generate,
    translate,
    classify,
    tag,
    fill,
    embed,
    inspect,
    lesson,
    convert,
    verify,
    models,
    pull,
    env,
):
    app.command(name=verb.__name__.rpartition(".")[2])(verb.command)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        from regard import __version__

        print(__version__)
        raise typer.Exit


def run() -> None:
    """The entry point: what goes wrong for a reason is one sentence on stderr, and exit code 2."""
    try:
        app()
    except RegardError as problem:
        print(f"regard: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has gone, as in `regard … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
