"""The data formats: how each splits files into raw rows with their line numbers, and how it parses one.

In: a source's files. Out: a stream of raw rows, and from each a row's fields, or `BadRow`. A new format is a split
function, a parse function and a line in `READERS`.
"""

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from regard.errors import DataError
from regard.train.data_files import MAX_LINE, File, Tally, blocks, lines, not_utf8
from regard.train.row import BadRow, Layout, Row

PIECE = 1 << 14  # the longest piece, in characters, that a long text is split into
TAG_COLUMNS = {"upos": 3, "xpos": 4}
ALSO_CALLED = {  # column names by which a header row is recognised
    "text": ("text", "sentence", "review", "content"),
    "label": ("label", "sentiment", "class", "category"),
    "source": ("source", "src"),
    "target": ("target", "tgt"),
}

Files = tuple[File, ...]
Raws = Iterator[tuple[int, Any]]


def _unchanged(raw: Row, layout: Layout) -> Row:
    return raw


def _stripped(text: str) -> str:
    """Without its line end."""
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _split_lines(files: Files, layout: Layout, tally: Tally) -> Raws:
    for number, text in lines(files[0], tally):
        if text.isspace():
            tally.skipped["blank line"] += 1
        else:
            yield number, _stripped(text)


def _parse_line(raw: str, layout: Layout) -> Row:
    return {"text": raw}


def _split_paragraphs(files: Files, layout: Layout, tally: Tally) -> Raws:
    for first, block in _between_blank_lines(files[0], tally):
        yield first, {"text": _stripped("".join(block))}


def _between_blank_lines(file: File, tally: Tally) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    first = size = 0
    for number, text in lines(file, tally):
        if not text.isspace():
            first = first if block else number
            size = size + len(text) if block else len(text)
            block.append(text)
            if size > MAX_LINE:
                raise DataError(f"{file.name}:{first}: no blank line within {MAX_LINE >> 20} MB; is the format right?")
        elif block:
            yield first, block
            block = []
    if block:
        yield first, block


LINE_END, WORD_END = re.compile(r"(?s).*\S\n(?=\S)"), re.compile(r"(?s).*\S(?=\s)")


def _split_pieces(files: Files, layout: Layout, tally: Tally) -> Raws:
    """A text of any length in pieces, split where byte-level BPE gives the same ids as for the whole text."""
    held, first = "", 1
    for text in _decoded(files[0], tally):
        held += text
        while len(held) > PIECE:
            found = LINE_END.match(held, 0, PIECE + 1) or WORD_END.match(held, 0, PIECE + 1)
            cut = found.end() if found else PIECE
            yield first, {"text": held[:cut], "ends": False}
            first += held.count("\n", 0, cut)
            held = held[cut:]
    if held:
        yield first, {"text": held, "ends": True}
    else:
        tally.skipped["empty file"] += 1


def _decoded(file: File, tally: Tally) -> Iterator[str]:
    decoder, before = codecs.getincrementaldecoder("utf-8-sig")(), 1
    try:
        for block in blocks(file, tally):
            yield decoder.decode(block)
            before += block.count(b"\n")
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as problem:
        raise not_utf8(file, before + problem.object.count(b"\n", 0, problem.start), problem) from None


def _parse_json(raw: str, layout: Layout) -> Row:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise BadRow(f"this is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise BadRow("this is JSON but not an object")
    return {name: _of_object(value, layout.names.get(name, name)) for name in layout.wanted}


def _of_object(value: dict[str, Any], key: str) -> Any:
    if value.get(key) is None:
        raise BadRow(f"the object has no {key!r}, only {', '.join(value)[:80]}")
    return value[key]


def _split_tsv(files: Files, layout: Layout, tally: Tally) -> Raws:
    rows = ((number, text.split("\t")) for number, text in _split_lines(files, layout, tally))
    return _by_column(rows, layout, files[0])


def _split_csv(files: Files, layout: Layout, tally: Tally) -> Raws:
    return _by_column(_csv_rows(files[0], tally), layout, files[0])


def _csv_rows(file: File, tally: Tally) -> Raws:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    reader = csv.reader((text for _, text in lines(file, tally)), strict=True)
    while True:
        first = reader.line_num + 1
        try:
            cells: list[str] | csv.Error = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            cells = problem
        if cells == []:
            tally.skipped["blank line"] += 1
        else:
            yield first, cells


def _by_column(rows: Raws, layout: Layout, file: File) -> Raws:
    columns: list[int] | None = None
    for line, cells in rows:
        if columns is None and isinstance(cells, list):
            columns = _header(cells, layout, f"{file.name}:{line}")
            if columns is not None:
                continue
            columns = list(range(len(layout.wanted)))
        yield line, (columns, cells)


def _header(cells: list[str], layout: Layout, where: str) -> list[int] | None:
    """The indices of the wanted columns, if this row is a header; None if it is a row of data."""
    titles = [cell.strip().casefold() for cell in cells]
    columns, missing = [], []
    for name in layout.wanted:
        known = (layout.names[name].casefold(),) if name in layout.names else ALSO_CALLED[name]
        column = next((i for i, title in enumerate(titles) if title in known), None)
        if column is None:
            missing.append(layout.names.get(name, name))
        else:
            columns.append(column)
    if missing and (columns or layout.names):
        raise DataError(f"{where}: the columns are named {', '.join(titles)[:80]}, and none is {' or '.join(missing)}.")
    return None if missing else columns


def _parse_cells(raw: tuple[list[int], list[str] | csv.Error], layout: Layout) -> Row:
    columns, cells = raw
    if isinstance(cells, csv.Error):
        raise BadRow(f"this is not CSV: {cells}")
    if len(cells) <= max(columns):
        raise BadRow(f"there are {len(cells)} columns, and {' and '.join(layout.wanted)} need {max(columns) + 1}")
    return {name: cells[i] for name, i in zip(layout.wanted, columns, strict=True)}


def _split_parallel(files: Files, layout: Layout, tally: Tally) -> Raws:
    counts = [0, 0]
    for pair in zip_longest(*(lines(file, tally) for file in files)):
        counts = [found[0] if found else n for n, found in zip(counts, pair, strict=True)]
        if None not in pair:
            (number, a), (_, b) = pair
            yield number, {"source": _stripped(a), "target": _stripped(b)}
    if counts[0] != counts[1]:
        sizes = " and ".join(f"{file.name} has {n} lines" for file, n in zip(files, counts, strict=True))
        raise DataError(f"{sizes}, but parallel files have as many lines as each other.")


def _split_conllu(files: Files, layout: Layout, tally: Tally) -> Raws:
    if (tags := layout.names.get("tags", "upos").lower()) not in TAG_COLUMNS:
        raise DataError(f"The tags of {files[0].name} are upos or xpos, not {tags!r}.")
    for first, block in _between_blank_lines(files[0], tally):
        yield first, [(first + i, _stripped(text)) for i, text in enumerate(block)]


def _parse_conllu(raw: list[tuple[int, str]], layout: Layout) -> Row:
    """The words of a sentence and their tags. Multiword tokens (`1-2 don't`) and empty nodes (`1.1`) are skipped."""
    column = TAG_COLUMNS[layout.names.get("tags", "upos").lower()]
    tokens, tags = list[str](), list[str]()
    for line, text in raw:
        cells = text.split("\t")
        if text.startswith("#") or (len(cells) == 10 and re.fullmatch(r"\d+-\d+|\d+\.\d+", cells[0])):
            continue
        if len(cells) != 10:
            raise BadRow(f"there are {len(cells)} columns, and a word in CoNLL-U has 10", line)
        if cells[0] != str(len(tokens) + 1):
            raise BadRow(f"the word is numbered {cells[0]!r} where {len(tokens) + 1} was expected", line)
        if cells[column] == "_":
            raise BadRow(f"the word {cells[1]!r} has no tag", line)
        tokens.append(cells[1])
        tags.append(cells[column])
    return {"tokens": tokens, "tags": tags}


READERS: dict[str, tuple[Callable[[Files, Layout, Tally], Raws], Callable[[Any, Layout], Row]]] = {
    "file": (_split_pieces, _unchanged),
    "paragraph": (_split_paragraphs, _unchanged),
    "line": (_split_lines, _parse_line),
    "jsonl": (_split_lines, _parse_json),
    "csv": (_split_csv, _parse_cells),
    "tsv": (_split_tsv, _parse_cells),
    "parallel": (_split_parallel, _unchanged),
    "conllu": (_split_conllu, _parse_conllu),
}
