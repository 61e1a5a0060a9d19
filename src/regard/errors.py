"""Everything that can go wrong for a reason a person can act on.

Each error is one sentence: what is wrong (naming the file, tensor or value) and what to do. The command line
prints that sentence and exits 2; the server turns it into a 4xx. Anything else that escapes is a bug of ours.
"""

LONGEST = 2000  # characters of a sentence, which may quote what stands in a file


class RegardError(Exception):
    """The base of every error this package raises on purpose."""

    def __str__(self) -> str:
        said = super().__str__()
        return said if len(said) <= LONGEST else f"{said[: LONGEST - 300]} … {said[-290:]}"


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
    """A text that does not fit into the model's context, or a prompt that leaves no room in it for an answer."""


class NotFound(RegardError):
    """No model, file or node of that name."""


class TaskError(RegardError):
    """The model cannot do what was asked (for example, translate with a model that has no decoder)."""


class TrainingError(RegardError):
    """Training cannot begin, or cannot go on: the loss is not a number, or a run does not fit what it resumes."""


class DataError(RegardError):
    """Data for training is missing, malformed at a certain line, or its prepared form on the disk is damaged."""


def no_row(id: int, n_rows: int, ids: str = "The ids") -> str:
    """The sentence about a token id that an embedding of `n_rows` rows has no row for."""
    return f"{ids} hold {id}, but the vocabulary ends at {n_rows - 1}: the model's embedding has {n_rows} rows."


def quoted(name: object, limit: int = 80) -> str:
    """A name from a file, safe to print in a sentence: control characters escaped, never longer than a line."""
    text = repr(name[: limit + 1] if isinstance(name, str) else name)
    return text if len(text) <= limit + 2 else text[:limit] + "…"


def one_line(text: str, limit: int = 400) -> str:
    """A sentence from a file, safe to print inside another: no control characters, no line breaks, not long."""
    words = clean(" ".join(text[: 2 * limit].split()))
    return words if len(words) <= limit else words[:limit] + "…"


# What moves the cursor, starts an escape sequence or turns the direction of writing: C0 but for line breaks and tabs, DEL,
# C1, and Unicode's embeddings, overrides and isolates.
_CONTROLS = [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_HIDDEN = dict.fromkeys(_CONTROLS, "\ufffd")


def clean(text: str) -> str:
    """Text that a terminal shows and does not obey, character by character, so that pieces of a text can be cleaned too."""
    return text.translate(_HIDDEN)
