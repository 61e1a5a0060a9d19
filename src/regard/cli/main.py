"""`regard`: one command with verbs. Each verb is a file here, imported when it is asked for, and imports what is heavy only
when it runs."""

import gc
import importlib
import io
import os
import sys

import typer

from regard.cli.page import Verb
from regard.errors import RegardError

VERBS = (
    *("chat", "generate", "translate", "classify", "tag", "fill", "embed", "map", "train", "eval", "report"),
    *("view", "serve", "explain", "lesson", "worksheet", "inspect", "convert", "verify", "models", "pull", "env"),
)
# Objects before Python looks for cycles: what a command imports and reads is kept, and its answers are few. Not so of those
# that go on for hours.
LITTER, LASTING = 100_000, ("serve", "view", "train")


def app(*verbs: str) -> typer.Typer:
    """The command with these verbs: all of them for its help, and one to run one."""
    made = typer.Typer(
        name="regard",
        help="Transformers you can look inside: run, convert and examine encoder, decoder and encoder-decoder models.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="A model is a name (`regard models` lists them), a Hugging Face directory, a .gguf file, or a name on the "
        "hub. Good ones to begin with: `regard chat`, `regard lesson`, `regard inspect gpt2`.",
    )
    for verb in verbs:
        made.command(name=verb, cls=Verb)(importlib.import_module(f"regard.cli.{verb}").command)
    made.callback(invoke_without_command=True)(root)
    return made


def root(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        from regard import __version__

        print(__version__)
        raise typer.Exit


def run() -> None:
    """The entry point: what goes wrong for a reason is one sentence on stderr, and exit code 2."""
    open_what_is_closed()
    if not {*sys.argv[1:2]} & {*LASTING}:
        gc.set_threshold(LITTER)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    try:
        try:
            asked = [word for word in sys.argv[1:2] if word in VERBS]
            app(*(asked or VERBS))(prog_name="regard")
        finally:
            sys.stdout.flush()
    except RegardError as problem:
        fail(str(problem))
    except BrokenPipeError:  # the reader has gone, as in `regard … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as problem:
        fail(f"{problem.filename or 'A file'} cannot be used: {problem.strerror or problem}.")
    except MemoryError:
        fail("There is not enough memory: use a smaller model, fewer texts, or --dtype bfloat16.")
    except KeyboardInterrupt:
        sys.exit(130)


def open_what_is_closed() -> None:
    """A process may be started without standard streams; Python then has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  for as long as the process lives


def fail(sentence: str) -> None:
    print(f"regard: {sentence}", file=sys.stderr)
    sys.exit(2)
