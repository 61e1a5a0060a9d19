"""A dataset is complete or absent, the same for any number of workers, and made again only when something changed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_recipe as tiny
from regard.errors import CheckpointError, DataError
from regard.train import dataset as preparing
from regard.train.dataset import prepare
from regard.train.preprocess import Chunk, PackedTokenizer, encode_all
from regard.train.read import Layout, find_sources, read_texts
from regard.train.shards import Columns, ShardWriter, Stream
from regard.train.tokenizer import LM, TRANSLATE, train_tokenizer

LINES = Layout(("text",), document="line")
WHOLE = Layout(("text",))
PAIRS = Layout(("source", "target"))


def made(directory: Path, path: Path, recipe: Any = None, layout: Layout = LINES, **options: Any) -> Columns:
    return prepare(directory, find_sources([str(path)], layout), layout, recipe or tiny.Codes(), **options)


def text_file(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def words(columns: Columns) -> list[str]:
    return ["".join(map(chr, columns[i]["codes"])) for i in range(len(columns))]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.name != ".lock"}


# ── shards ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.lists(st.integers(0, 65535), max_size=5), max_size=4), max_size=6),
    st.integers(1, 12),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[list[int]]], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    rows = [row for batch in batches for row in batch]
    with ShardWriter(folder, {"a": "uint16", "b_c": "int64"}, limit) as writer:
        for batch in batches:
            flat = [x for row in batch for x in row]
            lengths = np.array([len(row) for row in batch], np.int64)
            values = {"a": np.array(flat, "<u2"), "b_c": -np.array(flat, "<i8")}
            writer.write(values, {"a": lengths, "b_c": lengths})
        depends = {"version": 1, "task": "t", "tokenizer": "", "settings": {}, "sources": [], "skipped": {}}
        (folder / "manifest.json").write_text(json.dumps(depends | writer.finish()))
    columns = Columns(folder, verify=True)
    assert [columns[i]["a"].tolist() for i in range(len(columns))] == rows
    assert [(-columns[i]["b_c"]).tolist() for i in range(len(columns))] == rows
    assert columns.lengths("a").tolist() == [len(row) for row in rows]
    flat = [x for row in rows for x in row]
    stream = columns.stream("a")
    assert len(stream) == len(flat)
    for start in range(0, len(flat), 3):
        for stop in range(start, len(flat) + 1, 4):
            assert stream.read(start, stop).tolist() == flat[start:stop]


def test_rows_are_memory_mapped_and_read_only(tmp_path: Path) -> None:
    columns = made(tmp_path / "d", text_file(tmp_path / "a.txt", "abc", "de"))
    row = columns[1]["codes"]
    assert row.base is not None
    assert row.dtype == np.uint32
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1
    for index in (-1, 2):
        with pytest.raises(IndexError):
            columns[index]
    with pytest.raises(IndexError):
        Stream([row]).read(1, 3)


def test_the_manifest_lists_the_contents(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.txt", "abc", "", "skip me", "words x yz", "skip me")
    columns = made(tmp_path / "d", path)
    assert words(columns) == ["abc", "x", "yz"]
    manifest = columns.manifest
    assert manifest["skipped"] == {"blank line": 1, "not wanted": 2}
    assert manifest["columns"] == {
        "codes": {"dtype": "uint32", "values": 6},
        "length": {"dtype": "int64", "values": 3},
    }
    assert (manifest["task"], manifest["rows"]) == ("codes", 3)
    (source,) = manifest["sources"]
    assert (source["path"], source["size"]) == (str(path), path.stat().st_size)
    assert source["sha256"] == subprocess.check_output(["sha256sum", path], text=True).split()[0]
    assert columns.summary() == ("3 examples (6 in codes, 3 in length); left out: 1 × blank line; 2 × not wanted.")


# ── prepared once, noticed when it changes ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    lines = [f"the cat {i} sat\tle chat {i} était assis" + " là" * (i % 9) for i in range(3000)]
    return text_file(tmp_path / "pairs.tsv", *lines)


@pytest.fixture
def packed(pairs: Path) -> PackedTokenizer:
    texts = read_texts(find_sources([str(pairs)], PAIRS), PAIRS)
    return PackedTokenizer(train_tokenizer("bpe", texts, 300, TRANSLATE))


def test_a_dataset_is_reused_until_something_changes(tmp_path: Path, pairs: Path, packed: PackedTokenizer) -> None:
    said: list[str] = []

    def again(recipe: tiny.Pairs, layout: Layout = PAIRS) -> Columns:
        said.clear()
        return made(tmp_path / "d", pairs, recipe, layout, notify=said.append)

    first = again(tiny.Pairs(packed, 30))
    assert said == []
    before = contents(tmp_path / "d")
    assert again(tiny.Pairs(packed, 30)).fingerprint == first.fingerprint
    os.utime(pairs, (1, 1))  # another time but the same content
    assert again(tiny.Pairs(packed, 30)).fingerprint == first.fingerprint
    assert said == []
    assert contents(tmp_path / "d") == before

    shorter = again(tiny.Pairs(packed, 12))
    assert said == [f"The setting max_length was 30 and is 12, so {tmp_path / 'd'} is prepared again."]
    assert shorter.fingerprint != first.fingerprint
    assert shorter.manifest["skipped"]["longer than 12"] > 0
    other = PackedTokenizer(train_tokenizer("bpe", iter(["the cat sat", "le chat était assis"]), 310, TRANSLATE))
    again(tiny.Pairs(other, 12))
    assert said == [f"The tokenizer has changed, so {tmp_path / 'd'} is prepared again."]
    again(tiny.Pairs(other, 12), Layout(("source", "target"), bad_rows="skip"))
    assert said == [f"The setting bad_rows was 'stop' and is 'skip', so {tmp_path / 'd'} is prepared again."]


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "fresh"])
@pytest.mark.parametrize(
    "change",
    [lambda text: text + "\nx\ty", lambda text: text.replace("cat 7 ", "dog 7 ")],
    ids=["longer", "as long"],
)
def test_a_changed_file_is_noticed(
    tmp_path: Path, pairs: Path, packed: PackedTokenizer, change: Callable[[str], str], settled: bool
) -> None:
    if settled:
        os.utime(pairs, (1_600_000_000, 1_600_000_000))
    first = made(tmp_path / "d", pairs, tiny.Pairs(packed, 30), PAIRS)
    assert (first.manifest["sources"][0]["mtime_ns"] is None) is not settled
    stamp = pairs.stat()
    pairs.write_text(change(pairs.read_text()))
    if not settled:  # a second change so soon after the first that the clock of the disk shows no difference
        os.utime(pairs, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    said: list[str] = []
    second = made(tmp_path / "d", pairs, tiny.Pairs(packed, 30), PAIRS, notify=said.append)
    assert said == [f"{pairs} has changed, so {tmp_path / 'd'} is prepared again."]
    assert second.fingerprint != first.fingerprint


def test_another_number_of_files_is_noticed(tmp_path: Path) -> None:
    text_file(tmp_path / "a1.txt", "abc")
    made(tmp_path / "d", tmp_path / "a*.txt")
    text_file(tmp_path / "a2.txt", "de")
    said: list[str] = []
    assert words(made(tmp_path / "d", tmp_path / "a*.txt", notify=said.append)) == ["abc", "de"]
    assert said == [f"There were 1 files and are 2, so {tmp_path / 'd'} is prepared again."]


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"version": 1}')


def cut_short(folder: Path) -> None:
    os.truncate(folder / "codes-00000.values", 4)


def remove(folder: Path) -> None:
    (folder / "codes-00000.ends").unlink()


def disagree(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][0]["rows"] = 7
    (folder / "manifest.json").write_text(json.dumps(manifest))


DAMAGES = {
    "manifest": (damage_manifest, "KeyError 'task'"),
    "size": (cut_short, "codes-00000.values has 4 bytes instead of 20"),
    "missing": (remove, "codes-00000.ends cannot be read"),
    "rows": (disagree, "codes-00000 does not have the rows it should"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_dataset_is_made_again(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    path = text_file(tmp_path / "a.txt", "abc", "de")
    made(tmp_path / "d", path)
    damage(tmp_path / "d")
    with pytest.raises(DataError, match=f"is a damaged dataset: {message}"):
        Columns(tmp_path / "d")
    said: list[str] = []
    assert words(made(tmp_path / "d", path, notify=said.append)) == ["abc", "de"]
    assert len(said) == 1
    assert message in said[0]


def test_a_flipped_byte_is_found_with_verify(tmp_path: Path) -> None:
    made(tmp_path / "d", text_file(tmp_path / "a.txt", "abc", "de"))
    shard = tmp_path / "d" / "codes-00000.values"
    shard.write_bytes(shard.read_bytes().replace(b"b", b"c"))
    Columns(tmp_path / "d")
    with pytest.raises(DataError, match=r"the content of codes-00000\.values has changed"):
        Columns(tmp_path / "d", verify=True)
    ends = tmp_path / "d" / "codes-00000.ends"
    ends.write_bytes(np.array([9, 5], "<i8").tobytes())
    with pytest.raises(DataError, match="puts row 0 from 0 to 9"):
        Columns(tmp_path / "d")[0]


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────────────


def test_many_processes_write_what_one_writes(
    tmp_path: Path, pairs: Path, packed: PackedTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "CHUNK_ROWS", 100)
    os.utime(pairs, (1e9, 1e9))  # a file that was just written would not be known by its time
    told: dict[int, list[tuple[int, int]]] = {1: [], 2: []}
    for workers, seen in told.items():
        report = lambda done, total, seen=seen: seen.append((done, total))  # noqa: E731
        options: dict[str, Any] = {"workers": workers, "progress": report, "shard_values": 10_000}
        made(tmp_path / str(workers), pairs, tiny.Pairs(packed, 14), PAIRS, **options)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert len(contents(tmp_path / "1")) > 12  # several shards
    assert told[1][-1] == (pairs.stat().st_size,) * 2
    assert [done for done, _ in told[2]] == sorted(done for done, _ in told[2])


def test_processes_that_encode_do_not_load_torch(tmp_path: Path) -> None:
    program = "import sys, regard.train.preprocess, regard.train.row; print('torch' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", program], text=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert said == "False\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_that_cannot_be_encoded_is_named(tmp_path: Path, workers: int) -> None:
    path = text_file(tmp_path / "a.txt", "abc", "日本")
    with pytest.raises(DataError, match="'codes' has numbers from 97 to 26412, too large for uint8"):
        made(tmp_path / "d", path, tiny.Codes("uint8"), workers=workers)
    tokenizer = PackedTokenizer(train_tokenizer("bpe", iter(["abc"]), 300, LM))
    rows = [{"file": "a.txt", "line": 7, "text": "\ud800"}]
    with pytest.raises(DataError, match=r"a\.txt:7: The text has a lone surrogate"):
        list(encode_all(tiny.Stream(tokenizer), [Chunk(rows, 0)], workers))
    assert sorted(os.listdir(tmp_path / "d")) == [".lock"]


def test_a_process_that_dies_stops_the_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="A process that encodes text ended early"):
        made(tmp_path / "d", text_file(tmp_path / "a.txt", "abc", "kill me"), workers=2)
    assert sorted(os.listdir(tmp_path / "d")) == [".lock"]


def test_a_full_disk_leaves_the_old_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text_file(tmp_path / "a.txt", "abc")
    before = contents(made(tmp_path / "d", path).directory)
    text_file(path, "other")

    def full(*anything: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ShardWriter, "write", full)
    with pytest.raises(CheckpointError, match="cannot be written to: No space left on device"):
        made(tmp_path / "d", path)
    assert contents(tmp_path / "d") == before


def test_a_dataset_without_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to train on: 1 × blank line, 2 × not wanted"):
        made(tmp_path / "d", text_file(tmp_path / "a.txt", "skip me", "", "skip me"))


PROGRAM = """
import sys, time
sys.path[:0] = {path!r}
import tiny_recipe

def slowly(done, total):
    print(done, flush=True)
    time.sleep(0.02)

if __name__ == "__main__":
    from regard.train import read
    from regard.train import dataset as preparing
    preparing.CHUNK_ROWS = 20
    layout = read.Layout(("text",), document="line")
    sources = read.find_sources([{file!r}], layout)
    preparing.prepare({out!r}, sources, layout, tiny_recipe.Codes(), workers={workers}, progress=slowly)
    print("done", flush=True)
"""


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc")
@pytest.mark.parametrize(("workers", "after"), [(1, 1), (2, 12)])
def test_a_kill_leaves_no_half_dataset(tmp_path: Path, workers: int, after: int) -> None:
    path = text_file(tmp_path / "a.txt", *(f"line number {i}" for i in range(600)))
    out, script = tmp_path / "d", tmp_path / "run.py"
    script.write_text(PROGRAM.format(path=sys.path, file=str(path), out=str(out), workers=workers))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(after):
            assert process.stdout.readline().strip().isdigit()
        children = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(children) >= (0 if workers == 1 else workers)
    assert [name for name in os.listdir(out) if not name.startswith(".")] == []
    assert [name for name in os.listdir(out) if name.endswith(".part")] != []
    patience = time.monotonic() + 10
    while any(map(is_running, children)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(is_running, children))
    assert words(made(out, path)) == path.read_text().split("\n")
    assert [name for name in os.listdir(out) if name.endswith(".part")] == []


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.txt", *(f"line number {i}" for i in range(600)))
    script = tmp_path / "run.py"
    script.write_text(PROGRAM.format(path=sys.path, file=str(path), out=str(tmp_path / "d"), workers=1))
    both = [subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].split() for process in both]
    assert [answer[-1] for answer in said] == ["done", "done"]
    assert sorted(len(answer) > 1 for answer in said) == [False, True]


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────

MEASURE = """
import resource, sys
sys.path[:0] = {path!r}
import tiny_recipe
from regard.train import read
from regard.train import dataset as preparing
layout = read.Layout(("text",))
for n in (1, 6):
    sources = read.find_sources([f"{folder}/{{n}}.txt"], layout)
    preparing.prepare(f"{folder}/{{n}}", sources, layout, tiny_recipe.Codes("uint16"), workers=1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    for megabytes in (1, 6):
        (tmp_path / f"{megabytes}.txt").write_text("".join(f"{i:031d}\n" for i in range(megabytes << 15)))
    program = MEASURE.format(path=sys.path, folder=tmp_path)
    small, large = map(int, subprocess.check_output([sys.executable, "-c", program], text=True).split())
    assert large - small < 3 << 10  # KB, for 5 MB more of text and 10 MB more of numbers
