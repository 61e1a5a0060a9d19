"""Files → rows → parcels: what an offline run reads.

In come patterns of files (plain text, a line a row; JSONL; CSV and TSV with a text column). Out come rows, each with the
file and line it stands on and either its text or the reason why it has none, and parcels: consecutive rows that are
answered together. Which rows share a parcel depends on the rows alone, so a run that is resumed, or spread over machines,
answers the same parcels. Every byte is hashed as it streams by, so that files that change under a run are noticed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from regard.errors import DataError
from regard.train.formats import READERS
from regard.train.read import find_sources
from regard.train.row import BadRow, Layout, check
from regard.train.source import Source, Tally, lines

FORMATS = ("text", "jsonl", "csv", "tsv")
PARCEL_TOKENS = 8192  # answered together; a killed run repeats little more than this
CHARACTERS_PER_TOKEN = 4  # about; real tokens decide batches, this only where a parcel ends


@dataclass(frozen=True)
class Row:
    file: str
    line: int
    text: str = ""
    error: str | None = None


@dataclass(frozen=True)
class Parcel:
    number: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Input:
    """Files as they were when the run began: how they are read, what they held, how many rows that is."""

    sources: tuple[Source, ...]
    layout: Layout
    files: tuple[dict[str, object], ...]  # path, size and sha256 of each
    n_rows: int


def survey(
    patterns: Sequence[str],
    field: str | None = None,
    format: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Input:
    """Read everything once: what cannot be read is refused now, not in the middle of the night.

    field: the name of the text in JSONL, CSV and TSV; else `text`, or a first column. progress: bytes read, in all.
    """
    if "-" in patterns:
        raise DataError("A run that is killed reads its input again, so it must be in files: standard input cannot be.")
    if format is not None and format not in FORMATS:
        raise DataError(f"format is {format!r}; it can be {', '.join(FORMATS)}.")
    layout = Layout(("text",), {"text": field} if field else {}, document="line", format=format)
    sources = tuple(find_sources(patterns, layout))
    total = sum(source.files[0].stamp().size for source in sources)
    tally, n_rows = Tally(), 0
    for n_rows, _ in enumerate(_rows(sources, layout, tally), 1):
        if n_rows % 4096 == 0:
            progress(tally.bytes, total)
    return Input(sources, layout, _noted(tally), n_rows)


def rows(given: Input) -> Iterator[Row]:
    """The rows of the input, refused at the end if it is no longer what was surveyed."""
    tally = Tally()
    yield from _rows(given.sources, given.layout, tally)
    check_unchanged(given.files, _noted(tally))


def check_unchanged(then: Sequence[dict[str, object]], now: Sequence[dict[str, object]]) -> None:
    if [file["path"] for file in then] != [file["path"] for file in now]:
        names = ", ".join(str(file["path"]) for file in then)
        raise DataError(f"The run was begun on other files ({names}): give those, or begin anew with --restart.")
    for before, after in zip(then, now, strict=True):
        if before != after:
            raise DataError(f"{before['path']} has changed since the run began: begin anew with --restart.")


def parcels(given: Iterator[Row], written: int = 0, tokens: int = PARCEL_TOKENS) -> Iterator[Parcel]:
    """Rows by the parcel of so many tokens; `written` is how many the model may write for each row."""
    number, held, size = 0, list[Row](), 0
    for row in given:
        held.append(row)
        size += 1 + len(row.text) // CHARACTERS_PER_TOKEN + written
        if size >= tokens:
            yield Parcel(number, tuple(held))
            number, held, size = number + 1, [], 0
    if held:
        yield Parcel(number, tuple(held))


def _noted(tally: Tally) -> tuple[dict[str, object], ...]:
    return tuple({name: file[name] for name in ("path", "size", "sha256")} for file in tally.files)


def _rows(sources: Sequence[Source], layout: Layout, tally: Tally) -> Iterator[Row]:
    for source in sources:
        yield from _text_lines(source, tally) if source.format == "text" else _records(source, layout, tally)


def _text_lines(source: Source, tally: Tally) -> Iterator[Row]:
    """Blank lines count, so that the answer to line 7 stands on line 7."""
    (file,) = source.files
    for number, text in lines(file, tally):
        yield Row(file.name, number, text.rstrip("\r\n"))


def _records(source: Source, layout: Layout, tally: Tally) -> Iterator[Row]:
    (file,) = source.files
    split, parse = READERS[source.format]
    for number, raw in split(source.files, layout, tally):
        try:
            record = parse(raw, layout)
            check(record, layout)
        except BadRow as bad:
            yield Row(file.name, bad.line or number, error=f"{file.name}:{bad.line or number}: {bad}.")
        else:
            yield Row(file.name, number, record["text"])
