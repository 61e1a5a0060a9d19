"""What a run finds in its directory: damaged checkpoints, another process, another run, odd metrics. The last checkpoint
that is whole is used, and nothing that could not be read is deleted."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from regard.errors import RegardError, TrainingError
from regard.train import checkpoint, run_directory, training_run
from regard.train.metrics import MAX_LINE_BYTES
from regard.train.run_directory import LOCK, locked
from regard.train.settings import TrainSettings

STEPS = 6
SIZES = {"tokenizer": "characters", "block_size": 16, "layers": 1, "width": 16, "heads": 2, "batch_size": 4}
PACE = {"max_steps": STEPS, "warmup_steps": 2, "save_steps": 2, "eval_steps": 2, "log_steps": 1, "save_total_limit": 9}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch):
    monkeypatch.setattr(training_run, "draw", lambda run: None)


def settings(folder: Path, **given) -> TrainSettings:
    places = {"data": (str(folder / "text.txt"),), "out": str(folder / "run")}
    return TrainSettings("lm", **{**places, **SIZES, **PACE, "threads": 1, **given})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a run of three checkpoints."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "text.txt").write_text("the cat sat on the old red mat and the dog ran under it " * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "draw", lambda run: None)
        training_run.train(settings(folder))
    return folder


@pytest.fixture
def folder(done, tmp_path) -> Path:
    """A copy that may be harmed."""
    shutil.copytree(done, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def state(path: Path) -> dict[str, object]:
    """Every file, link and directory with its content."""
    found: dict[str, object] = {}
    for each in sorted(path.rglob("*")):
        name = str(each.relative_to(path))
        if each.is_symlink():
            found[name] = os.readlink(each)
        elif each.is_file():
            found[name] = each.read_bytes()
        else:
            found[name] = each.stat().st_mode
    return found


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def flip(name: str) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content)

    return harm


def truncate(name: str) -> Callable[[Path], None]:
    return lambda path: os.truncate(path / name, (path / name).stat().st_size // 2)


def unlink(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        (path / name).write_bytes(content)

    return harm


def pipe(name: str) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)

    return harm


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something that is not a directory in its place."""

    def harm(path: Path) -> None:
        shutil.rmtree(path)
        make(path)

    return harm


def linked(path: Path) -> None:
    os.rename(path, path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def forged(name: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    """JSON of wrong types, with a checksum that fits."""

    def harm(path: Path) -> None:
        said = json.loads((path / name).read_text())
        change(said)
        (path / name).write_text(json.dumps(said))
        sums = json.loads((path / checkpoint.SUMS).read_text())
        sums[name] = checkpoint.sha256(path / name)
        (path / checkpoint.SUMS).write_text(json.dumps(sums))

    return harm


FILES = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    checkpoint.OPTIMIZER,
    checkpoint.TRAINER,
    checkpoint.SUMS,
)
WRONG = {"step": "6", "tokens": None, "cursor": [1], "best": "low", "best_step": -1, "stale": True, "data": 3, "new": 1}
DAMAGE: dict[str, Callable[[Path], None]] = {
    **{f"missing-{name}": unlink(name) for name in FILES},
    **{f"flipped-{name}": flip(name) for name in FILES},
    **{f"truncated-{name}": truncate(name) for name in FILES},
    **{f"pipe-{name}": pipe(name) for name in FILES},
    **{f"empty-{name}": write(name, b"") for name in FILES},
    **{f"trainer-{k}": forged(checkpoint.TRAINER, partial(dict.update, **{k: v})) for k, v in WRONG.items()},
    "trainer-of-another-step": forged(checkpoint.TRAINER, lambda said: said.update(step=4)),
    "config": forged("config.json", lambda said: said.update(n_embd="many")),
    "another-network": forged("config.json", lambda said: said.update(n_embd=32)),
    "sums-list": write(checkpoint.SUMS, b"[]"),
    "sums-none": write(checkpoint.SUMS, b"{}"),
    "sums-numbers": write(checkpoint.SUMS, b'{"model.safetensors": 3}'),
    "sums-outside": write(checkpoint.SUMS, b'{"../../text.txt": "00"}'),
    "sums-nul": write(checkpoint.SUMS, b'{"a\\u0000b": "00"}'),
    "sums-deep": write(checkpoint.SUMS, b"[" * 100_000),
    "empty-folder": instead(Path.mkdir),
    "file": instead(Path.touch),
    "pipe": instead(os.mkfifo),
    "dangling-link": instead(lambda path: path.symlink_to("nowhere")),
    "link": linked,
    "garbage": write("model.safetensors.index.json", b"\0\xff"),
    "pipe-beside": pipe("model.gguf"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_whatever_is_wrong_with_the_newest_the_one_before_it_is_used(kind, folder, caplog):
    run = folder / "run"
    DAMAGE[kind](run / "checkpoint-6")
    before = state(run)
    assert checkpoint.newest(run) == run / "checkpoint-4"
    assert "checkpoint-6 is damaged" in caplog.text
    assert state(run) == before


@pytest.mark.parametrize(
    "kind", ["missing-checksums.json", "empty-folder", "pipe", "file", "flipped-model.safetensors"]
)
def test_it_ends_as_it_would_have_and_what_is_damaged_is_kept(kind, folder, done):
    run = folder / "run"
    DAMAGE[kind](run / "checkpoint-6")
    harmed = state(run)["checkpoint-6"]
    training_run.train(settings(folder), resume=True)
    ends = [json.loads((each / "run/checkpoint-6" / checkpoint.SUMS).read_text()) for each in (folder, done)]
    assert ends[0] == ends[1]
    assert state(run)["checkpoint-6.damaged"] == harmed
    assert os.readlink(run / "latest") == "checkpoint-6"
    assert (run / os.readlink(run / "best")).is_dir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "lr" in line] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("target", ["nowhere", "checkpoint-2", "..", None])
def test_links_that_point_elsewhere_are_put_right(target, folder):
    run = folder / "run"
    for link in ("latest", "best"):
        (run / link).unlink()
        (run / link).symlink_to(target) if target else shutil.copytree(run / "checkpoint-2", run / link)
    training_run.train(settings(folder, max_steps=8), resume=True)
    assert os.readlink(run / "latest") == "checkpoint-8"
    assert (run / os.readlink(run / "best")).is_dir()


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("kind", ["missing-checksums.json", "empty-folder", "pipe", "dangling-link"])
def test_where_none_can_be_read_nothing_changes(resume, kind, folder):
    run = folder / "run"
    for step in (2, 4, 6):
        DAMAGE[kind](run / f"checkpoint-{step}")
    before = state(run)
    with pytest.raises(TrainingError, match="nothing was changed" if resume else "already has a run in it"):
        training_run.train(settings(folder), resume=resume)
    assert state(run) == before


def test_a_run_that_ended_before_its_first_checkpoint_begins_anew(folder):
    """Nothing is lost by it but what it logged, and that is kept."""
    run = folder / "run"
    for name in ("checkpoint-2", "checkpoint-4", "checkpoint-6"):
        shutil.rmtree(run / name)
    for name in ("latest", "best"):
        (run / name).unlink()
    with pytest.raises(TrainingError, match="there is none"):
        training_run.train(settings(folder), resume=True)
    logged = (run / "metrics.jsonl").read_text()
    training_run.train(settings(folder))
    assert (run / "metrics.jsonl.old").read_text() == logged
    assert len((run / "metrics.jsonl").read_text().splitlines()) == len(logged.splitlines())


def test_the_best_that_is_gone_is_forgotten(folder):
    run = folder / "run"
    shutil.rmtree(run / "checkpoint-6")
    best = checkpoint.read_progress(run / "checkpoint-4").best_step
    assert best == 4  # the loss falls
    os.rename(run / "checkpoint-4", run / "gone")
    forged(checkpoint.TRAINER, lambda said: said.update(best=-1.0, best_step=1))(run / "checkpoint-2")
    training_run.train(settings(folder), resume=True)
    assert os.readlink(run / "best") == "checkpoint-6"


# ── one process ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("resume", [True, False])
def test_a_second_process_is_refused(resume, folder):
    with locked(folder / "run"):
        before = state(folder)
        with pytest.raises(TrainingError, match="Another process is training in"):
            training_run.train(settings(folder), resume=resume)
        assert state(folder) == before


def test_the_command_says_so_and_a_killed_process_holds_nothing(folder):
    run = folder / "run"
    code = (
        f"from pathlib import Path\nfrom regard.train.run_directory import locked\nwith locked(Path({str(run)!r})):\n"
    )
    holder = [sys.executable, "-c", code + " print('held', flush=True); import time; time.sleep(600)"]
    command = [sys.executable, "-m", "regard", "train", "lm", "--resume", "--out", str(run)]
    with subprocess.Popen(holder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert refused.stderr.startswith("regard: Another process is training in ")
        assert refused.stderr.count("\n") == 1
        process.send_signal(signal.SIGKILL)
    assert (run / LOCK).exists()
    with locked(run):
        pass
    assert not (run / LOCK).exists()


def test_a_lock_that_its_holder_has_just_removed_is_not_taken_for_one(tmp_path, monkeypatch):
    """Between opening and locking, the file that has the name may have become another one."""
    opened, run = [], tmp_path / "run"
    original = os.open

    def open_then_lose(path, *given):
        handle = original(path, *given)
        opened.append(handle)
        if len(opened) == 1:
            os.unlink(path)
        return handle

    run.mkdir()
    monkeypatch.setattr(run_directory.os, "open", open_then_lose)
    with locked(run):
        assert len(opened) == 2
        assert (run / LOCK).exists()


def test_a_directory_made_for_nothing_is_gone(tmp_path):
    with pytest.raises(RegardError, match=r"text\.txt names no file"):
        training_run.train(settings(tmp_path))
    assert not list(tmp_path.iterdir())
    (tmp_path / "run").touch()
    for out in ("run", "run/inside"):
        with pytest.raises(TrainingError, match="cannot be written to"):
            training_run.train(settings(tmp_path, out=str(tmp_path / out)))


# ── metrics, settings, data ─────────────────────────────────────────────────────────────────────────────────────────

LINES = [
    b"",
    b"\xff\xfe\0",
    b"[1]",
    b"{}",
    b'{"step": "3"}',
    b'{"step": 2',
    b"[" * 5000,
    b'{"step": true}',
    b"9" * 5000,
]
LINES += [
    b'{"step": 3, "lr": 1}',
    b'{"step": 3, "eval": {"loss": "low"}}',
    b'{"step": 1' + b" " * MAX_LINE_BYTES + b"}",
]


def test_odd_metrics_are_passed_over_with_one_remark(folder, caplog):
    path = folder / "run" / "metrics.jsonl"
    good = path.read_bytes()
    path.write_bytes(b"\n".join(LINES) + b"\n" + good + good[: len(good) // 3])
    training_run.train(settings(folder, max_steps=8), resume=True)
    assert caplog.text.count("damaged line") == 1
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines if "lr" in line][-2:] == [7, 8]
    assert path.read_bytes().startswith(good)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["metrics.jsonl", "run.toml"])
def test_what_cannot_be_written_to_is_refused(name, make, folder):
    (folder / "run" / name).unlink()
    make(folder / "run" / name)
    with pytest.raises(TrainingError, match=f"{name} is not a file"):
        training_run.train(settings(folder), resume=True)


def test_a_refused_run_leaves_the_settings_of_the_one_that_is_there(folder):
    """Else --resume would look for the other data from then on."""
    before = state(folder / "run")["run.toml"]
    (folder / "other.txt").write_text("another text " * 100)
    with pytest.raises(TrainingError, match="other data"):
        training_run.train(settings(folder, data=(str(folder / "other.txt"),)), resume=True)
    assert state(folder / "run")["run.toml"] == before
    training_run.train(settings(folder, max_steps=7), resume=True)


def test_a_probe_with_control_characters_is_resumed(folder):
    odd = 'a\rb\0c\x7fd\x1b[31m"e\\'
    training_run.train(settings(folder, max_steps=7, probes=(odd,)), resume=True)
    training_run.train(settings(folder, max_steps=8, probes=(odd,)), resume=True)
    assert json.loads((folder / "run/frames/probes.json").read_text())[0]["text"] == odd
