"""A batch run: a large file of rows in, one line of JSON per row out, in order and complete, even if the run is killed.

Answers are appended to OUT.part. Next to it OUT.run, replaced atomically, records what the run is (task, settings, hashes
of the model's and the input's files) and its progress: batches, rows, bytes, and the hash of those bytes. A killed run
resumes from there: what follows those bytes in OUT.part, such as a torn line, is truncated, and what precedes must still
have that hash. OUT itself is created by a rename, when every row has its line.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from regard.batch.input import InputFiles, RowBatch, check_unchanged, row_batches, rows
from regard.batch.task import BatchResult, BatchTask, Worker
from regard.errors import DataError
from regard.safe_open import LARGE, parse_json, read_file
from regard.store.atomic_write import flush, replace_file

try:
    import fcntl
except ImportError:  # Windows: two runs into one file are not detected
    fcntl = None  # type: ignore[assignment]

CHECKPOINT_SECONDS = 1.0  # between two checkpoints
Progress = Callable[[int, int], None]  # rows done, all rows
# Answers the batches of rows from the given number on, in order
Executor = Callable[[BatchTask, InputFiles, int], Iterator[BatchResult]]


@dataclass
class RunProgress:
    """How far a run has come, with the field names of OUT.run: `parcels` are batches of rows."""

    parcels: int = 0
    rows: int = 0
    errors: int = 0
    cut: int = 0
    bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()


def local_executor(worker: Worker) -> Executor:
    """An executor in this process."""

    def execute(task: BatchTask, files: InputFiles, first: int) -> Iterator[BatchResult]:
        return map(worker.answer, remaining(task, files, first))

    return execute


def remaining(task: BatchTask, files: InputFiles, first: int) -> Iterator[RowBatch]:
    """The batches of rows from number `first` on; those before are read again, not answered again."""
    return islice(row_batches(rows(files), task.new_tokens, task.row_batch_tokens), first, None)


def no_progress() -> AbstractContextManager[Progress]:
    return nullcontext(lambda done, total: None)


def run(
    task: BatchTask,
    identity: dict[str, Any],
    files: InputFiles,
    out: Path,
    executor: Callable[[], Executor],
    *,
    restart: bool = False,
    progress: Callable[[], AbstractContextManager[Progress]] = no_progress,
) -> RunProgress:
    """Answer every row into `out`. `executor`, and then `progress`, are called only if rows remain, so that errors are
    raised before a model is loaded."""
    check_absent(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_exclusive(part_of(out)) as part:
        ledger = Ledger(out, part, identity, files)
        ledger.begin(restart)
        try:
            answer_all(ledger, task, executor, progress)
        except BaseException:
            if ledger.reached.rows == 0:  # nothing to resume from
                run_of(out).unlink(missing_ok=True)
                part_of(out).unlink(missing_ok=True)
            raise
        os.replace(part_of(out), out)
    run_of(out).unlink()
    if os.name != "nt":  # Windows cannot flush a directory
        flush(out.parent)
    return ledger.reached


def answer_all(
    ledger: "Ledger",
    task: BatchTask,
    executor: Callable[[], Executor],
    progress: Callable[[], AbstractContextManager[Progress]],
) -> None:
    """Answer the remaining rows and append them to the ledger."""
    reached, total = ledger.reached, ledger.files.n_rows
    if reached.rows < total:
        results = executor()(task, ledger.files, reached.parcels)
        with progress() as report:
            report(reached.rows, total)
            for result in results:
                ledger.append(result)
                report(reached.rows, total)
    ledger.checkpoint()
    if reached.rows != total:
        raise DataError(f"{part_of(ledger.out)} holds {reached.rows} rows of {total}: give the same command again.")


def check_absent(out: Path) -> None:
    if out.exists():
        raise DataError(f"{out} is there already: remove it, or choose another --out.")


def part_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def run_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.run")


@contextmanager
def open_exclusive(path: Path) -> Iterator[BinaryIO]:
    """A file to append to, locked against other runs."""
    with path.open("ab+") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"{path} is being written by another run; wait, or choose another --out.") from None
        yield file


@dataclass
class Ledger:
    """A run's files: OUT.part with the answers and OUT.run with the progress."""

    out: Path
    part: BinaryIO
    identity: dict[str, Any]
    files: InputFiles
    reached: RunProgress = field(default_factory=RunProgress)
    saved_at: float = field(default_factory=time.monotonic)

    def begin(self, restart: bool) -> None:
        """Resume from the last checkpoint, if there is one and it matches; else start from the beginning."""
        if run_of(self.out).exists() and not restart:
            self.reached = self.read()
        self.digest = digest_of(self.part, self.reached.bytes)
        if self.digest.hexdigest() != self.reached.sha256:
            raise DataError(f"{part_of(self.out)} is not as the run left it: begin anew with --restart.")
        self.part.truncate(self.reached.bytes)
        self.checkpoint()

    def read(self) -> RunProgress:
        try:
            saved = parse_json(read_file(run_of(self.out), LARGE, DataError))
            then, files, reached = dict(saved["run"]), list(saved["files"]), RunProgress(**saved["reached"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{run_of(self.out)} is damaged: begin anew with --restart.") from None
        for name, value in self.identity.items():
            if then.get(name) != value:
                what = "another model" if name == "model" else f"{name} {then.get(name)!r}"
                raise DataError(f"The run in {part_of(self.out)} was begun with {what}: give that, or --restart.")
        check_unchanged(files, self.files.files)
        return reached

    def append(self, result: BatchResult) -> None:
        if result.number != self.reached.parcels:
            raise DataError(f"Rows came out of order, at batch {self.reached.parcels}: give the same command again.")
        data = result.lines.encode()
        self.part.write(data)
        self.digest.update(data)
        self.reached.parcels += 1
        self.reached.rows += result.n_rows
        self.reached.errors += result.n_errors
        self.reached.cut += result.n_cut
        self.reached.bytes += len(data)
        if time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Flush OUT.part to the disk, then replace OUT.run, which says how many of its bytes are valid."""
        self.part.flush()
        os.fsync(self.part.fileno())
        self.reached.sha256 = self.digest.hexdigest()
        saved = {"run": self.identity, "files": self.files.files, "reached": asdict(self.reached)}
        with replace_file(run_of(self.out)) as file:
            file.write(json.dumps(saved, indent=1).encode())
        self.saved_at = time.monotonic()


def digest_of(part: BinaryIO, size: int) -> Any:
    """A hash object updated with the first `size` bytes, or with all if there are fewer."""
    part.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := part.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest
