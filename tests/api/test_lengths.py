"""Texts longer than a model's context: refused, or truncated with `truncate`, and then reported."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
import tiny_text
from regard.batch import input, runner
from regard.batch.task import BatchTask, Worker
from regard.errors import TooLong

LONG, SHORT = "the cat sat on the mat " * 40, "the cat"  # the tiny models read 128 tokens
WORK = {"embed": "encoder", "classify": "classifier", "tag": "tagger"}
CUT = "1 of 2 texts have more than 128 tokens and were cut."


@pytest.fixture(params=WORK)
def work(request: Any, tiny_model: Any) -> tuple[str, Any]:
    return request.param, regard.load(tiny_model(WORK[request.param]))


def test_refused_unless_truncate(work: Any, caplog: pytest.LogCaptureFixture) -> None:
    task, model = work
    run = getattr(model, task)
    with pytest.raises(
        TooLong, match=r"^Text 1 has 2\d\d tokens, but .* reads at most 128: shorten it, .*truncate=True"
    ):
        run([SHORT, LONG])
    with pytest.raises(TooLong, match=r"^The text has"):
        run(LONG)
    assert not caplog.records
    assert len(run([SHORT, LONG], truncate=True)) == 2
    assert [record.getMessage() for record in caplog.records] == [CUT]
    caplog.clear()
    run([SHORT], truncate=True)
    assert not caplog.records


def test_truncation_keeps_the_beginning_and_the_end_token(tiny_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The end token replaces the last one."""
    model = regard.load(tiny_model("encoder"))
    ids = model.tokenizer.encode(LONG)
    kept = [*ids[:127], ids[-1]]
    assert np.array_equal(model.embed(LONG, truncate=True), model.embed([kept]))
    assert np.array_equal(model.embed([ids], truncate=True), model.embed([kept]))


def test_other_methods_never_truncate(tiny_model: Any) -> None:
    with pytest.raises(TooLong, match="reads at most 128"):
        regard.load(tiny_model("mlm")).fill(LONG + "[MASK]")
    with pytest.raises(TooLong):
        regard.load(tiny_model("decoder")).embed(LONG)
    with pytest.raises(regard.RegardError, match="must have from 1 to 128"):
        regard.load(tiny_model("translator")).translate(LONG)


def test_the_truncation_length_of_the_models_files(
    tiny_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = regard.load(tiny_text.cut_to_16(tiny_model("encoder"), tmp_path / "sentences"))
    ids = model.tokenizer.encode(LONG)
    vectors = model.embed([LONG, SHORT, LONG])
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert said == [(logging.WARNING, "2 of 3 texts have more than 16 tokens and were cut.")]
    assert np.array_equal(vectors[0], model.embed([[*ids[:15], ids[-1]]])[0])


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def mapped(job: BatchTask, texts: list[str], folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    worker = Worker(job, regard.load(job.model))
    out = folder / "out.jsonl"
    reached = runner.run(job, {}, input.scan([str(folder / "in.txt")]), out, lambda: runner.local_executor(worker))
    return reached, [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("task", WORK)
def test_a_row_that_is_too_long_is_one_error(
    tiny_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    texts = [SHORT, LONG, "a dog", LONG, SHORT]
    job = BatchTask(task, str(tiny_model(WORK[task])))
    reached, found = mapped(job, texts, tmp_path)
    assert (reached.rows, reached.errors, reached.cut) == (5, 2, 0)
    assert ["error" in row for row in found] == [False, True, False, True, False]
    assert "reads at most 128" in found[1]["error"]
    assert not caplog.records


@pytest.mark.parametrize("task", WORK)
def test_truncated_rows_are_marked(
    tiny_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    job = BatchTask(task, str(tiny_model(WORK[task])), {"truncate": True})
    reached, found = mapped(job, [SHORT, LONG, "a dog"], tmp_path)
    assert (reached.rows, reached.errors, reached.cut) == (3, 0, 1)
    assert [row.get("truncated") for row in found] == [None, True, None]
    assert not caplog.records  # in one remark at the end, not in one for every batch
