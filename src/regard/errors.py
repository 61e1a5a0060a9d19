"""The exceptions of this package: errors that a user can act on.

Each message is one sentence: what is wrong (naming the file, tensor or value) and what to do. The command line
prints it and exits 2; the server answers 4xx with it. Any other exception that reaches a user is a bug.
"""

TYPE_CHECKING = False  # as in regard/__init__.py
if TYPE_CHECKING:
    from typing import Any

MAX_MESSAGE = 2000  # characters of a message, which may quote a file
EXTRAS = {"torch": "train", "matplotlib": "train", "sacrebleu": "train"}  # package → the extra that installs it
DISPLAY_NAMES = {"torch": "PyTorch"}


class RegardError(Exception):
    """The base class of every error this package raises on purpose."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 300]} … {text[-290:]}"


class CheckpointError(RegardError):
    """A weights file, shard index or GGUF file is damaged, contradictory or of an unsupported kind."""


class ConfigError(RegardError):
    """A model's configuration is impossible or describes something this package does not implement."""


class TokenizerError(RegardError):
    """A tokenizer's files are damaged or disagree with the model, or a text cannot be encoded."""


class TemplateError(RegardError):
    """A chat template is missing, unsafe, too slow, or refused the messages."""


class GenerationError(RegardError):
    """A generation setting is out of range, or the request does not fit the model."""


class UnknownId(GenerationError):
    """A token id that the model's embedding has no row for."""


class TooLong(GenerationError):
    """A text that does not fit into the model's context, or a prompt that leaves no space in it for generated tokens."""


class NotFound(RegardError):
    """No model, file or node of that name."""


class TaskError(RegardError):
    """The model cannot do the requested task (for example, translate with a model that has no decoder)."""


class TrainingError(RegardError):
    """Training cannot start, or cannot continue: the loss is not a number, or a run does not fit what it resumes."""


class DataError(RegardError):
    """Data for training is missing, malformed at a certain line, or its prepared form on the disk is damaged."""


class NotInstalled(RegardError):
    """The requested feature needs a package that an extra installs, as `regard[train]` does PyTorch."""


def installed(package: str) -> "Any":
    """The package, imported; None where it is not installed."""
    from importlib import import_module

    try:
        return import_module(package)
    except ModuleNotFoundError as missing:
        if missing.name != package:  # it is installed, and an import inside it fails
            raise
    return None


def require(package: str, what: str) -> "Any":
    """The package, imported; NotInstalled, saying that `what` needs it and how to install it, if it is missing."""
    found = installed(package)
    if found is None:
        raise NotInstalled(
            f"{what} needs {DISPLAY_NAMES.get(package, package)}: pip install 'regard[{EXTRAS[package]}]'."
        )
    return found


def no_row(id: int, n_rows: int, ids: str = "The ids") -> str:
    """The message for a token id out of range of an embedding with `n_rows` rows."""
    return f"{ids} hold {id}, but the vocabulary ends at {n_rows - 1}: the model's embedding has {n_rows} rows."


def quoted(name: object, limit: int = 80) -> str:
    """A name from a file, safe to print in a message: control characters escaped, at most one line."""
    text = repr(name[: limit + 1] if isinstance(name, str) else name)
    return text if len(text) <= limit + 2 else text[:limit] + "…"


def one_line(text: str, limit: int = 400) -> str:
    """Text from a file, safe to print inside a message: no control characters, no line breaks, at most `limit` long."""
    line = clean(" ".join(text[: 2 * limit].split()))
    return line if len(line) <= limit else line[:limit] + "…"


# Characters that move the cursor, start an escape sequence or change the writing direction: C0 except line breaks and
# tabs, DEL, C1, and Unicode's bidirectional embeddings, overrides and isolates.
_CONTROLS = [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_HIDDEN = dict.fromkeys(_CONTROLS, "\ufffd")


def clean(text: str) -> str:
    """Text with terminal control characters replaced, one by one, so that a stream can be cleaned piece by piece."""
    return text.translate(_HIDDEN)
