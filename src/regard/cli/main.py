"""`regard`: one command with verbs. Each verb is a file here, imported when it is asked for, and imports what is heavy only
when it runs. This file imports nothing that takes time, so that Ctrl-C is quiet from the start."""

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
    *("view", "serve", "explain", "lesson", "worksheet", "inspect", "convert", "verify", "models", "pull", "env"),
)
# Objects before Python looks for cycles: what a command imports and reads is kept, and its answers are few. Not so of those
# that go on for hours.
LITTER, LASTING = 100_000, ("serve", "view", "train")
INTERRUPTED = 130  # the exit code after Ctrl-C


def app(*verbs: str) -> "typer.Typer":
    """The command with these verbs: all of them for its help, and one to run one."""
    import importlib

    import typer

    from regard.cli.page import Verb, root

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


def run() -> None:
    """The entry point: what goes wrong for a reason is one sentence on stderr, and exit code 2."""
    ends: list[int] = []
    atexit.register(leave_at_last, ends)  # before others register, so that it is called after them
    before, sys.unraisablehook = sys.unraisablehook, interrupted_again
    try:
        ends.append(exit_code())
        leave_when_interrupted()
    except KeyboardInterrupt:
        ends.append(INTERRUPTED)
    finally:
        sys.unraisablehook = before
    sys.exit(ends[-1])


def exit_code() -> int:
    try:
        return answer()
    except RegardError as problem:
        return failed(str(problem))
    except BrokenPipeError:  # the reader has gone, as in `regard … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        name = one_line(os.fsdecode(problem.filename)) if problem.filename else "A file"
        return failed(f"{name} cannot be used: {problem.strerror or problem}.")
    except MemoryError:
        return failed("There is not enough memory: use a smaller model, fewer texts, or --dtype bfloat16.")


def answer() -> int:
    """Do what the arguments say; the exit code."""
    open_what_is_closed()
    if any("\0" in word for word in sys.argv):
        raise RegardError("An argument holds the character NUL, which no file's name can have.")
    import gc
    import io

    if not {*sys.argv[1:2]} & {*LASTING}:
        gc.set_threshold(LITTER)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    from typer import Abort, BadParameter

    from regard.cli.say import on_screen

    misuse: Any = BadParameter.__mro__[1]  # UsageError, which typer does not export
    with on_screen():
        try:
            asked = [word for word in sys.argv[1:2] if word in VERBS]
            return app(*(asked or VERBS))(prog_name="regard", standalone_mode=False) or 0
        except misuse as problem:
            said = io.StringIO()
            problem.show(file=said)
            sys.stderr.write(clean(said.getvalue()))
            return 2
        except Abort:
            return 1


def open_what_is_closed() -> None:
    """A process may be started without standard streams; Python then has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  for as long as the process lives


def failed(sentence: str) -> int:
    print(f"regard: {clean(sentence).replace(chr(10), ' ')}", file=sys.stderr)
    return 2


# ── Ctrl-C: no word, exit code 130, wherever it comes ───────────────────────────────────────────────────────────────────


def interrupted_again(ignored: "Any") -> None:
    """Python prints and drops what is raised in a callback, such as the import system's; an interrupt comes again."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    import _thread
    import signal
    import threading
    import time

    def later() -> None:
        time.sleep(0.01)  # not in here
        if hasattr(signal, "pthread_kill"):  # a signal also ends what the main thread waits for
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(later, ())


def leave_when_interrupted() -> None:
    """All is said: whoever presses Ctrl-C now only wants to wait for nothing else."""
    import signal
    import threading

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def leave_at_last(ends: list[int]) -> None:
    """Python ends itself with the signal, whatever the code, if an interrupt once passed through an `exec` of a text, or if
    one comes while it takes itself apart."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if ends[-1:] == [INTERRUPTED]:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(INTERRUPTED)
