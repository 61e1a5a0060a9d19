"""Damaged model files, with new seeds in every run: each is used or refused in a sentence, and nothing else happens.

REGARD_SOAK_SECONDS says for how long (`make soak`: an hour), REGARD_SOAK_SEED where to begin: a failure names its seed. A
failure that was found becomes a test in tests/faults.
"""

import json
import os
import random
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.store.hub import BUNDLED

SECONDS = float(os.environ.get("REGARD_SOAK_SECONDS", "20"))
PATIENCE = 120  # seconds for one model on a busy machine; its processor time is bounded by the worker itself


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    for name in ("toy-gpt", "toy-bert", "toy-bert-sentiment", "toy-bert-tags", "toy-translate"):
        shutil.copytree(BUNDLED / name, folder / name)
    for format in ("F32", "Q4_0"):
        (folder / f"gguf-{format}").mkdir()
        model = regard.load("toy-gpt", quantize=None if format == "F32" else "q4")
        model.save(folder / f"gguf-{format}" / "model.gguf", format="gguf")
    return folder


def test_damaged_files_are_used_or_refused(bases: Path, tmp_path: Path) -> None:
    first = int(os.environ.get("REGARD_SOAK_SEED") or random.SystemRandom().randrange(10**9))
    end, outcomes, failures, seed = time.monotonic() + SECONDS, Counter[str](), list[Any](), first
    worker = Worker(bases, tmp_path)
    while time.monotonic() < end and len(failures) < 20:
        result = worker.attempt(seed)
        outcomes[result["outcome"]] += 1
        if result["outcome"] == "failed":
            failures.append(f"seed {seed} ({result['damage']}): {result['said'][:1500]}")
        seed += 1
    worker.end()
    assert not worker.complaints(), f"seeds {first} to {seed - 1}: {worker.complaints()}"
    print(f"damaged files: {dict(outcomes)}, seeds {first} to {seed - 1}")
    assert not failures, "\n\n".join(failures)
    assert outcomes["used"], f"from seed {first} on, no damaged file could be used"
    assert outcomes["refused"], f"from seed {first} on, no damaged file was refused"


class Worker:
    """The process that opens damaged models; begun again when one of them ends it."""

    def __init__(self, bases: Path, work: Path) -> None:
        here = Path(__file__).parent
        self.command = [sys.executable, "-W", "error", *map(str, (here / "try_models.py", bases, work / "work"))]
        self.env = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), *map(str, (here, here.parent)))))
        }
        self.said = work / "stderr"
        self.process = self.begin()

    def begin(self) -> subprocess.Popen[bytes]:
        with self.said.open("ab") as said:
            return subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=self.env
            )

    def complaints(self) -> list[str]:
        """What a library said on its own, past us: Rust's panics, tracebacks of threads."""
        lines = self.said.read_text(errors="replace").splitlines()
        return [line[:300] for line in lines if "panicked" in line or "Traceback" in line or "rror:" in line][:5]

    def attempt(self, seed: int) -> dict[str, str]:
        seeds, results = self.process.stdin, self.process.stdout
        assert seeds is not None
        assert results is not None
        seeds.write(f"{seed}\n".encode())
        seeds.flush()
        ready = select.select([results], [], [], PATIENCE)[0]
        if line := results.readline() if ready else b"":
            result: dict[str, str] = json.loads(line)
            return result
        code = self.end()
        self.process = self.begin()
        how = f"ended with {code}" if ready else f"took more than {PATIENCE} seconds"
        return {"outcome": "failed", "damage": "run try_models.py with it to see", "said": f"the process {how}"}

    def end(self) -> int:
        with self.process:
            self.process.kill()
        return self.process.returncode
