"""JSON files from strangers: config.json, shard indexes, the header of a safetensors file.

In comes a path or bytes, out goes a dict. Anything a careful person would not call a JSON object is refused in a
sentence: too large, nested too deep, a key said twice, NaN, text that is not UTF-8.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from regard.errors import CheckpointError, NotFound, RegardError, quoted
from regard.modelfile import LARGE, read_file
from regard.store.atomic import replace_file

MAX_DEPTH = 64


def read_json(path: Path | str, what: str, error: type[RegardError] = CheckpointError) -> dict[str, Any]:
    """The object in the file at `path`; `what` names it for the reader ("the model's configuration")."""
    path = Path(path)
    if not os.path.isfile(path):
        raise NotFound(f"{path}, {what}, is not there.")
    return parse_object(read_file(path, LARGE, error), f"{path}, {what},", error)


def parse_object(text: bytes, subject: str, error: type[RegardError] = CheckpointError) -> dict[str, Any]:
    """The JSON object written in `text`; `subject` begins the sentence of a refusal."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise error(f"{subject} is not UTF-8 text.") from None
    except RecursionError:
        raise error(f"{subject} is nested more than {MAX_DEPTH} deep.") from None
    except ValueError as problem:
        raise error(f"{subject} is not valid JSON: {problem}.") from None
    if not isinstance(value, dict):
        raise error(f"{subject} holds {_KINDS.get(type(value), 'a number')} instead of an object.")
    if _deeper_than(value, MAX_DEPTH):
        raise error(f"{subject} is nested more than {MAX_DEPTH} deep.")
    return value


def write_json_atomically(path: Path | str, value: object) -> None:
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    with replace_file(Path(path)) as file:
        file.write(text.encode())


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
    level = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)  # type: ignore[attr-defined]
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
