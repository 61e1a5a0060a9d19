"""`regard report` and `regard eval` on what is damaged, odd or missing: a sentence and exit code 2, never a traceback."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.errors import ConfigError, DataError, NotFound, RegardError
from regard.train.metrics import MAX_LINE_BYTES, read_metrics
from regard.train.report import draw, summarise

STEP = {"step": 1, "loss": 2.5, "lr": 1e-3, "grad_norm": 1.0, "layer_norms": {"embed": 0.5}, "rate": 10.0, "memory": 90}
EVAL = {"step": 1, "eval": {"loss": 2.25, "perplexity": 9.5}, "seconds": 0.1}
LOOK = {"step": 1, "entropy": {"decoder.0.attention": [1.5, 0.5]}}

DAMAGED = {
    "text": b"not JSON",
    "binary": bytes(range(1, 10)) + bytes(range(11, 256)),
    "half": json.dumps(STEP).encode()[:-9],
    "list": b"[1, 2]",
    "no-step": b'{"loss": 1, "lr": 1}',
    "step-text": b'{"step": "1"}',
    "step-true": b'{"step": true}',
    "step-negative": b'{"step": -1}',
    "step-huge": b'{"step": 1' + b"0" * 400 + b"}",
    "digits": b'{"step": 1' + b"0" * 5000 + b"}",
    "lr-without-loss": b'{"step": 1, "lr": 0.1}',
    "loss-null": b'{"step": 1, "lr": 0.1, "loss": null}',
    "eval-list": b'{"step": 1, "eval": [1]}',
    "eval-text": b'{"step": 1, "eval": {"loss": "low"}}',
    "norms-text": json.dumps({**STEP, "layer_norms": {"embed": "x"}}).encode(),
    "entropy-empty": b'{"step": 1, "entropy": {}}',
    "entropy-no-heads": b'{"step": 1, "entropy": {"a": []}}',
    "entropy-text": b'{"step": 1, "entropy": {"a": ["x"]}}',
    "deep": b"[" * 200_000,
    "long": b'{"step": 1, "x": "' + b"x" * MAX_LINE_BYTES + b'"}',
}
ODD = [  # which the loop might write
    {**STEP, "loss": math.nan, "lr": math.inf, "layer_norms": {}},
    {**STEP, "layer_norms": {"a $\\frac$ b": 1.0, "\ud800": 0, "_hidden": -1}},
    {"step": 2, "eval": {}},
    {"step": 2, "eval": {"loss": math.nan}},
    {"step": 3, "entropy": {"a": [math.nan], "b$": [1.0, 2, 3]}},
    {"step": 0},
]


def written(run: Path, *lines: bytes) -> Path:
    run.mkdir(exist_ok=True)
    (run / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return run


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_line_is_passed_over(kind, tmp_path, caplog):
    good = [json.dumps(line).encode() for line in (STEP, EVAL, LOOK)]
    run = written(tmp_path / "run", good[0], DAMAGED[kind], *good[1:], b"", DAMAGED[kind])
    assert read_metrics(run) == [STEP, EVAL, LOOK]
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["2 damaged lines are skipped"]


@pytest.mark.filterwarnings("default")  # matplotlib's own about fonts and empty pictures
def test_odd_lines_are_drawn(tmp_path):
    run = written(tmp_path / "a $x^$ run", *(json.dumps(line).encode() for line in [STEP, EVAL, *ODD]))
    lines = read_metrics(run)
    assert len(lines) == 2 + len(ODD)
    for n in range(len(lines) + 1):
        summarise(run, lines[:n])
    for several in ([], lines):
        assert draw(run, tmp_path / "p.svg", several).read_text().startswith("<?xml")


def test_a_thousand_layers_are_drawn_without_their_names(tmp_path):
    """To lay out as many names as that takes minutes."""
    names = [f"decoder.{i}" for i in range(1000)]
    looked = {"step": 1, "entropy": {name: [1.0] for name in names}}
    lines = [{**STEP, "layer_norms": dict.fromkeys(names, 1.0)}, looked]
    drawn = draw(tmp_path, tmp_path / "p.svg", lines).read_text()
    assert "gradient norm per layer" in drawn
    assert "decoder." not in drawn


def test_places_that_cannot_be(tmp_path):
    run = written(tmp_path / "run", json.dumps(STEP).encode())
    for out in ("a", "a.txt", "run/metrics.jsonl/a.svg"):
        with pytest.raises(ConfigError, match="a"):
            draw(run, tmp_path / out)
    os.mkfifo(tmp_path / "pipe")
    for place in ("nowhere", "pipe", "run/metrics.jsonl"):
        with pytest.raises(NotFound, match="not a training run"):
            read_metrics(tmp_path / place)
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(DataError, match="is not a regular file"):
        read_metrics(run)


def test_the_command_reports_a_damaged_run(tmp_path):
    run = written(tmp_path / "run", json.dumps(STEP).encode(), *DAMAGED.values())
    done = subprocess.run(
        [sys.executable, "-m", "regard", "report", str(run)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith(f"{run}: 1 steps, training loss 2.5000\n")
    assert done.stderr == f"regard: {run / 'metrics.jsonl'}: {len(DAMAGED)} damaged lines are skipped\n"


# ── eval ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("text") / "t.tsv"
    file.write_text("the king\tle roi\n" * 300)
    return str(file)


@pytest.mark.parametrize("task", ["lm", "mlm", "classify", "tag", "translate", "chat", "foo", ""])
@pytest.mark.parametrize("model", ["toy-gpt", "toy-bert", "toy-translate", "toy-bert-sentiment"])
def test_a_task_is_the_model_s_or_refused(task, model, text):
    own = {"toy-gpt": "lm", "toy-bert": "mlm", "toy-translate": "translate", "toy-bert-sentiment": "classify"}[model]
    if task == own or (task == "chat" and own == "lm"):
        return
    with pytest.raises(RegardError, match=f"cannot be evaluated as one for {task}|no task {task!r}"):
        regard.load(model).evaluate(text, task=task)


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "many", math.nan])
def test_how_many_is_a_number(most, text):
    with pytest.raises(ConfigError, match="most is"):
        regard.load("toy-gpt").evaluate(text, most=most)


@pytest.mark.parametrize("given", [{"layer": 1}, {"format": 3}, {"document": "book"}, {"batch_size": math.nan}])
def test_odd_settings_of_an_evaluation(given, text):
    with pytest.raises(RegardError, match=next(iter(given)).replace("_", "[-_]")):
        regard.load("toy-gpt").evaluate(text, **given)


@pytest.mark.parametrize("made", ["empty", "dangling", "elsewhere", "file"])
def test_a_directory_that_is_no_run(made, tmp_path, text):
    run = tmp_path / "run"
    run.mkdir()
    if made == "file":
        (run / "best").touch()
    elif made != "empty":
        (run / "best").symlink_to("nowhere" if made == "dangling" else "..")
    with pytest.raises(RegardError, match=r"config\.json"):
        regard.load(run).evaluate(text)
