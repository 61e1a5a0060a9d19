"""A peer (another library) in its own process, under the interpreter that `make peers` installs (or REGARD_PEERS names).

Its script reads a command per line and answers with a number; `Peer.ask` sends one. Where the peers are not installed,
those rows of the table are left out, with a message.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent


def interpreter() -> Path | None:
    """The peers' Python; None, with a message, if it is not installed."""
    python = Path(os.environ.get("REGARD_PEERS") or HERE.parent / ".venv-peers" / "bin" / "python")
    if python.exists():
        return python
    print(f"The peers are not installed ({python}): run `make peers` to compare with them.", file=sys.stderr)
    return None


class Peer:
    def __init__(self, python: Path, script: str, *arguments: object) -> None:
        command = [str(python), "-P", str(HERE / script), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The peer ended ({self.process.wait()}) when asked to {what}.")
        return float(answer)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.communicate()
