"""Offline runs: every row answered once, in order, by what the library itself says, whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard as package
from regard.cli.main import app
from regard.errors import DataError, GenerationError, TaskError
from regard.serve import offline, rows
from regard.serve.job import Job, Worker, check, one_by_one
from regard.store.open import open_model

MOODS, TAGS, GPT, FRENCH = "toy-bert-sentiment", "toy-bert-tags", "toy-gpt", "toy-translate"


@pytest.fixture(scope="module")
def loaded():
    kept = {}
    return lambda name: kept.setdefault(name, None) or kept.update({name: package.load(name)}) or kept[name]


SMALL = 32  # tokens: parcels of a few rows


def sentences(path, n):
    path.write_text("".join(f"the film number {i} was {('good', 'a long and boring one')[i % 2]}\n" for i in range(n)))
    return path


def mapped(loaded, job, given, out, engine=None, **more):
    identity = job.identity(open_model(job.model))
    run = engine or (lambda: offline.here(Worker(job, loaded(job.model))))
    return offline.run(job, identity, given, out, run, **more)


def read(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("task", ["embed", "classify", "tag", "translate", "generate"])
def test_answers_are_the_librarys_in_order(loaded, tmp_path, task):
    name, settings = {
        "embed": (MOODS, {}),
        "classify": (MOODS, {}),
        "tag": (TAGS, {}),
        "translate": (FRENCH, {"num_beams": 2, "max_new_tokens": 8}),
        "generate": (GPT, {"max_new_tokens": 6, "temperature": 0.8, "seed": 7}),
    }[task]
    texts = ["the cat sat on the mat", "a dog", "", "the film was good", "the European Economic Area", "one day"]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    job = Job(task, name, settings, echo=True, parcel=SMALL)
    reached = mapped(loaded, job, rows.survey([str(tmp_path / "in.txt")]), tmp_path / "out.jsonl")
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
    given = rows.survey([str(tmp_path / "*.*")], field="body")
    assert given.n_rows == 5
    mapped(loaded, Job("classify", MOODS, echo=True), given, tmp_path / "out" / "all.jsonl")
    found = [(Path(row["file"]).name, row["line"], row["input"]) for row in read(tmp_path / "out" / "all.jsonl")]
    assert found == [
        ("a.jsonl", 1, "good"),
        ("a.jsonl", 3, "bad"),
        ("b.csv", 2, "two\nlines"),
        ("b.csv", 4, "quoted, with a comma"),
        ("c.tsv", 2, "last"),
    ]


def test_no_rows_are_an_empty_file(loaded, tmp_path):
    (tmp_path / "in.txt").write_text("")
    given = rows.survey([str(tmp_path / "in.txt")])
    mapped(loaded, Job("embed", MOODS), given, tmp_path / "out.jsonl", lambda: pytest.fail("nothing is left to do"))
    assert (tmp_path / "out.jsonl").read_bytes() == b""


# ── rows that cannot be answered ────────────────────────────────────────────────────────────────────────────────────


def test_bad_rows_say_why_and_the_others_are_answered(loaded, tmp_path):
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
    job = Job("generate", GPT, {"max_new_tokens": 3, "seed": 0})
    reached = mapped(loaded, job, rows.survey([str(tmp_path / "in.jsonl")]), tmp_path / "out.jsonl")
    found = read(tmp_path / "out.jsonl")
    assert (reached.rows, reached.errors) == (7, 5)
    assert [row["line"] for row in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.get("text") for row in found[::6]] == loaded(GPT).generate(["one day", "the end"], **job.settings)
    whys = [row["error"] for row in found[1:6]]
    expected = ["not JSON", "no 'text', only other", "not text but 5", "half a character", "shorten the prompt"]
    for why, part in zip(whys, expected, strict=True):
        assert part in why
    assert whys[0].startswith(f"{tmp_path / 'in.jsonl'}:2: ")


def test_a_refused_text_costs_its_neighbours_nothing():
    calls = []

    def run(texts):
        calls.append(len(texts))
        if "bad" in texts:
            raise GenerationError("It is bad.")
        return [{"text": t.upper()} for t in texts]

    found = one_by_one(run, ["a", "b", "bad", "c", "d"])
    assert [a.get("text") or a["error"] for a in found] == ["A", "B", "It is bad.", "C", "D"]
    assert sum(calls) <= 5 + 5 + 3 + 3

    def fail(texts):
        raise TaskError("The model cannot.")

    with pytest.raises(TaskError):
        one_by_one(fail, ["a", "b"])


def test_what_is_no_number_is_an_error(loaded, tmp_path, monkeypatch):
    model = package.load(MOODS)
    real = model.embed

    def embed(texts):
        vectors = real(texts)
        vectors[[i for i, text in enumerate(texts) if "odd" in text], 0] = float("nan")
        return vectors

    monkeypatch.setattr(model, "embed", embed)
    answered = Worker(Job("embed", MOODS), model).answer(
        rows.Parcel(0, tuple(rows.Row("x", i, text) for i, text in enumerate(["good", "odd", "bad"])))
    )
    found = [json.loads(line) for line in answered.lines.splitlines()]
    assert ["error" in row for row in found] == [False, True, False]
    assert "not finite" in found[1]["error"]


# ── stopping and going on ───────────────────────────────────────────────────────────────────────────────────────────


def stopping(worker, after):
    """An engine that is gone after so many parcels."""

    def engine(job, given, first):
        for answered in offline.here(worker)(job, given, first):
            if answered.number == after:
                raise KeyboardInterrupt
            yield answered

    return engine


def begun(loaded, tmp_path, monkeypatch, parcels=3):
    """A run of which some parcels are kept, and what it would have written if left alone."""
    monkeypatch.setattr(offline, "KEEP_SECONDS", 0)
    given = rows.survey([str(sentences(tmp_path / "in.txt", 40))])
    job = Job("classify", MOODS, parcel=SMALL)
    mapped(loaded, job, given, tmp_path / "whole.jsonl")
    with pytest.raises(KeyboardInterrupt):
        mapped(loaded, job, given, tmp_path / "out.jsonl", lambda: stopping(Worker(job, loaded(MOODS)), parcels))
    assert not (tmp_path / "out.jsonl").exists()
    return job, given, (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("tail", [b"", b'{"file": "in.txt", "li', b'{"line": 99}\n{"l', b"\0" * 100])
def test_a_torn_tail_is_dropped_and_the_bytes_are_the_same(loaded, tmp_path, monkeypatch, tail):
    job, given, whole = begun(loaded, tmp_path, monkeypatch)
    part = tmp_path / "out.jsonl.part"
    kept = part.read_bytes()
    assert whole.startswith(kept)
    assert 0 < len(kept) < len(whole)
    part.write_bytes(kept + tail)
    told = []
    reached = mapped(
        loaded, job, given, tmp_path / "out.jsonl", progress=lambda: offline.nullcontext(lambda *x: told.append(x))
    )
    assert (tmp_path / "out.jsonl").read_bytes() == whole
    assert reached.rows == 40
    assert told[0] == (kept.count(b"\n"), 40), "what was done is not done again"
    assert told[-1] == (40, 40)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out.jsonl", "whole.jsonl"]


@pytest.mark.parametrize("damage", ["flipped", "short", "manifest"])
def test_damage_is_noticed_and_restart_begins_anew(loaded, tmp_path, monkeypatch, damage):
    job, given, whole = begun(loaded, tmp_path, monkeypatch)
    part = tmp_path / "out.jsonl.part"
    kept = part.read_bytes()
    if damage == "manifest":
        (tmp_path / "out.jsonl.run").write_text('{"run"')
    else:
        part.write_bytes(kept[:-1] if damage == "short" else kept.replace(b"line", b"lime", 1))
    with pytest.raises(DataError, match="--restart"):
        mapped(loaded, job, given, tmp_path / "out.jsonl")
    mapped(loaded, job, given, tmp_path / "out.jsonl", restart=True)
    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_another_input_model_or_setting_is_refused(loaded, tmp_path, monkeypatch):
    job, given, _ = begun(loaded, tmp_path, monkeypatch)
    before = (tmp_path / "out.jsonl.part").read_bytes()
    text = (tmp_path / "in.txt").read_text()
    (tmp_path / "in.txt").write_text(text.replace("number 39", "number 93"))
    with pytest.raises(DataError, match=r"in\.txt has changed since the run began"):
        mapped(loaded, job, rows.survey([str(tmp_path / "in.txt")]), tmp_path / "out.jsonl")
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "other.txt").write_text(text)
    with pytest.raises(DataError, match="other files"):
        mapped(loaded, job, rows.survey([str(tmp_path / "other.txt")]), tmp_path / "out.jsonl")
    for other, why in (
        (Job("embed", MOODS, parcel=SMALL), "task 'classify'"),
        (Job("classify", MOODS, echo=True, parcel=SMALL), "echo False"),
        (Job("classify", MOODS), "parcel 32"),
        (Job("classify", TAGS, parcel=SMALL), "another model"),
    ):
        with pytest.raises(DataError, match=why):
            mapped(loaded, other, given, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl.part").read_bytes() == before


def test_a_file_that_changes_under_the_run_never_becomes_an_answer(loaded, tmp_path):
    given = rows.survey([str(sentences(tmp_path / "in.txt", 12))])
    (tmp_path / "in.txt").write_text((tmp_path / "in.txt").read_text().replace("good", "evil"))
    with pytest.raises(DataError, match="has changed since the run began"):
        mapped(loaded, Job("classify", MOODS, parcel=SMALL), given, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_run_that_cannot_begin_leaves_nothing(loaded, tmp_path):
    def absent():
        raise TaskError("There is no engine.")

    given = rows.survey([str(sentences(tmp_path / "in.txt", 3))])
    with pytest.raises(TaskError):
        mapped(loaded, Job("classify", MOODS), given, tmp_path / "out.jsonl", absent)
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_two_runs_do_not_share_an_output_and_none_is_written_over(loaded, tmp_path):
    given = rows.survey([str(sentences(tmp_path / "in.txt", 3))])
    job = Job("classify", MOODS)
    with (
        offline.alone_with(tmp_path / "out.jsonl.part"),
        pytest.raises(DataError, match="is being written by another run"),
    ):
        mapped(loaded, job, given, tmp_path / "out.jsonl")
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(DataError, match="is there already"):
        mapped(loaded, job, given, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "mine"


def test_kill_minus_nine_and_the_same_command(loaded, tmp_path, monkeypatch):
    """A process that is killed while it writes; then the same command, whose answer is that of a run left alone."""
    sentences(tmp_path / "in.txt", 16)
    flags = ["--model", GPT, "--in", "in.txt", "--max-new-tokens", "60", "--temperature", "1", "--out", "out.jsonl"]
    small = "from regard.serve import rows; rows.PARCEL_TOKENS = 128"
    small += "; from regard.serve import offline; offline.KEEP_SECONDS = 0"
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
    assert (done.returncode, done.stderr) == (0, "out.jsonl holds 16 rows.\n")
    assert [row["line"] for row in read(tmp_path / "out.jsonl")] == list(range(1, 17))
    monkeypatch.chdir(tmp_path)
    job = Job("generate", GPT, {"seed": 0, "max_new_tokens": 60, "temperature": 1.0}, parcel=128)
    mapped(loaded, job, rows.survey(["in.txt"]), Path("whole.jsonl"))
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job("classify", GPT), "toy-gpt cannot classify: its head is 'lm'"),
        (Job("generate", MOODS), "cannot generate"),
        (Job("translate", GPT), "no encoder-decoder"),
        (Job("sing", GPT), "it can be embed, generate, classify, translate, tag"),
        (Job("generate", GPT, {"max_new_tokens": 10**6}), "max_new_tokens"),
    ],
)
def test_what_no_row_could_make_right_is_refused_first(job, why):
    with pytest.raises(package.RegardError, match=why):
        check(job, open_model(job.model))


def test_input_is_refused_before_the_work(tmp_path):
    (tmp_path / "latin.txt").write_bytes("good\nécrit\n".encode("latin-1"))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for patterns, more, why in (
        (["-"], {}, "standard input cannot be"),
        ([str(tmp_path / "nothing*")], {}, "names no file"),
        ([str(tmp_path / "latin.txt")], {}, r"latin\.txt:2: byte 0xe9 is not UTF-8"),
        ([str(tmp_path / "x.csv")], {"field": "c"}, "none is c"),
        ([str(tmp_path / "x.csv")], {"format": "parallel"}, "it can be text, jsonl, csv, tsv"),
    ):
        with pytest.raises(DataError, match=why):
            rows.survey(patterns, **more)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["sing"], "it can be embed, generate"),
        (["embed", "--temperature", "1"], "--temperature: embed writes no text"),
        (["embed", "--workers", "2"], "go with --ray"),
        (["embed", "--ray", "local", "--cpus", "-1"], "at least 1"),
    ],
)
def test_the_command_refuses_in_one_sentence(tmp_path, monkeypatch, flags, why):
    monkeypatch.chdir(sentences(tmp_path / "in.txt", 2).parent)
    ran = CliRunner().invoke(app("map"), ["map", *flags, "--model", MOODS, "--in", "in.txt", "--out", "o.jsonl"])
    assert isinstance(ran.exception, package.RegardError)
    assert why in str(ran.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_the_command_counts_what_could_not_be_answered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"text": "good"}\n{"text": 7}\n')
    ran = CliRunner().invoke(app("map"), ["map", "classify", "--model", MOODS, "--in", "in.jsonl", "--out", "o.jsonl"])
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr == "o.jsonl holds 2 rows; errors in place of answers: 1.\n"
    assert "not text but 7" in read(Path("o.jsonl"))[1]["error"]
