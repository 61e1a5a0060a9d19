"""Tokenizer files as they come from strangers: read them, and refuse the damaged ones by name.

In: paths. Out: text and JSON objects, whose content `checks` looks at before the `tokenizers` library does.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import RegardError, TokenizerError
from regard.modelfile import LARGE, read_file

MOST_VALUES = 10_000_000  # in a JSON file: even empty ones take some 60 bytes of memory each

MOST_REASON = 300  # characters of what the library says, which may repeat what is in the file

T = TypeVar("T")


def read_text(file: Path, limit: int = LARGE) -> str:
    try:
        text = read_file(file, limit, TokenizerError).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not UTF-8 text (byte {error.start}).") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as Python reads text files


def parse_object(text: str, file: Path) -> dict[str, Any]:
    if text.count(",") + text.count("[") + text.count("{") > MOST_VALUES:
        raise TokenizerError(f"{file} has more than {MOST_VALUES:,} values, which no honest one has.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{file} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise TokenizerError(f"{file} holds a JSON {type(data).__name__}; an object was expected.")
    return data


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    return parse_object(read_text(file), file) if file.exists() else {}


def guarded(where: str, work: Callable[[], T]) -> T:
    """Run the library and turn what it raises, panics included, into a sentence naming `where`."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError, RegardError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:MOST_REASON].rstrip(".")
        raise TokenizerError(f"{where} cannot be used as a tokenizer: {reason}.") from None
