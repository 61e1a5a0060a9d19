"""Files → rows → batches of rows: the input of a batch run.

In: patterns of files (plain text with one row per line; JSONL; CSV and TSV with a text column). Out: rows, each with its
file and line and either its text or an error, and batches: consecutive rows that are answered together. Which rows share a
batch depends on the rows alone, so a run that is resumed, or distributed over machines, answers the same batches. Every
byte is hashed as it is read, so that files that change during a run are noticed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from regard.errors import DataError
from regard.train.data_files import Source, Tally, lines
from regard.train.formats import READERS
from regard.train.read import find_sources
from regard.train.row import BadRow, Layout, check

FORMATS = ("text", "jsonl", "csv", "tsv")
ROW_BATCH_TOKENS = 8192  # answered together; a killed run repeats little more than this
CHARACTERS_PER_TOKEN = 4  # an estimate, only for where a batch of rows ends


@dataclass(frozen=True)
class InputRow:
    """A row of the input: its text, or the error why it has none."""

    file: str
    line: int
    text: str = ""
    error: str | None = None


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows that are answered together."""

    number: int
    rows: tuple[InputRow, ...]


@dataclass(frozen=True)
class InputFiles:
    """The input files as they were when the run began: their format, sizes, hashes and number of rows."""

    sources: tuple[Source, ...]
    layout: Layout
    files: tuple[dict[str, object], ...]  # path, size and sha256 of each
    n_rows: int


def scan(
    patterns: Sequence[str],
    field: str | None = None,
    format: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> InputFiles:
    """Read all input once, so that files that cannot be read are refused now and not in the middle of the run.

    field: the name of the text in JSONL, CSV and TSV; by default `text`, or the first column. progress: called with the
    bytes read and all bytes.
    """
    if "-" in patterns:
        raise DataError("A resumed run reads its input again, so it must be in files: standard input cannot be used.")
    if format is not None and format not in FORMATS:
        raise DataError(f"format is {format!r}; it can be {', '.join(FORMATS)}.")
    layout = Layout(("text",), {"text": field} if field else {}, document="line", format=format)
    sources = tuple(find_sources(patterns, layout))
    total = sum(source.files[0].stamp().size for source in sources)
    tally, n_rows = Tally(), 0
    for n_rows, _ in enumerate(_rows(sources, layout, tally), 1):
        if n_rows % 4096 == 0:
            progress(tally.bytes, total)
    return InputFiles(sources, layout, _hashes(tally), n_rows)


def rows(files: InputFiles) -> Iterator[InputRow]:
    """The rows of the input; raises at the end if a file has changed since it was scanned."""
    tally = Tally()
    yield from _rows(files.sources, files.layout, tally)
    check_unchanged(files.files, _hashes(tally))


def check_unchanged(then: Sequence[dict[str, object]], now: Sequence[dict[str, object]]) -> None:
    if [file["path"] for file in then] != [file["path"] for file in now]:
        names = ", ".join(str(file["path"]) for file in then)
        raise DataError(f"The run was begun on other files ({names}): give those, or begin anew with --restart.")
    for before, after in zip(then, now, strict=True):
        if before != after:
            raise DataError(f"{before['path']} has changed since the run began: begin anew with --restart.")


def row_batches(rows: Iterator[InputRow], new_tokens: int = 0, tokens: int = ROW_BATCH_TOKENS) -> Iterator[RowBatch]:
    """Batches of about `tokens` tokens each, counting `new_tokens` that the model generates for each row."""
    number, batch, size = 0, list[InputRow](), 0
    for row in rows:
        batch.append(row)
        size += 1 + len(row.text) // CHARACTERS_PER_TOKEN + new_tokens
        if size >= tokens:
            yield RowBatch(number, tuple(batch))
            number, batch, size = number + 1, [], 0
    if batch:
        yield RowBatch(number, tuple(batch))


def _hashes(tally: Tally) -> tuple[dict[str, object], ...]:
    return tuple({name: file[name] for name in ("path", "size", "sha256")} for file in tally.files)


def _rows(sources: Sequence[Source], layout: Layout, tally: Tally) -> Iterator[InputRow]:
    for source in sources:
        yield from _text_lines(source, tally) if source.format == "text" else _records(source, layout, tally)


def _text_lines(source: Source, tally: Tally) -> Iterator[InputRow]:
    """One row per line. Blank lines are rows too, so that the answer to line 7 is on line 7."""
    (file,) = source.files
    for number, text in lines(file, tally):
        yield InputRow(file.name, number, text.rstrip("\r\n"))


def _records(source: Source, layout: Layout, tally: Tally) -> Iterator[InputRow]:
    (file,) = source.files
    split, parse = READERS[source.format]
    for number, raw in split(source.files, layout, tally):
        try:
            record = parse(raw, layout)
            check(record, layout)
        except BadRow as bad:
            yield InputRow(file.name, bad.line or number, error=f"{file.name}:{bad.line or number}: {bad}.")
        else:
            yield InputRow(file.name, number, record["text"])
