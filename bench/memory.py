"""Resident memory of a conversation with SmolLM2, compared with llama.cpp's, each in its own process."""

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import regard
from bench.peer import Peer, interpreter
from bench.versus import Measured

PROMPT, NEW, TURNS = 512, 28, 5


def comparisons() -> Iterator[Measured]:
    if not Path("/proc/self/status").exists():
        print("Resident memory is read from /proc, which this system has not.", file=sys.stderr)
        return
    model = regard.load("smollm2", engine="native")
    file, cache = model.path.stat().st_size / 1e6, model.slot_bytes(PROMPT + NEW) / 1e6
    libraries, whole = (statistics.median(side) for side in zip(*(ours() for _ in range(TURNS)), strict=True))
    what = f"SmolLM2-135M, resident after {PROMPT + NEW} tokens"
    if (python := interpreter()) is not None:
        theirs = statistics.median(llama(python, model.path) for _ in range(TURNS))
        yield Measured(f"{what}, the whole process (llama.cpp, also in Python: {theirs:.0f} MB)", whole, theirs, "MB")
    aim = f"aim: 1.3 × the file's {file:.0f} MB, and a cache of {cache:.0f} MB"
    yield Measured(
        f"… less Python and libraries, {libraries:.0f} MB ({aim})", whole - libraries, 1.3 * file + cache, "MB"
    )


def ours() -> tuple[float, float]:
    """Resident memory with the libraries only, and after a conversation."""
    with Peer(Path(sys.executable), "ours_peer.py") as peer:
        peer.ask("libraries")
        libraries = resident(peer.process.pid)
        peer.ask(f"decode {PROMPT} {NEW}")
        return libraries, resident(peer.process.pid)


def llama(python: Path, model: Path) -> float:
    with Peer(python, "llama_peer.py", model, 2, PROMPT + NEW) as peer:
        peer.ask(f"decode {PROMPT} {NEW}")
        return resident(peer.process.pid)


def resident(pid: int) -> float:
    """A process's resident memory, in megabytes."""
    kilobytes = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert kilobytes is not None
    return int(kilobytes[1]) * 1024 / 1e6
