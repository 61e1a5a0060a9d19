"""Every format gives its rows, and an error names the file and line of a malformed one."""

import io
import json
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.train import data_files, formats
from regard.train.read import Layout, Row, Tally, expand, find_sources, read_rows, read_texts

TEXT = Layout(("text",))
LINES = Layout(("text",), document="line")
PAIRS = Layout(("source", "target"))
LABELLED = Layout(("text", "label"))
TAGGED = Layout(("tokens", "tags"))
CHAT = Layout(("messages",))


def put(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def rows_of(layout: Layout, *patterns: str) -> tuple[list[Row], Tally]:
    tally = Tally()
    rows = [row for found in find_sources(patterns, layout) for row in read_rows(found, layout, tally)]
    return rows, tally


def fields(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


# ── which files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_and_globs_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.md", "odd[1].txt"):
        put(tmp_path / name, name)
    found = expand([str(tmp_path / "c.md"), str(tmp_path / "[ab].txt"), str(tmp_path / "odd[1].txt")])
    assert [path.name for path in found] == ["c.md", "a.txt", "b.txt", "odd[1].txt"]


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\*.txt names no file"):
        expand([str(tmp_path / "none*.txt")])
    with pytest.raises(DataError, match="is a directory; name the files"):
        expand([str(tmp_path)])
    with pytest.raises(DataError, match=r"a\.xyz does not tell its format; give it with --format \(text, jsonl"):
        find_sources([put(tmp_path / "a.xyz", "x")], TEXT)
    with pytest.raises(DataError, match=r"a\.csv is read as csv, which has no tokens and tags"):
        find_sources([put(tmp_path / "a.csv", "x")], TAGGED)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "x")
    found = find_sources([path], LINES)[0]
    Path(path).unlink()
    with pytest.raises(DataError, match=r"a\.txt cannot be read: No such file"):
        list(read_rows(found, LINES, Tally()))
    Path(path).mkdir()
    with pytest.raises(DataError, match=r"a\.txt cannot be read: Is a directory"):
        list(read_rows(found, LINES, Tally()))


def test_standard_input_is_copied_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Typed:
        buffer = io.BytesIO("été\nhiver\n".encode())

    monkeypatch.setattr(sys, "stdin", Typed)
    (found,) = find_sources(["-"], LINES)
    for _ in range(2):
        rows = list(read_rows(found, LINES, Tally()))
        assert fields(rows, "line", "text") == [(1, "été"), (2, "hiver")]
    assert Path(rows[0]["file"]).name == "stdin.txt"
    Typed.buffer = io.BytesIO(b'{"text": "x"}')
    rows, _ = rows_of(Layout(("text",), format="jsonl"), "-")
    assert fields(rows, "text") == [("x",)]


def test_the_one_text_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "fra-eng.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_about.txt", "about")
        archive.writestr("fra.txt", "Go.\tVa !\nRun!\tCours !\n")
    rows, tally = rows_of(PAIRS, str(path))
    assert fields(rows, "source", "target") == [("Go.", "Va !"), ("Run!", "Cours !")]
    assert tally.files[0]["size"] == 22
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("deu.txt", "Go.\tGeh!\n")
    with pytest.raises(DataError, match="contains 2 texts; unpack it"):
        find_sources([str(path)], PAIRS)
    path.write_bytes(b"PK\3\4 not really")
    with pytest.raises(DataError, match=r"fra-eng\.zip is not a zip archive"):
        find_sources([str(path)], PAIRS)


# ── plain text ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_texts_are_lines_paragraphs_or_files(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "\ufeff one \r\ntwo\n\n\nthree\u2028x\n \nfour")
    rows, tally = rows_of(LINES, path)
    assert fields(rows, "line", "text") == [(1, " one "), (2, "two"), (5, "three\u2028x"), (7, "four")]
    assert tally.skipped == {"blank line": 3}
    rows, _ = rows_of(Layout(("text",), document="paragraph"), path)
    assert fields(rows, "line", "text") == [(1, " one \r\ntwo"), (5, "three\u2028x"), (7, "four")]
    rows, _ = rows_of(TEXT, path)
    assert fields(rows, "text", "ends") == [(" one \r\ntwo\n\n\nthree\u2028x\n \nfour", True)]
    assert rows[0]["file"] == path


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("ab é\n\r\t日🦊"), max_size=200), st.integers(2, 40), st.integers(1, 9))
def test_pieces_joined_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, piece: int, block: int
) -> None:
    path = put(tmp_path_factory.mktemp("pieces") / "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "PIECE", piece)
        patch.setattr(formats, "blocks", lambda file, tally: data_files.blocks(file, tally, block))
        rows, tally = rows_of(TEXT, path)
    assert "".join(row["text"] for row in rows) == text
    assert [row["ends"] for row in rows] == [False] * (len(rows) - 1) + [True] * bool(rows)
    assert all(0 < len(row["text"]) <= piece for row in rows)
    assert all(row["line"] == 1 + "".join(r["text"] for r in rows[:i]).count("\n") for i, row in enumerate(rows))
    assert tally.skipped == ({} if text else {"empty file": 1})


def test_pieces_end_where_words_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "PIECE", 12)
    path = put(tmp_path / "a.txt", "one two\nthree four five six\n\n\nseven")
    rows, _ = rows_of(TEXT, path)
    assert fields(rows, "text") == [("one two\n",), ("three four",), (" five six",), ("\n\n\nseven",)]


# ── rows with fields ────────────────────────────────────────────────────────────────────────────────────────────────


def test_jsonl(tmp_path: Path) -> None:
    lines = [
        {"text": "good\nfilm", "label": 1},
        {"text": "bad", "label": "no", "more": []},
        {"text": "b", "label": True},
    ]
    path = put(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, lines)) + '\n{"text": " ", "label": 0}')
    rows, tally = rows_of(LABELLED, path)
    assert fields(rows, "line", "text", "label") == [(1, "good\nfilm", "1"), (3, "bad", "no"), (5, "b", "true")]
    assert tally.skipped == {"blank line": 2, "empty text": 1}
    named = Layout(("source", "target"), {"source": "en", "target": "fr"})
    rows, _ = rows_of(named, put(tmp_path / "b.jsonl", '{"fr": "chat", "en": "cat"}'))
    assert fields(rows, "source", "target") == [("cat", "chat")]


def test_conversations(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    path = put(tmp_path / "a.jsonl", json.dumps({"messages": said}) + "\n" + json.dumps({"messages": []}))
    rows, tally = rows_of(CHAT, path)
    assert rows == [{"file": path, "line": 1, "messages": said}]
    assert tally.skipped == {"empty messages": 1}
    assert list(read_texts(find_sources([path], CHAT), CHAT)) == ["Hi", "Hello"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", 'a "quote\t1\nb, c\t0\textra\n', [(1, 'a "quote', "1"), (2, "b, c", "0")]),
        ("a.txt", "a\t1\r\nb\t0\r\n", [(1, "a", "1"), (2, "b", "0")]),
        ("a.tsv", "id\tLabel\tSentence\n7\t1\ta\n8\t0\tb", [(2, "a", "1"), (3, "b", "0")]),
        (
            "a.csv",
            'text,label\n"two\nlines, ""said""",1\nplain,0\n',
            [(2, 'two\nlines, "said"', "1"), (4, "plain", "0")],
        ),
        ("a.csv", "good,1\n\nbad, 0 \n", [(1, "good", "1"), (3, "bad", "0")]),
    ],
)
def test_tables(tmp_path: Path, name: str, content: str, expected: list[tuple[Any, ...]]) -> None:
    rows, _ = rows_of(LABELLED, put(tmp_path / name, content))
    assert fields(rows, "line", "text", "label") == expected


def test_a_table_with_other_column_names(tmp_path: Path) -> None:
    layout = Layout(("text", "label"), {"text": "Body"})
    rows, _ = rows_of(layout, put(tmp_path / "a.csv", "label,other,body\n1,x,yes\n"))
    assert fields(rows, "text", "label") == [("yes", "1")]
    with pytest.raises(DataError, match=r"b\.csv:1: the columns are named label, text, and none is Body"):
        rows_of(layout, put(tmp_path / "b.csv", "label,text\n1,x\n"))


def test_parallel_files(tmp_path: Path) -> None:
    english, french = put(tmp_path / "a.en", "cat\n\ndog\n"), put(tmp_path / "a.fr", "chat\nrien\nchien")
    for patterns in ([f"{english},{french}"], [english, french], [f"{tmp_path}/*.en,{tmp_path}/*.fr"]):
        rows, tally = rows_of(PAIRS, *patterns)
        assert fields(rows, "line", "source", "target") == [(1, "cat", "chat"), (3, "dog", "chien")]
        assert tally.skipped == {"empty source": 1}
        assert [Path(str(file["path"])).name for file in tally.files] == ["a.en", "a.fr"]
    put(tmp_path / "a.fr", "chat\n")
    with pytest.raises(DataError, match=r"a\.en has 3 lines and .*a\.fr has 1 lines"):
        rows_of(PAIRS, english, french)
    with pytest.raises(DataError, match="parallel files come in twos"):
        rows_of(PAIRS, english)
    put(tmp_path / "b.en", "")
    with pytest.raises(DataError, match="matches 2 source files and 1 target files"):
        rows_of(PAIRS, f"{tmp_path}/*.en,{tmp_path}/*.fr")


def conllu(*words: tuple[str, str, str]) -> str:
    cells = ([i, form, "_", tag, f"X{tag}", *"_____"] for i, form, tag in words)
    return "".join("\t".join(row) + "\n" for row in cells)


def test_conllu(tmp_path: Path) -> None:
    first = conllu(("1-2", "don't", "_"), ("1", "do", "AUX"), ("2", "n't", "PART"), ("2.1", "unsaid", "VERB"))
    path = put(tmp_path / "a.conllu", f"# text = don't\n{first}\n\n# two\n{conllu(('1', 'Go', 'VERB'))}")
    rows, _ = rows_of(TAGGED, path)
    assert fields(rows, "line", "tokens", "tags") == [(1, ["do", "n't"], ["AUX", "PART"]), (8, ["Go"], ["VERB"])]
    rows, _ = rows_of(Layout(("tokens", "tags"), {"tags": "xpos"}), path)
    assert rows[1]["tags"] == ["XVERB"]
    rows, _ = rows_of(TAGGED, put(tmp_path / "b.jsonl", '{"tokens": ["a"], "tags": ["DET"]}'))
    assert rows[0]["tokens"] == ["a"]


# ── what is wrong ───────────────────────────────────────────────────────────────────────────────────────────────────

BAD = {
    "not JSON": (LABELLED, "a.jsonl", '{"text": "x", "label": 1}\n\n{"text": \n', "3: this is not JSON: Expecting"),
    "nested deep": (LABELLED, "a.jsonl", "[" * 10**5, "1: this is not JSON"),
    "not an object": (LABELLED, "a.jsonl", "[1]", "1: this is JSON but not an object"),
    "no such field": (LABELLED, "a.jsonl", '{"text": "x", "y": 1}', "1: the object has no 'label', only text, y"),
    "not text": (LABELLED, "a.jsonl", '{"text": [1], "label": 1}', r"1: the text is not text but \[1\]"),
    "half a character": (LABELLED, "a.jsonl", r'{"text": "a\ud800", "label": 1}', r"1: .*half a character \(U\+D800\)"),
    "label a number": (LABELLED, "a.jsonl", '{"text": "x", "label": 0.5}', "1: the label is not text but 0.5"),
    "label empty": (LABELLED, "a.tsv", "x\t1\ny\t \n", "2: the label is empty"),
    "too few columns": (PAIRS, "a.tsv", "a\tb\nc\n", "2: there are 1 columns, and source and target need 2"),
    "open quote": (LABELLED, "a.csv", 'a,1\n"b,2\nc,3\n', "2: this is not CSV: unexpected end"),
    "text after a quote": (LABELLED, "a.csv", 'a,1\n"b"c,2\n', "2: this is not CSV"),
    "messages without roles": (CHAT, "a.jsonl", '{"messages": [{"content": "x"}]}', "1: the messages are not a list"),
    "tokens not words": (
        TAGGED,
        "a.jsonl",
        '{"tokens": ["a", ""], "tags": ["X", "Y"]}',
        "1: the tokens are not a list",
    ),
    "tags missing": (TAGGED, "a.jsonl", '{"tokens": ["a", "b"], "tags": ["X"]}', "1: there are 2 tokens but 1 tags"),
    "columns": (TAGGED, "a.conllu", "# x\n1\tGo\tVERB\n", "2: there are 3 columns, and a word in CoNLL-U has 10"),
    "numbering": (TAGGED, "a.conllu", conllu(("1", "a", "X"), ("3", "b", "X")), "2: the word is numbered '3' where 2"),
    "no tag": (TAGGED, "a.conllu", conllu(("1", "a", "X"), ("2", "b", "_")), "2: the word 'b' has no tag"),
}


@pytest.mark.parametrize(("layout", "name", "content", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_named(tmp_path: Path, layout: Layout, name: str, content: str, message: str) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(DataError, match=f"^{path}:{message}"):
        rows_of(layout, path)


def test_bad_rows_can_be_counted_instead(tmp_path: Path) -> None:
    layout = Layout(("text", "label"), bad_rows="skip")
    rows, tally = rows_of(layout, put(tmp_path / "a.csv", 'a,1\n"b"c,2\nd\ne,5\n'))
    assert fields(rows, "line", "text") == [(1, "a"), (4, "e")]
    assert tally.skipped == {"malformed row": 2}


@pytest.mark.parametrize("layout", [TEXT, LINES])
def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path, layout: Layout) -> None:
    for content, line in ((b"one\ntw\xe9o\nthree", 2), (b"a\n" * 70_000 + b"\xe9", 70_001), (b"a\nb\xe2\x82", 2)):
        path = put(tmp_path / "a.txt", content)
        with pytest.raises(DataError, match=rf"a\.txt:{line}: byte 0xe[29] is not UTF-8 text; convert"):
            rows_of(layout, path)


def test_a_huge_line_is_refused_without_being_read(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", b"x\n" * 3 + b"y" * (data_files.MAX_LINE + 1))
    with pytest.raises(DataError, match=r"a\.jsonl:4: the line is longer than 16 MB"):
        rows_of(Layout(("text",), bad_rows="skip"), path)
    paragraphs = Layout(("text",), document="paragraph", format="text")
    with pytest.raises(DataError, match=r"a\.jsonl:1: no blank line within 16 MB"):
        rows_of(paragraphs, put(tmp_path / "a.jsonl", (b"y" * 1023 + b"\n") * 16_385))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "one\ntwo\n" * 300_000)
    found = find_sources([path], LINES)[0]
    with pytest.raises(DataError, match=r"a\.txt was changed while it was being read"):  # noqa: PT012
        for row in read_rows(found, LINES, Tally()):
            if row["line"] == 1:
                put(tmp_path / "a.txt", "one\ntwo\n" * 300_001)


def test_reading_uses_little_memory(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", '{"text": "some words of a row"}\n' * 200_000)
    found = find_sources([path], TEXT)[0]
    tracemalloc.start()
    assert sum(1 for _ in read_rows(found, TEXT, Tally())) == 200_000
    assert tracemalloc.get_traced_memory()[1] < 4 << 20  # of a file of 6.4 MB
    tracemalloc.stop()


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(DataError, match="document is 'page'; it must be one of file, paragraph, line"):
        Layout(("text",), document="page")
    with pytest.raises(DataError, match="format is 'xml'; it must be one of text, jsonl"):
        Layout(("text",), format="xml")
