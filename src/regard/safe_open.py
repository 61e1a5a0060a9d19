"""Opens files of a model or run directory, which may be untrusted. No other module opens them directly.

In: a path. Out: an open file, its bytes, or the JSON in it. Only regular files are opened: reading a FIFO or a
device may never end. Symbolic links are followed, because the Hugging Face cache is made of them
(`snapshots/…/config.json` → `blobs/…`) and people store weights on another disk; the target of a link must be a regular
file of the allowed size like any other. JSON is refused if it has too many values, is nested too deep, gives a key
twice, holds NaN or is not UTF-8 text.
"""

import json
import os
import stat
from collections import Counter
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from regard.errors import CheckpointError, NotFound, RegardError, quoted

SMALL = 1 << 20  # settings and templates
LARGE = 64 << 20  # vocabularies and shard indexes; the largest of known models have 35 MB
MAX_VALUES = 4_000_000  # in a JSON text: twice the largest vocabulary's; each takes 60 to 200 bytes
MAX_DEPTH = 64
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_file(path: Path, error: type[RegardError] = CheckpointError, limit: int | None = None) -> BufferedReader:
    """The regular file at `path`, open for reading; `error` if it is anything else or larger than `limit` bytes."""
    try:
        _check(os.stat(path), path, error, limit)  # before it is opened: opening a device or a FIFO can have effects
        handle = os.open(path, _FLAGS)  # O_NONBLOCK: does not wait, should it have become a FIFO since
        try:
            _check(os.fstat(handle), path, error, limit)
        except RegardError:
            os.close(handle)
            raise
        return os.fdopen(handle, "rb")
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}.") from problem
    except ValueError:  # a NUL in its name
        raise error(f"{os.fspath(path)!r} cannot be the name of a file.") from None


def read_file(path: Path, limit: int, error: type[RegardError] = CheckpointError) -> bytes:
    """All of a file of at most `limit` bytes."""
    with open_file(path, error, limit) as file:
        try:
            content = file.read(limit + 1)
        except OSError as problem:
            raise error(f"{path} cannot be read: {problem.strerror}.") from problem
    if len(content) > limit:  # it grew, or its reported size was 0 (as in /proc)
        raise _too_large(path, error, limit)
    return content


def _check(found: os.stat_result, path: Path, error: type[RegardError], limit: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path} is not a regular file.")
    if limit is not None and found.st_size > limit:
        raise _too_large(path, error, limit)


def _too_large(path: Path, error: type[RegardError], limit: int) -> RegardError:
    return error(f"{path} is larger than {limit >> 20} MB, which no honest one is.")


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_json(path: Path | str, what: str, error: type[RegardError] = CheckpointError) -> dict[str, Any]:
    """The object in the file at `path`; `what` names it in error messages ("the model's configuration")."""
    path = Path(path)
    if not os.path.isfile(path):
        raise NotFound(f"{path}, {what}, does not exist.")
    return parse_object(read_file(path, LARGE, error), f"{path}, {what},", error)


def parse_object(text: bytes, subject: str, error: type[RegardError] = CheckpointError) -> dict[str, Any]:
    """The JSON object in `text`; `subject` begins the error message."""
    try:
        value = parse_json(text)
    except BadJSON as problem:
        raise error(f"{subject} {problem}.") from None
    if not isinstance(value, dict):
        raise error(f"{subject} holds {_KINDS.get(type(value), 'a number')} instead of an object.")
    return value


class BadJSON(ValueError):
    """JSON that is refused; its message continues one that begins with the file's name."""


def parse_json(text: bytes, *, allow_nan: bool = False) -> Any:
    """The JSON value in `text`; BadJSON if it is malformed, for callers with an error message of their own."""
    if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_VALUES:
        raise BadJSON(f"has more than {MAX_VALUES:,} values, which no honest one has")
    constant = None if allow_nan else _refuse_constant
    try:
        value = json.loads(text.decode(), object_pairs_hook=_without_repeats, parse_constant=constant)
    except UnicodeDecodeError as problem:
        raise BadJSON(f"is not UTF-8 text (byte {problem.start})") from None
    except RecursionError:
        raise BadJSON(f"is nested more than {MAX_DEPTH} deep") from None
    except ValueError as problem:
        raise BadJSON(f"is not valid JSON: {problem}") from None
    if _deeper_than(value, MAX_DEPTH):
        raise BadJSON(f"is nested more than {MAX_DEPTH} deep")
    return value


_KINDS: dict[type, str] = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((most_often, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {quoted(most_often)} is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _deeper_than(value: object, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
