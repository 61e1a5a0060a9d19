"""Read untrusted tokenizer files; damaged ones are refused with their name.

In: paths. Out: text and JSON objects, which `tokenizer_checks` validates before the `tokenizers` library parses them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import RegardError, TokenizerError
from regard.safe_open import LARGE, parse_object, read_file

MAX_REASON = 300  # characters of the library's message, which may quote the file

T = TypeVar("T")


def read_text(file: Path, limit: int = LARGE) -> str:
    try:
        text = read_file(file, limit, TokenizerError).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not UTF-8 text (byte {error.start}).") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as Python reads text files


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    return parse_object(read_file(file, LARGE, TokenizerError), str(file), TokenizerError) if file.exists() else {}


def guarded(where: str, work: Callable[[], T]) -> T:
    """Call the library and convert what it raises, Rust panics included, into a TokenizerError naming `where`."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError, RegardError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:MAX_REASON].rstrip(".")
        raise TokenizerError(f"{where} cannot be used as a tokenizer: {reason}.") from None
