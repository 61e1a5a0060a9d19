"""Files → a tokenised dataset on the disk, made once and reused the next time.

In: sources, the layout of their rows, and a preprocessor. Out: `Columns`. Rows are encoded by several processes and written
in their order; memory does not grow with the corpus. The dataset is written to a temporary directory and appears complete
or not at all. An existing one is reused if it was made from the same bytes, with the same tokenizer and settings, and its
checksums are right; otherwise the reason is reported and it is made again.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.store.atomic_write import flush, move_into_place, staging, write_json_atomically
from regard.train.data_files import File
from regard.train.preprocess import Chunk, Preprocessor, encode_all
from regard.train.read import Layout, Source, Tally, read_rows
from regard.train.row import Row
from regard.train.shards import FILE_NAME, MANIFEST, SHARD_VALUES, VERSION, Columns, ShardWriter

try:
    import fcntl
except ImportError:  # Windows has no such locks; two processes must not prepare one dataset there
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 18  # characters of text, about, that one process encodes at a time
CHUNK_ROWS = 4096
SMALL = 4 << 20  # bytes; below this, starting processes takes longer than the work itself

ProgressCallback = Callable[[int, int], None]  # bytes done, bytes in all


def prepare(
    directory: Path | str,
    sources: Sequence[Source],
    layout: Layout,
    preprocessor: Preprocessor,
    *,
    workers: int | None = None,
    progress: ProgressCallback = lambda done, total: None,
    notify: Callable[[str], None] = lambda sentence: None,
    shard_values: int = SHARD_VALUES,
) -> Columns:
    """The dataset in `directory`, made now unless it exists and is up to date. By default there is a worker process per
    core; little data is encoded in this process. `notify` is called with the reason why an existing one is made again."""
    directory = Path(directory)
    with _locked(directory):
        depends = _depends_on(sources, layout, preprocessor)
        reason = _reason_to_rebuild(directory, depends, _files(sources))
        if reason is not None:
            if reason:
                notify(reason)
            total, tally = sum(file.stamp().size for file in _files(sources)), Tally()
            workers = workers or (1 if total < SMALL else os.cpu_count() or 1)
            encoded = encode_all(preprocessor, _chunks(sources, layout, tally), workers)
            with closing(encoded), staging(directory) as stage:
                with ShardWriter(stage, preprocessor.columns, shard_values) as writer:
                    for part in encoded:
                        writer.write(part.values, part.lengths)
                        tally.skipped += part.skipped
                        tally.shortened += part.shortened
                        progress(part.bytes_read, total)
                    manifest = _manifest(depends, tally, writer)
                _replace_dataset(stage, directory, manifest)
        return Columns(directory)


def _files(sources: Sequence[Source]) -> list[File]:
    return [file for source in sources for file in source.files]


def _depends_on(sources: Sequence[Source], layout: Layout, preprocessor: Preprocessor) -> dict[str, Any]:
    """The part of the manifest that a reused dataset must agree with."""
    formats = [source.format for source in sources]
    settings = {"recipe": dict(preprocessor.settings), "layout": layout.settings(), "formats": formats}
    tokenizer = preprocessor.tokenizer_sha256
    return {"version": VERSION, "task": preprocessor.task, "tokenizer": tokenizer, "settings": settings}


# ── can the existing dataset be reused? ─────────────────────────────────────────────────────────────────────────────


def _reason_to_rebuild(directory: Path, depends: dict[str, Any], files: list[File]) -> str | None:
    """Why the dataset has to be made again, as a message; "" if there is none yet; None if it can be reused."""
    if not (directory / MANIFEST).exists():
        return ""
    try:
        found = Columns(directory)
        reason = _difference(found.manifest, depends, files)
        if reason is None:
            found.verify()
    except DataError as problem:
        return str(problem)
    return None if reason is None else f"{reason}, so {directory} is prepared again."


def _difference(manifest: dict[str, Any], depends: dict[str, Any], files: list[File]) -> str | None:
    if manifest["task"] != depends["task"]:
        return f"The task was {manifest['task']} and is {depends['task']}"
    if manifest["tokenizer"] != depends["tokenizer"]:
        return "The tokenizer has changed"
    if len(manifest["sources"]) != len(files):
        return f"There were {len(manifest['sources'])} files and are {len(files)}"
    if manifest["settings"] != depends["settings"]:
        return _first_difference(manifest["settings"], depends["settings"])
    changed = (file.name for file, before in zip(files, manifest["sources"], strict=True) if _changed(file, before))
    name = next(changed, None)
    return None if name is None else f"{name} has changed"


def _first_difference(before: Any, now: Any, name: str = "") -> str:
    """The first setting in which the two differ, as a message."""
    if isinstance(before, dict) and isinstance(now, dict):
        key = min(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        return _first_difference(before.get(key), now.get(key), key)
    return f"The setting {name} was {before!r} and is {now!r}"


def _changed(file: File, before: dict[str, Any]) -> bool:
    """Whether the file's content differs: yes if its size does, no if its time of change is the same; else by its hash."""
    now = file.stamp()
    if now.size != before["size"]:
        return True
    if file.name == before["path"] and now.mtime_ns == before["mtime_ns"]:
        return False
    return file.sha256() != before["sha256"]


# ── making it ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _manifest(depends: dict[str, Any], tally: Tally, writer: ShardWriter) -> dict[str, Any]:
    written, skipped = writer.finish(), dict(sorted(tally.skipped.items()))
    if not written["rows"]:
        why = ", ".join(f"{n} × {reason}" for reason, n in skipped.items()) or "the files are empty"
        raise DataError(f"There is nothing to train on: {why}.")
    shortened = dict(sorted(tally.shortened.items()))
    return {**depends, "sources": tally.files, "skipped": skipped, "shortened": shortened, **written}


def _replace_dataset(stage: Path, directory: Path, manifest: dict[str, Any]) -> None:
    """Delete the old manifest first and write the new one last, so that shards of two datasets are never mixed."""
    write_json_atomically(stage / MANIFEST, manifest)
    (directory / MANIFEST).unlink(missing_ok=True)
    flush(directory)
    for path in directory.iterdir():
        if FILE_NAME.fullmatch(path.name):
            path.unlink()
    names = [file["name"] for shard in manifest["shards"] for file in shard["files"]]
    move_into_place(stage, directory, [*names, MANIFEST])


def _chunks(sources: Sequence[Source], layout: Layout, tally: Tally) -> Iterator[Chunk]:
    rows: list[Row] = []
    size = 0
    for source in sources:
        for row in read_rows(source, layout, tally):
            rows.append(row)
            size += _characters(row)
            if size >= CHUNK or len(rows) >= CHUNK_ROWS:
                yield Chunk(rows, tally.bytes)
                rows, size = [], 0
    yield Chunk(rows, tally.bytes)


def _characters(value: Any) -> int:
    """About how much text is in a row."""
    if isinstance(value, str):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 8 + sum(map(_characters, parts))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory: one process at a time makes the dataset, the others wait and reuse it. The operating system
    releases the lock when its process ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as problem:
        raise DataError(f"{directory} cannot be written to: {problem.strerror}; choose another directory.") from problem
    with lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for leftover in directory.glob(".*.part"):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
        yield
