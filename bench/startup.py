"""How long one waits before anything happens."""

import statistics
import subprocess
import sys
from collections.abc import Iterator

from bench.versus import Measured, seconds


def comparisons() -> Iterator[Measured]:
    commands = {
        "`regard --help`": (["-m", "regard.cli", "--help"], 0.3),
        "`import regard`": (["-c", "import regard"], None),
        "nothing": (["-c", ""], None),
    }
    times = {name: best(arguments) for name, (arguments, _) in commands.items()}
    yield Measured("`regard --help`", times["`regard --help`"], 0.3)
    yield Measured("`import regard`, less Python's own start", times["`import regard`"] - times["nothing"], 0.1)


def best(arguments: list[str], rounds: int = 7) -> float:
    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    run()
    return statistics.median(seconds(run) for _ in range(rounds))
