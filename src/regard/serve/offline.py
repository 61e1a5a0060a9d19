"""An offline run: a large file of rows in, one line of JSON per row out, in order, complete, whatever happens on the way.

Answers are appended to OUT.part. Beside it OUT.run says, replaced in one piece, what the run is (task, settings, hashes of
the model's and the input's files) and how far it has come: parcels, rows, bytes, and the hash of those bytes. A killed run
goes on from there: what stands in OUT.part behind those bytes, a torn line included, is dropped, and what stands before it
must still have that hash. OUT itself appears, by a rename, when every row has its line.
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

from regard.errors import DataError
from regard.modelfile import LARGE, read_file
from regard.serve.job import Answered, Job, Worker
from regard.serve.rows import Input, Parcel, check_unchanged, parcels, rows
from regard.store.atomic import flush, replace_file

try:
    import fcntl
except ImportError:  # Windows: two runs into one file are not kept apart
    fcntl = None  # type: ignore[assignment]

KEEP_SECONDS = 1.0  # between two times of keeping what was answered
Progress = Callable[[int, int], None]  # rows done, rows in all
Engine = Callable[[Job, Input, int], Iterator[Answered]]  # the parcels from that number on, answered, in order


@dataclass
class Reached:
    """How far a run has come."""

    parcels: int = 0
    rows: int = 0
    errors: int = 0
    cut: int = 0
    bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()


def here(worker: Worker) -> Engine:
    """Answer in this process."""

    def engine(job: Job, given: Input, first: int) -> Iterator[Answered]:
        return map(worker.answer, remaining(job, given, first))

    return engine


def remaining(job: Job, given: Input, first: int) -> Iterator[Parcel]:
    """The parcels from number `first` on; those before are read again, not answered again."""
    return islice(parcels(rows(given), job.written, job.parcel), first, None)


def silent() -> AbstractContextManager[Progress]:
    return nullcontext(lambda done, total: None)


def run(
    job: Job,
    identity: dict[str, Any],
    given: Input,
    out: Path,
    engine: Callable[[], Engine],
    *,
    restart: bool = False,
    progress: Callable[[], AbstractContextManager[Progress]] = silent,
) -> Reached:
    """Answer every row into `out`. `engine`, and then `progress`, are called once it is known that something is left to
    do, so that what is refused is refused before a model is loaded."""
    check_free(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with alone_with(part_of(out)) as part:
        ledger = Ledger(out, part, identity, given)
        ledger.begin(restart)
        try:
            answer_all(ledger, job, engine, progress)
        except BaseException:
            if ledger.reached.rows == 0:  # nothing to go on from
                run_of(out).unlink(missing_ok=True)
                part_of(out).unlink(missing_ok=True)
            raise
        os.replace(part_of(out), out)
    run_of(out).unlink()
    if os.name != "nt":  # Windows cannot flush a directory
        flush(out.parent)
    return ledger.reached


def answer_all(
    ledger: "Ledger", job: Job, engine: Callable[[], Engine], progress: Callable[[], AbstractContextManager[Progress]]
) -> None:
    """Enter what is left, to the last row."""
    reached, total = ledger.reached, ledger.given.n_rows
    if reached.rows < total:
        answers = engine()(job, ledger.given, reached.parcels)
        with progress() as tell:
            tell(reached.rows, total)
            for answered in answers:
                ledger.enter(answered)
                tell(reached.rows, total)
    ledger.keep()
    if reached.rows != total:
        raise DataError(f"{part_of(ledger.out)} holds {reached.rows} rows of {total}: give the same command again.")


def check_free(out: Path) -> None:
    if out.exists():
        raise DataError(f"{out} is there already: remove it, or choose another --out.")


def part_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def run_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.run")


@contextmanager
def alone_with(path: Path) -> Iterator[BinaryIO]:
    """A file to append to, which no other run may have open."""
    with path.open("ab+") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"{path} is being written by another run; wait, or choose another --out.") from None
        yield file


@dataclass
class Ledger:
    """What a run has written and where it stands, on the disk."""

    out: Path
    part: BinaryIO
    identity: dict[str, Any]
    given: Input
    reached: Reached = field(default_factory=Reached)
    kept_at: float = field(default_factory=time.monotonic)

    def begin(self, restart: bool) -> None:
        """Go on from what was kept, if there is something and it fits; else from the beginning."""
        if run_of(self.out).exists() and not restart:
            self.reached = self.read()
        self.digest = digest_of(self.part, self.reached.bytes)
        if self.digest.hexdigest() != self.reached.sha256:
            raise DataError(f"{part_of(self.out)} is not as the run left it: begin anew with --restart.")
        self.part.truncate(self.reached.bytes)
        self.keep()

    def read(self) -> Reached:
        try:
            said = json.loads(read_file(run_of(self.out), LARGE, DataError))
            then, files, reached = dict(said["run"]), list(said["files"]), Reached(**said["reached"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(f"{run_of(self.out)} is damaged: begin anew with --restart.") from None
        for name, value in self.identity.items():
            if then.get(name) != value:
                what = "another model" if name == "model" else f"{name} {then.get(name)!r}"
                raise DataError(f"The run in {part_of(self.out)} was begun with {what}: give that, or --restart.")
        check_unchanged(files, self.given.files)
        return reached

    def enter(self, answered: Answered) -> None:
        if answered.number != self.reached.parcels:
            raise DataError(f"Rows came out of order, at parcel {self.reached.parcels}: give the same command again.")
        data = answered.lines.encode()
        self.part.write(data)
        self.digest.update(data)
        self.reached.parcels += 1
        self.reached.rows += answered.n_rows
        self.reached.errors += answered.n_errors
        self.reached.cut += answered.n_cut
        self.reached.bytes += len(data)
        if time.monotonic() - self.kept_at >= KEEP_SECONDS:
            self.keep()

    def keep(self) -> None:
        """The bytes first, then the number that says they are there."""
        self.part.flush()
        os.fsync(self.part.fileno())
        self.reached.sha256 = self.digest.hexdigest()
        said = {"run": self.identity, "files": self.given.files, "reached": asdict(self.reached)}
        with replace_file(run_of(self.out)) as file:
            file.write(json.dumps(said, indent=1).encode())
        self.kept_at = time.monotonic()


def digest_of(part: BinaryIO, size: int) -> Any:
    """The hash of the first `size` bytes, ready to go on; of fewer if there are fewer."""
    part.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := part.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest
