"""Files → a dataset on the disk, made once and recognised the next time.

In: sources, what is wanted of them, and a recipe. Out: `Columns`. Rows are encoded by several processes and written in
their order; memory does not grow with the corpus. The dataset is written aside and appears whole or not at all. If one
is already there it is used when it was made of the same bytes, with the same tokenizer and settings, and all of it is
still what was written then; otherwise the reason is said and it is made again.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.store.atomic import flush, move_into_place, staging
from regard.store.jsonfile import write_json_atomically
from regard.train.read import Layout, Source, Tally, read_rows
from regard.train.recipe import Chunk, Recipe, encode_all
from regard.train.row import Row
from regard.train.shards import FILE_NAME, MANIFEST, SHARD_VALUES, VERSION, Columns, ShardWriter
from regard.train.source import File

try:
    import fcntl
except ImportError:  # Windows has no such locks; two processes must not prepare one dataset there
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 18  # characters of text, about, that one process encodes at a time
CHUNK_ROWS = 4096
SMALL = 4 << 20  # bytes; below this, processes take longer to start than to do the work

Told = Callable[[int, int], None]  # bytes done, bytes in all


def prepare(
    directory: Path | str,
    sources: Sequence[Source],
    layout: Layout,
    recipe: Recipe,
    *,
    workers: int | None = None,
    progress: Told = lambda done, total: None,
    say: Callable[[str], None] = lambda sentence: None,
    shard_values: int = SHARD_VALUES,
) -> Columns:
    """The dataset in `directory`, made now unless it is there. By default there is a worker per core, or none for
    little data."""
    directory = Path(directory)
    with _alone_in(directory):
        depends = _depends_on(sources, layout, recipe)
        reason = _why_again(directory, depends, _files(sources))
        if reason is not None:
            if reason:
                say(reason)
            total, tally = sum(file.stamp().size for file in _files(sources)), Tally()
            workers = workers or (1 if total < SMALL else os.cpu_count() or 1)
            encoded = encode_all(recipe, _chunks(sources, layout, tally), workers)
            with closing(encoded), staging(directory) as stage:
                with ShardWriter(stage, recipe.columns, shard_values) as writer:
                    for part in encoded:
                        writer.write(part.values, part.lengths)
                        tally.skipped += part.skipped
                        tally.shortened += part.shortened
                        progress(part.bytes_read, total)
                    manifest = _manifest(depends, tally, writer)
                _put_in_place(stage, directory, manifest)
        return Columns(directory)


def _files(sources: Sequence[Source]) -> list[File]:
    return [file for source in sources for file in source.files]


def _depends_on(sources: Sequence[Source], layout: Layout, recipe: Recipe) -> dict[str, Any]:
    settings = {"recipe": dict(recipe.settings), "layout": layout.settings(), "formats": [s.format for s in sources]}
    return {"version": VERSION, "task": recipe.task, "tokenizer": recipe.tokenizer_sha256, "settings": settings}


# ── is it there already? ────────────────────────────────────────────────────────────────────────────────────────────


def _why_again(directory: Path, depends: dict[str, Any], files: list[File]) -> str | None:
    """Why a dataset has to be made, in a sentence; "" if there was none; None if it need not be made."""
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
        return "The tokenizer is another"
    if len(manifest["sources"]) != len(files):
        return f"There were {len(manifest['sources'])} files and are {len(files)}"
    if manifest["settings"] != depends["settings"]:
        return _other_setting(manifest["settings"], depends["settings"])
    changed = (file.name for file, before in zip(files, manifest["sources"], strict=True) if _changed(file, before))
    name = next(changed, None)
    return None if name is None else f"{name} has changed"


def _other_setting(before: Any, now: Any, name: str = "") -> str:
    """The first setting in which two differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        key = min(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        return _other_setting(before.get(key), now.get(key), key)
    return f"The setting {name} was {before!r} and is {now!r}"


def _changed(file: File, before: dict[str, Any]) -> bool:
    """A different size says so at once, an equal time of change says not; otherwise the content has to be read."""
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


def _put_in_place(stage: Path, directory: Path, manifest: dict[str, Any]) -> None:
    """The old manifest goes first and the new one comes last: shards of two datasets are never taken for one."""
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
    """How much text is in a row, about."""
    if isinstance(value, str):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 8 + sum(map(_characters, parts))


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One process at a time; the others wait and find the dataset made. The lock ends with the process that holds it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as problem:
        raise DataError(f"{directory} cannot be written to: {problem.strerror}; choose another place.") from problem
    with lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for leftover in directory.glob(".*.part"):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
        yield
