"""Start-up times: of imports, of `regard --help`, and to the first token of an answer, compared with llama.cpp."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.peer import HERE, interpreter
from bench.versus import Measured, seconds
from regard.store.hub import resolve

QUESTION = "What is the capital of France?"


def comparisons() -> Iterator[Measured]:
    commands = {
        "`regard --help`": (["-m", "regard", "--help"], 0.3),
        "`import regard`": (["-c", "import regard"], None),
        "nothing": (["-c", ""], None),
    }
    times = {name: best(arguments) for name, (arguments, _) in commands.items()}
    yield Measured("`regard --help`", times["`regard --help`"], 0.3)
    yield Measured("`import regard`, less Python's own start", times["`import regard`"] - times["nothing"], 0.1)
    yield from first_token()


def first_token() -> Iterator[Measured]:
    """Time from starting the process to the first character of an answer, taking turns."""
    ours = [
        sys.executable,
        "-m",
        "regard",
        "chat",
        "smollm2",
        QUESTION,
        "--max-new-tokens",
        "1",
        "--temperature",
        "0",
    ]
    if (python := interpreter()) is None:
        return
    theirs = [str(python), "-P", str(HERE / "llama_peer.py"), str(resolve("smollm2")), "2", "1024", QUESTION]
    until_letter(ours), until_letter(theirs)
    turns = [(until_letter(ours), until_letter(theirs)) for _ in range(21)]
    ours_took, limit = (statistics.median(side) for side in zip(*turns, strict=True))
    yield Measured(f"`regard chat smollm2` to the first token (llama.cpp: {limit:.2f} s)", ours_took, limit)


def usual() -> dict[str, str]:
    """The environment with Python's bytecode cache on, as users have it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def until_letter(command: list[str]) -> float:
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=usual()) as process:
        assert process.stdout is not None
        letter = process.stdout.read(1)
        passed = time.perf_counter() - begin
        process.stdout.read()
    assert letter, "it said nothing"
    return passed


def best(arguments: list[str], rounds: int = 7) -> float:
    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=usual())

    run()
    return statistics.median(seconds(run) for _ in range(rounds))
