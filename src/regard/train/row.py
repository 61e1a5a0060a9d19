"""A row of data, and the fields that a task needs in it.

In: a task's fields (`Layout`), a row as a format parsed it. Out: the row with every field of the right type, or the reason
why it is malformed. Nothing heavy is imported here, since every worker process that encodes rows imports this module.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.errors import DataError

Row = dict[str, Any]  # the wanted fields, and `file` and `line`

FORMATS = ("text", "jsonl", "csv", "tsv", "parallel", "conllu")


@dataclass(frozen=True)
class Layout:
    """Which fields a task reads from its files, and how.

    `wanted`: the fields, among text, label, source, target, tokens, tags, messages. `names`: their names in the files,
    where they differ. `document`: what is one text in a plain text file: "file", "paragraph" (blank lines between) or
    "line". `format`: for all files, whatever their extension. `bad_rows`: "stop" or "skip".
    """

    wanted: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    document: str = "file"
    format: str | None = None
    bad_rows: str = "stop"

    def __post_init__(self) -> None:
        choices = {"document": ("file", "paragraph", "line"), "bad_rows": ("stop", "skip")}
        for name, allowed in (choices | {"format": (None, *FORMATS)}).items():
            if (value := getattr(self, name)) not in allowed:
                raise DataError(f"{name} is {value!r}; it must be one of {', '.join(filter(None, allowed))}.")

    def settings(self) -> dict[str, Any]:
        """The part of it that the rows depend on, for the manifest."""
        names = dict(sorted(self.names.items()))
        return {"wanted": list(self.wanted), "names": names, "document": self.document, "bad_rows": self.bad_rows}


class BadRow(Exception):
    """Why a row is malformed, and on which line if not on its first."""

    def __init__(self, reason: str, line: int | None = None):
        super().__init__(reason)
        self.line = line


def check(row: Row, layout: Layout) -> None:
    """Check and convert a row's fields in place; `BadRow` if one is missing or of another type."""
    for name in layout.wanted:
        if row.get(name) is None:
            raise BadRow(f"there is no {name}")
        row[name] = CHECKS[name](row[name], name)
    if {"tokens", "tags"} <= row.keys() and len(row["tokens"]) != len(row["tags"]):
        raise BadRow(f"there are {len(row['tokens'])} tokens but {len(row['tags'])} tags")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"the {name} is not text but {json.dumps(value)[:40]}")
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError as problem:
        raise BadRow(f"the {name} has half a character (U+{ord(value[problem.start]):04X}) in it") from None
    return value


def _label(value: Any, name: str) -> str:
    if isinstance(value, bool | int):
        value = json.dumps(value)
    label = _text(value, name).strip()
    if not label:
        raise BadRow(f"the {name} is empty")
    return label


def _words(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise BadRow(f"the {name} are not a list of words")
    return [_text(word, name) for word in value]


def _messages(value: Any, name: str) -> list[Any]:
    have_roles = isinstance(value, list) and all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in value)
    if not have_roles or not all("content" in m for m in value):
        raise BadRow(f"the {name} are not a list of objects with a role and a content")
    return list(value)


CHECKS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("text", "source", "target"), _text),
    **dict.fromkeys(("tokens", "tags"), _words),
    "label": _label,
    "messages": _messages,
}
