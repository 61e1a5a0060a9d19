"""The command line's entry point: `regard VERB …`. Each verb is a file here, imported when it is used, and does its heavy
imports only when it runs. This file imports nothing that takes time, so that Ctrl-C is handled from the start."""

import atexit
import os
import sys

from regard.errors import RegardError, clean, one_line

TYPE_CHECKING = False  # as in regard/__init__.py
if TYPE_CHECKING:
    from typing import Any

    import typer

VERBS = (
    *("chat", "generate", "translate", "classify", "tag", "fill", "embed", "map", "train", "eval", "report"),
    *(
        "view",
        "serve",
        "explain",
        "lesson",
        "worksheet",
        "inspect",
        "show",
        "convert",
        "verify",
        "models",
        "pull",
        "env",
    ),
)
# Allocations before Python collects garbage: a command keeps most of what it imports and reads, so collecting early is lost
# time. Verbs that run for hours keep Python's default.
GC_THRESHOLD, LONG_RUNNING = 100_000, ("serve", "view", "train")
INTERRUPTED = 130  # the exit code after Ctrl-C


def app(*verbs: str) -> "typer.Typer":
    """The typer application with these verbs: all of them for `regard --help`, only one to run that."""
    import importlib

    import typer

    from regard.cli.help_page import Verb, root

    typer_app = typer.Typer(
        name="regard",
        help="Transformers you can look inside: run, train, serve, convert and explain encoder, decoder and "
        "encoder-decoder models.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="A model is a name (`regard models` lists them), a directory in Hugging Face's layout, a .gguf file, or a "
        "name on the hub. To begin with, try: `regard chat`, `regard lesson`, `regard inspect gpt2`.",
    )
    for verb in verbs:
        typer_app.command(name=verb, cls=Verb)(importlib.import_module(f"regard.cli.{verb}").command)
    typer_app.callback(invoke_without_command=True)(root)
    return typer_app


def run() -> None:
    """The entry point. An error is one sentence on stderr and exit code 2, never a traceback."""
    exit_codes: list[int] = []
    atexit.register(exit_at_end, exit_codes)  # before others register, so that it is called after them
    before, sys.unraisablehook = sys.unraisablehook, raise_interrupt_again
    try:
        exit_codes.append(exit_code())
        exit_on_interrupt()
    except KeyboardInterrupt:
        exit_codes.append(INTERRUPTED)
    finally:
        sys.unraisablehook = before
    sys.exit(exit_codes[-1])


def exit_code() -> int:
    """Run the verb; its exit code, also after an error."""
    try:
        return run_verb()
    except RegardError as problem:
        return print_error(str(problem))
    except BrokenPipeError:  # the reader has closed the pipe, as in `regard … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        name = one_line(os.fsdecode(problem.filename)) if problem.filename else "A file"
        return print_error(f"{name} cannot be used: {problem.strerror or problem}.")
    except MemoryError:
        return print_error("There is not enough memory: use a smaller model, fewer texts, or --dtype bfloat16.")


def run_verb() -> int:
    """Run the verb that the arguments name; its exit code."""
    open_missing_streams()
    if any("\0" in word for word in sys.argv):
        raise RegardError("An argument contains the character NUL, which no file name can have.")
    import gc
    import io

    if not {*sys.argv[1:2]} & {*LONG_RUNNING}:
        gc.set_threshold(GC_THRESHOLD)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    from typer import Abort, BadParameter

    from regard.cli.console import safe_stdout

    misuse: Any = BadParameter.__mro__[1]  # UsageError, which typer does not export
    with safe_stdout():
        try:
            verb = [word for word in sys.argv[1:2] if word in VERBS]
            return app(*(verb or VERBS))(prog_name="regard", standalone_mode=False) or 0
        except misuse as problem:
            message = io.StringIO()
            problem.show(file=message)
            sys.stderr.write(clean(message.getvalue()))
            return 2
        except Abort:
            return 1


def open_missing_streams() -> None:
    """Open the standard streams that the process was started without, for which Python has None, on /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  for as long as the process lives


def print_error(sentence: str) -> int:
    """Print an error on one line of stderr; its exit code."""
    print(f"regard: {clean(sentence).replace(chr(10), ' ')}", file=sys.stderr)
    return 2


# ── Ctrl-C: no message, exit code 130, whenever it is pressed ───────────────────────────────────────────────────────────


def raise_interrupt_again(ignored: "Any") -> None:
    """`sys.unraisablehook`: Python drops what is raised in a callback, such as the import system's. Send the interrupt
    again."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    import _thread
    import signal
    import threading
    import time

    def later() -> None:
        time.sleep(0.01)  # after this hook has returned
        if hasattr(signal, "pthread_kill"):  # a signal also interrupts what the main thread waits for
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(later, ())


def exit_on_interrupt() -> None:
    """The output is complete: from now on Ctrl-C exits at once."""
    import signal
    import threading

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def exit_at_end(exit_codes: list[int]) -> None:
    """`atexit` handler that makes the exit code 130: Python would kill itself with SIGINT instead if an interrupt passed
    through an `exec` of source text, or comes during its shutdown."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if exit_codes[-1:] == [INTERRUPTED]:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(INTERRUPTED)
