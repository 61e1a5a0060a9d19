"""Batch runs: every row is answered once, in order, as by the library, even if the run is killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import regard as package
from regard.batch import input, runner
from regard.batch.task import BatchTask, Worker, check, isolate_errors
from regard.cli.main import app
from regard.errors import DataError, GenerationError, TaskError
from regard.store.open_model import open_model

MOODS, TAGS, GPT, FRENCH = "toy-bert-sentiment", "toy-bert-tags", "toy-gpt", "toy-translate"


@pytest.fixture(scope="module")
def loaded():
    return cache(package.load)


SMALL = 32  # tokens: batches of a few rows


def sentences(path, n):
    path.write_text("".join(f"the film number {i} was {('good', 'a long and boring one')[i % 2]}\n" for i in range(n)))
    return path


def mapped(loaded, task, given, out, engine=None, **more):
    identity = task.identity(open_model(task.model))
    run = engine or (lambda: runner.local_executor(Worker(task, loaded(task.model))))
    return runner.run(task, identity, given, out, run, **more)


def read(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("task", ["embed", "classify", "tag", "translate", "generate"])
def test_answers_equal_the_librarys_in_order(loaded, tmp_path, task):
    known: dict[str, tuple[str, dict[str, Any]]] = {
        "embed": (MOODS, {}),
        "classify": (MOODS, {}),
        "tag": (TAGS, {}),
        "translate": (FRENCH, {"num_beams": 2, "max_new_tokens": 8}),
        "generate": (GPT, {"max_new_tokens": 6, "temperature": 0.8, "seed": 7}),
    }
    name, settings = known[task]
    texts = ["the cat sat on the mat", "a dog", "", "the film was good", "the European Economic Area", "one day"]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    batch_task = BatchTask(task, name, settings, echo=True, row_batch_tokens=SMALL)
    reached = mapped(loaded, batch_task, input.scan([str(tmp_path / "in.txt")]), tmp_path / "out.jsonl")
    found = read(tmp_path / "out.jsonl")
    assert (reached.rows, reached.errors) == (6, 0)
    assert [(row["line"], row["input"]) for row in found] == list(enumerate(texts, 1))
    assert {row["file"] for row in found} == {str(tmp_path / "in.txt")}
    model = loaded(name)
    for row, text in zip(found, texts, strict=True):
        if task == "embed":
            assert row["embedding"] == pytest.approx(model.embed(text)[0].tolist(), abs=1e-6)
        elif task == "classify":
            assert row["labels"] == pytest.approx(model.classify(text)[0], abs=1e-6)
        elif task == "tag":
            assert [(w["word"], w["tag"]) for w in row["words"]] == [(w.word, w.tag) for w in model.tag(text)[0]]
        elif task == "translate":
            assert row["translation"] == (model.translate(text, **settings)[0] if text else "")
        else:
            assert row["text"] == model.generate(text, **settings)


def test_formats_and_several_files(loaded, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "good", "id": 3}\n\n{"body": "bad"}\n')
    (tmp_path / "b.csv").write_text('id,body\n1,"two\nlines"\n2,"quoted, with a comma"\n')
    (tmp_path / "c.tsv").write_text("body\tid\nlast\t9\n")
    given = input.scan([str(tmp_path / "*.*")], field="body")
    assert given.n_rows == 5
    mapped(loaded, BatchTask("classify", MOODS, echo=True), given, tmp_path / "out" / "all.jsonl")
    found = [(Path(row["file"]).name, row["line"], row["input"]) for row in read(tmp_path / "out" / "all.jsonl")]
    assert found == [
        ("a.jsonl", 1, "good"),
        ("a.jsonl", 3, "bad"),
        ("b.csv", 2, "two\nlines"),
        ("b.csv", 4, "quoted, with a comma"),
        ("c.tsv", 2, "last"),
    ]


def test_no_rows_give_an_empty_file(loaded, tmp_path):
    (tmp_path / "in.txt").write_text("")
    given = input.scan([str(tmp_path / "in.txt")])
    mapped(
        loaded, BatchTask("embed", MOODS), given, tmp_path / "out.jsonl", lambda: pytest.fail("nothing is left to do")
    )
    assert (tmp_path / "out.jsonl").read_bytes() == b""


# ── rows that cannot be answered ────────────────────────────────────────────────────────────────────────────────────


def test_bad_rows_get_an_error_and_the_others_are_answered(loaded, tmp_path):
    long = "one day " * 400
    lines = [
        '{"text": "one day"}',
        "{",
        '{"other": 1}',
        '{"text": 5}',
        '{"text": "\\ud800"}',
        json.dumps({"text": long}),
    ]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, '{"text": "the end"}']))
    task = BatchTask("generate", GPT, {"max_new_tokens": 3, "seed": 0})
    reached = mapped(loaded, task, input.scan([str(tmp_path / "in.jsonl")]), tmp_path / "out.jsonl")
    found = read(tmp_path / "out.jsonl")
    assert (reached.rows, reached.errors) == (7, 5)
    assert [row["line"] for row in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.get("text") for row in found[::6]] == loaded(GPT).generate(["one day", "the end"], **task.settings)
    whys = [row["error"] for row in found[1:6]]
    expected = ["not JSON", "no 'text', only other", "not text but 5", "half a character", "shorten the prompt"]
    for why, part in zip(whys, expected, strict=True):
        assert part in why
    assert whys[0].startswith(f"{tmp_path / 'in.jsonl'}:2: ")


def test_a_refused_text_does_not_affect_the_others():
    calls = []

    def run(texts):
        calls.append(len(texts))
        if "bad" in texts:
            raise GenerationError("It is bad.")
        return [{"text": t.upper()} for t in texts]

    found = isolate_errors(run, ["a", "b", "bad", "c", "d"])
    assert [a.get("text") or a["error"] for a in found] == ["A", "B", "It is bad.", "C", "D"]
    assert sum(calls) <= 5 + 5 + 3 + 3

    def fail(texts):
        raise TaskError("The model cannot.")

    with pytest.raises(TaskError):
        isolate_errors(fail, ["a", "b"])


def test_nan_is_an_error(loaded, tmp_path, monkeypatch):
    model = package.load(MOODS)
    real = model.embed

    def embed(texts):
        vectors = real(texts)
        vectors[[i for i, text in enumerate(texts) if "odd" in text], 0] = float("nan")
        return vectors

    monkeypatch.setattr(model, "embed", embed)
    answered = Worker(BatchTask("embed", MOODS), model).answer(
        input.RowBatch(0, tuple(input.InputRow("x", i, text) for i, text in enumerate(["good", "odd", "bad"])))
    )
    found = [json.loads(line) for line in answered.lines.splitlines()]
    assert ["error" in row for row in found] == [False, True, False]
    assert "not finite" in found[1]["error"]


# ── interrupt and resume ────────────────────────────────────────────────────────────────────────────────────────────


def stopping(worker, after):
    """An executor that is interrupted after so many batches of rows."""

    def engine(task, given, first):
        for answered in runner.local_executor(worker)(task, given, first):
            if answered.number == after:
                raise KeyboardInterrupt
            yield answered

    return engine


def begun(loaded, tmp_path, monkeypatch, batches=3):
    """An interrupted run with some batches on disk, and the output of the same run without an interruption."""
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0)
    given = input.scan([str(sentences(tmp_path / "in.txt", 40))])
    task = BatchTask("classify", MOODS, row_batch_tokens=SMALL)
    mapped(loaded, task, given, tmp_path / "whole.jsonl")
    with pytest.raises(KeyboardInterrupt):
        mapped(loaded, task, given, tmp_path / "out.jsonl", lambda: stopping(Worker(task, loaded(MOODS)), batches))
    assert not (tmp_path / "out.jsonl").exists()
    return task, given, (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("tail", [b"", b'{"file": "in.txt", "li', b'{"line": 99}\n{"l', b"\0" * 100])
def test_a_torn_tail_is_dropped_and_the_bytes_are_the_same(loaded, tmp_path, monkeypatch, tail):
    task, given, whole = begun(loaded, tmp_path, monkeypatch)
    part = tmp_path / "out.jsonl.part"
    kept = part.read_bytes()
    assert whole.startswith(kept)
    assert 0 < len(kept) < len(whole)
    part.write_bytes(kept + tail)
    told = []
    reached = mapped(
        loaded, task, given, tmp_path / "out.jsonl", progress=lambda: runner.nullcontext(lambda *x: told.append(x))
    )
    assert (tmp_path / "out.jsonl").read_bytes() == whole
    assert reached.rows == 40
    assert told[0] == (kept.count(b"\n"), 40), "what was done is not done again"
    assert told[-1] == (40, 40)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out.jsonl", "whole.jsonl"]


@pytest.mark.parametrize("damage", ["flipped", "short", "manifest"])
def test_damaged_files_are_refused_and_restart_starts_over(loaded, tmp_path, monkeypatch, damage):
    task, given, whole = begun(loaded, tmp_path, monkeypatch)
    part = tmp_path / "out.jsonl.part"
    kept = part.read_bytes()
    if damage == "manifest":
        (tmp_path / "out.jsonl.run").write_text('{"run"')
    else:
        part.write_bytes(kept[:-1] if damage == "short" else kept.replace(b"line", b"lime", 1))
    with pytest.raises(DataError, match="--restart"):
        mapped(loaded, task, given, tmp_path / "out.jsonl")
    mapped(loaded, task, given, tmp_path / "out.jsonl", restart=True)
    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_another_input_model_or_setting_is_refused(loaded, tmp_path, monkeypatch):
    task, given, _ = begun(loaded, tmp_path, monkeypatch)
    before = (tmp_path / "out.jsonl.part").read_bytes()
    text = (tmp_path / "in.txt").read_text()
    (tmp_path / "in.txt").write_text(text.replace("number 39", "number 93"))
    with pytest.raises(DataError, match=r"in\.txt has changed since the run began"):
        mapped(loaded, task, input.scan([str(tmp_path / "in.txt")]), tmp_path / "out.jsonl")
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "other.txt").write_text(text)
    with pytest.raises(DataError, match="other files"):
        mapped(loaded, task, input.scan([str(tmp_path / "other.txt")]), tmp_path / "out.jsonl")
    for other, why in (
        (BatchTask("embed", MOODS, row_batch_tokens=SMALL), "task 'classify'"),
        (BatchTask("classify", MOODS, echo=True, row_batch_tokens=SMALL), "echo False"),
        (BatchTask("classify", MOODS), "parcel 32"),
        (BatchTask("classify", TAGS, row_batch_tokens=SMALL), "another model"),
    ):
        with pytest.raises(DataError, match=why):
            mapped(loaded, other, given, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl.part").read_bytes() == before


def test_a_file_that_changes_during_the_run_gives_no_output(loaded, tmp_path):
    given = input.scan([str(sentences(tmp_path / "in.txt", 12))])
    (tmp_path / "in.txt").write_text((tmp_path / "in.txt").read_text().replace("good", "evil"))
    with pytest.raises(DataError, match="has changed since the run began"):
        mapped(loaded, BatchTask("classify", MOODS, row_batch_tokens=SMALL), given, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_run_that_cannot_start_leaves_no_files(loaded, tmp_path):
    def absent():
        raise TaskError("There is no engine.")

    given = input.scan([str(sentences(tmp_path / "in.txt", 3))])
    with pytest.raises(TaskError):
        mapped(loaded, BatchTask("classify", MOODS), given, tmp_path / "out.jsonl", absent)
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_two_runs_cannot_share_an_output_and_none_is_overwritten(loaded, tmp_path):
    given = input.scan([str(sentences(tmp_path / "in.txt", 3))])
    task = BatchTask("classify", MOODS)
    with (
        runner.open_exclusive(tmp_path / "out.jsonl.part"),
        pytest.raises(DataError, match="is being written by another run"),
    ):
        mapped(loaded, task, given, tmp_path / "out.jsonl")
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(DataError, match="is there already"):
        mapped(loaded, task, given, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "mine"


def test_a_run_killed_by_sigkill_resumes_with_the_same_command(loaded, tmp_path, monkeypatch):
    """A process is killed while it writes; the same command then gives the output of an uninterrupted run."""
    sentences(tmp_path / "in.txt", 16)
    flags = ["--model", GPT, "--in", "in.txt", "--max-new-tokens", "60", "--temperature", "1", "--out", "out.jsonl"]
    small = "from regard.batch import input; input.ROW_BATCH_TOKENS = 128"
    small += "; from regard.batch import runner; runner.CHECKPOINT_SECONDS = 0"
    command = [sys.executable, "-c", f"{small}; from regard.cli.main import run; run()", "map", "generate", *flags]
    start = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **start) as process:
        part, deadline = tmp_path / "out.jsonl.part", time.monotonic() + 120
        while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 0 < part.read_bytes().count(b"\n") < 16, "killed in the middle"
    assert not (tmp_path / "out.jsonl").exists()
    with part.open("ab") as file:
        file.write(b'{"file": "in.t')
    done = subprocess.run(command, **start)
    assert (done.returncode, done.stderr) == (0, "out.jsonl has 16 rows.\n")
    assert [row["line"] for row in read(tmp_path / "out.jsonl")] == list(range(1, 17))
    monkeypatch.chdir(tmp_path)
    task = BatchTask("generate", GPT, {"seed": 0, "max_new_tokens": 60, "temperature": 1.0}, row_batch_tokens=128)
    mapped(loaded, task, input.scan(["in.txt"]), Path("whole.jsonl"))
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (BatchTask("classify", GPT), "toy-gpt cannot classify: its head is 'lm'"),
        (BatchTask("generate", MOODS), "cannot generate"),
        (BatchTask("translate", GPT), "no encoder-decoder"),
        (BatchTask("sing", GPT), "it can be embed, generate, classify, translate, tag"),
        (BatchTask("generate", GPT, {"max_new_tokens": 10**6}), "max_new_tokens"),
    ],
)
def test_an_impossible_task_is_refused_before_loading(task, why):
    with pytest.raises(package.RegardError, match=why):
        check(task, open_model(task.model))


def test_bad_input_is_refused_before_the_run(tmp_path):
    (tmp_path / "latin.txt").write_bytes("good\nécrit\n".encode("latin-1"))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    refused: list[tuple[list[str], dict[str, Any], str]] = [
        (["-"], {}, "standard input cannot be"),
        ([str(tmp_path / "nothing*")], {}, "names no file"),
        ([str(tmp_path / "latin.txt")], {}, r"latin\.txt:2: byte 0xe9 is not UTF-8"),
        ([str(tmp_path / "x.csv")], {"field": "c"}, "none is c"),
        ([str(tmp_path / "x.csv")], {"format": "parallel"}, "it can be text, jsonl, csv, tsv"),
    ]
    for patterns, more, why in refused:
        with pytest.raises(DataError, match=why):
            input.scan(patterns, **more)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["sing"], "it can be embed, generate"),
        (["embed", "--temperature", "1"], "--temperature: embed generates no text"),
        (["embed", "--workers", "2"], "need --ray"),
        (["embed", "--ray", "local", "--cpus", "-1"], "at least 1"),
    ],
)
def test_the_command_refuses_in_one_sentence(tmp_path, monkeypatch, flags, why):
    monkeypatch.chdir(sentences(tmp_path / "in.txt", 2).parent)
    ran = CliRunner().invoke(app("map"), ["map", *flags, "--model", MOODS, "--in", "in.txt", "--out", "o.jsonl"])
    assert isinstance(ran.exception, package.RegardError)
    assert why in str(ran.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_the_command_reports_the_number_of_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"text": "good"}\n{"text": 7}\n')
    ran = CliRunner().invoke(app("map"), ["map", "classify", "--model", MOODS, "--in", "in.jsonl", "--out", "o.jsonl"])
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr == "o.jsonl has 2 rows; errors: 1.\n"
    assert "not text but 7" in read(Path("o.jsonl"))[1]["error"]
