"""Files of text, pairs, labels, tags or conversations → rows.

In: sources and a layout: the fields that a task needs and how they are named in the files. Out: one small dict per row:
those fields, and the `file` and 1-based `line` they come from. Nothing is lost silently: a malformed row is an error with
its file and line (or is counted, if the layout is to skip them), an empty one is counted in the tally.

| format | extension | rows |
|---|---|---|
| text | .txt .text .md | `document`: a file is one text, unchanged, in pieces; or a paragraph is one, or a line |
| jsonl | .jsonl .ndjson | an object per line with the fields |
| csv, tsv | .csv, .tsv .tab | columns by the names in the first row if it is a header, else in the layout's order |
| parallel | any two files | line n of the one is the source, line n of the other the target |
| conllu | .conllu | a sentence: FORM and UPOS of its words |

A .txt file for a task with two columns is read as tab-separated. A row's line end is not part of its text. The pieces of a
file that is one text have a field `ends`, true in the last one; joined they are the file.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.train.data_files import File, Source, Tally, expand, open_path
from regard.train.formats import READERS
from regard.train.row import FORMATS, BadRow, Layout, Row, check

__all__ = ["Layout", "Row", "Source", "Tally", "expand", "find_sources", "read_rows", "read_texts"]

SUFFIXES = {
    **dict.fromkeys((".txt", ".text", ".md"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".tsv", ".tab"), "tsv"),
    ".csv": "csv",
    ".conllu": "conllu",
}
HOLDS = {  # the fields that a format can have; JSONL has any
    "text": {"text"},
    "csv": {"text", "label", "source", "target"},
    "tsv": {"text", "label", "source", "target"},
    "parallel": {"source", "target"},
    "conllu": {"tokens", "tags"},
}


# ── which files, in which format ────────────────────────────────────────────────────────────────────────────────────


def find_sources(patterns: Sequence[str], layout: Layout) -> list[Source]:
    """The sources that match patterns. `a.en,b.fr` are parallel files; so are exactly two files of no known extension."""
    found: list[Source] = []
    unpaired: list[File] = []
    for pattern in patterns:
        if "source" in layout.wanted and pattern.count(",") == 1 and not Path(pattern).exists():
            found += _parallel_sources(pattern)
            continue
        for file in map(open_path, expand([pattern])):
            format = _format_of(file, layout)
            if format == "parallel":
                unpaired.append(file)
            else:
                found.append(Source((file,), format))
    if len(unpaired) not in (0, 2):
        names = ", ".join(file.name for file in unpaired)
        raise DataError(f"{names}: parallel files come in twos; give each two as one, source,target.")
    return [*found, Source(tuple(unpaired), "parallel")] if unpaired else found


def _parallel_sources(pattern: str) -> list[Source]:
    left, right = (expand([half]) for half in pattern.split(","))
    if len(left) != len(right):
        raise DataError(f"{pattern} matches {len(left)} source files and {len(right)} target files.")
    return [Source((open_path(a), open_path(b)), "parallel") for a, b in zip(left, right, strict=True)]


def _format_of(file: File, layout: Layout) -> str:
    format = layout.format or SUFFIXES.get(file.suffix) or ("parallel" if "source" in layout.wanted else None)
    if format == "text" and layout.wanted != ("text",) and layout.format is None:
        format = "tsv"
    if format is None:
        raise DataError(
            f"The name of {file.name} does not tell its format; give it with --format ({', '.join(FORMATS)})."
        )
    if missing := [name for name in layout.wanted if name not in HOLDS.get(format, layout.wanted)]:
        raise DataError(f"{file.name} is read as {format}, which has no {' and '.join(missing)}; use JSONL.")
    return format


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_rows(source: Source, layout: Layout, tally: Tally) -> Iterator[Row]:
    """The rows of a source, one after the other; what is read and what is skipped is counted in the tally."""
    name = ",".join(file.name for file in source.files)
    split, parse = READERS[layout.document if source.format == "text" else source.format]
    for line, raw in split(source.files, layout, tally):
        try:
            row = parse(raw, layout)
            check(row, layout)
        except BadRow as bad:
            if layout.bad_rows == "stop":
                raise DataError(f"{name}:{bad.line or line}: {bad}.") from None
            tally.skipped["malformed row"] += 1
            continue
        if "ends" not in row and (empty := [field for field in layout.wanted if _is_empty(row[field])]):
            tally.skipped[f"empty {empty[0]}"] += 1
            continue
        yield {"file": name, "line": line, **row}


def read_texts(sources: Sequence[Source], layout: Layout) -> Iterator[str]:
    """Every text in the sources, to train a tokenizer on."""
    for source in sources:
        for row in read_rows(source, layout, Tally()):
            for name in layout.wanted:
                yield from _texts_in(name, row[name])


def _texts_in(name: str, value: Any) -> Iterator[str]:
    if name in ("text", "source", "target"):
        yield value
    elif name == "tokens":
        yield " ".join(value)
    elif name == "messages":
        yield from (m["content"] for m in value if isinstance(m["content"], str))


def _is_empty(value: Any) -> bool:
    return not value or (isinstance(value, str) and value.isspace())
