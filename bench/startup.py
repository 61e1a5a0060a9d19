"""How long one waits before anything happens; for an answer's first token, beside llama.cpp."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

from bench.peer import HERE, interpreter
from bench.versus import Measured, seconds
from regard.store.hub import resolve

QUESTION = "What is the capital of France?"


def comparisons() -> Iterator[Measured]:
    commands = {
        "`regard --help`": (["-m", "regard.cli", "--help"], 0.3),
        "`import regard`": (["-c", "import regard"], None),
        "nothing": (["-c", ""], None),
    }
    times = {name: best(arguments) for name, (arguments, _) in commands.items()}
    yield Measured("`regard --help`", times["`regard --help`"], 0.3)
    yield Measured("`import regard`, less Python's own start", times["`import regard`"] - times["nothing"], 0.1)
    yield from first_token()


def first_token() -> Iterator[Measured]:
    """From nothing to the end of a process that says one token."""
    chat = ["-m", "regard.cli", "chat", "smollm2", QUESTION, "--max-new-tokens", "1", "--temperature", "0"]
    if (python := interpreter()) is not None:
        theirs = [str(HERE / "llama_peer.py"), str(resolve("smollm2")), "2", QUESTION]
        limit = best(["-P", *theirs], 5, str(python))
        yield Measured(f"`regard chat smollm2` to the first token (llama.cpp: {limit:.2f} s)", best(chat, 5), limit)


def best(arguments: list[str], rounds: int = 7, python: str = sys.executable) -> float:
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run() -> None:
        subprocess.run([python, *arguments], check=True, stdout=subprocess.DEVNULL, env=usual)

    run()
    return statistics.median(seconds(run) for _ in range(rounds))
