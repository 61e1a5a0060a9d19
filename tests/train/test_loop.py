"""The training loop and its checkpoints, on a tiny GPT-2 and synthetic batches."""

import json
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from regard.errors import CheckpointError, TrainingError
from regard.model.build import build, parameters_of
from regard.model.init import initialise
from regard.model.registry import family_of, spec_of
from regard.nn.see import watching
from regard.store.save_model import ModelFiles, save_directory
from regard.train import checkpoint
from regard.train.loop import Trainer
from regard.train.loss import linear_cross_entropy
from regard.train.settings import TrainSettings
from regard.train.task.base import Batch, Loss, Task, mean_loss

CONFIG = {
    "model_type": "gpt2",
    "vocab_size": 31,
    "n_positions": 16,
    "n_embd": 12,
    "n_layer": 2,
    "n_head": 3,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


class Counting(Task):
    """Predict the next of a sequence of numbers; a task without text."""

    def __init__(self, settings):
        self.settings = settings

    def config(self):
        return CONFIG

    def collate(self, examples, generator):
        raise AssertionError("the feed makes batches itself")

    def loss(self, net, batch):
        X = net.states(batch["ids"]).flatten(0, 1)
        return Loss(*linear_cross_entropy(X, net.unembed.weight, None, batch["targets"].flatten()))

    def evaluate(self, net, batches):
        return {"loss": mean_loss(self, net, batches)}


class Numbers:
    """Batches that depend on the cursor alone."""

    def __init__(self, parts: int = 1, poison: int | None = None) -> None:
        self.cursor, self.parts, self.poison = {"at": 0}, parts, poison

    def make(self, at: int) -> list[Batch]:
        start = torch.randint(0, 31, (8, 1), generator=torch.Generator().manual_seed(at))
        rows = (start + 3 * torch.arange(9)) % 31
        parts = rows.chunk(self.parts)
        return [Batch({"ids": p[:, :-1], "targets": p[:, 1:]}, p[:, 1:].numel(), p[:, 1:].numel()) for p in parts]

    def micro_batches(self, step: int) -> list[Batch]:
        batches = self.make(self.cursor["at"])
        self.cursor = {"at": self.cursor["at"] + 1}
        return batches

    def held_out(self) -> list[Batch]:
        return self.make(10**6)


def trainer(run: Path, steps: int = 12, parts: int = 1, loader: Numbers | None = None, **given) -> Trainer:
    run.mkdir(parents=True, exist_ok=True)
    settings = TrainSettings(
        "lm", out=str(run), log_steps=1, warmup_steps=2, eval_steps=4, save_steps=given.pop("save_steps", 4), **given
    )
    spec = spec_of(CONFIG)
    net = build(spec)
    initialise(net, settings.seed)

    def write(path: Path) -> None:
        save_directory(path, ModelFiles(parameters_of(net), spec, family_of("gpt2"), CONFIG))

    return Trainer(settings, Counting(settings), net, loader or Numbers(parts), steps, write)


def resumed(run: Path, steps: int = 12, **given) -> Trainer:
    """As a new process would: a new network, its weights and everything else from the newest checkpoint."""
    import regard

    again = trainer(run, steps, **given)
    path = checkpoint.newest(run)
    assert path is not None
    loaded = regard.load(path).net.state_dict()
    again.net.load_state_dict(loaded)
    again.resume(path)
    return again


def fingerprint(run: Path, step: int) -> dict[str, str]:
    return json.loads((run / f"checkpoint-{step}" / checkpoint.SUMS).read_text())


def test_the_loss_falls(tmp_path):
    first = trainer(tmp_path, 150, learning_rate=1e-2, dropout=0.0)
    before = first.evaluate()["loss"]
    first.train()
    assert first.evaluate()["loss"] < before / 4


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """Weights, optimizer state and progress, byte for byte, with dropout on."""
    trainer(tmp_path / "whole").train()
    half = trainer(tmp_path / "cut")
    half.total = 4
    half.train()
    resumed(tmp_path / "cut").train()
    assert fingerprint(tmp_path / "cut", 12) == fingerprint(tmp_path / "whole", 12)


def test_gradient_accumulation_equals_one_batch(tmp_path):
    """Gradient accumulation of 8 × 1 equals 1 × 8: the same losses and weights, within float32 rounding."""
    runs = [trainer(tmp_path / str(parts), parts=parts, dropout=0.0) for parts in (1, 8)]
    for each in runs:
        each.net.eval()  # dropout draws per part, so it is off here
        for _ in range(5):
            each.step()
    for a, b in zip(runs[0].net.parameters(), runs[1].net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_an_observer_does_not_change_training(tmp_path):
    runs = [trainer(tmp_path / name) for name in ("plain", "watched")]
    for each in runs:
        each.net.eval()
    for _ in range(3):
        a = runs[0].step()
        with watching(lambda name, x: x):
            b = runs[1].step()
        assert a.loss == pytest.approx(b.loss, abs=1e-5)


def test_a_nan_loss_stops_before_the_update(tmp_path):
    broken = trainer(tmp_path)
    broken.step()
    with torch.no_grad():
        net: Any = broken.net
        net.decoder[1].mlp.up.bias[0] = float("nan")
    before = [p.clone() for p in broken.net.parameters()]
    with pytest.raises(TrainingError, match=r"step 2 .*not a finite number"):
        broken.step()
    for a, b in zip(before, broken.net.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=0, equal_nan=True)
    assert broken.progress.step == 1


def test_sigterm_finishes_the_step_and_saves(tmp_path):
    run = trainer(tmp_path, 100, save_steps=1000)
    run.callback = lambda event: os.kill(os.getpid(), signal.SIGTERM) if event.get("step") == 5 else None
    run.train()
    assert run.progress.step == 5
    assert (tmp_path / "latest").resolve().name == "checkpoint-5"
    assert checkpoint.damage(tmp_path / "checkpoint-5") is None


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path, caplog):
    trainer(tmp_path).train()
    weights = tmp_path / "checkpoint-12" / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-5] ^= 1
    weights.write_bytes(damaged)
    assert checkpoint.newest(tmp_path) == tmp_path / "checkpoint-8"
    assert "checkpoint-12" in caplog.text
    assert "model.safetensors has changed" in caplog.text


def test_old_checkpoints_are_deleted_but_not_the_best(tmp_path):
    run = trainer(tmp_path, 24, save_total_limit=1)
    run.progress.best, run.progress.best_step = -1.0, 4
    run.train()
    assert checkpoint.steps(tmp_path) == [24, 4]
    assert (tmp_path / "latest").resolve().name == "checkpoint-24"
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    run = trainer(tmp_path)
    run.total = 4
    run.train()
    run.total = 12

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    run.write_model = full
    with pytest.raises(CheckpointError, match="No space left"):
        run.train()
    assert checkpoint.newest(tmp_path) == tmp_path / "checkpoint-4"
    assert not list(tmp_path.glob(".*"))


class Scripted(Trainer):
    """A trainer whose evaluations give the losses of the script, one after the other."""

    script: list[float]

    def in_eval_mode(self, work, *given):
        return {"loss": self.script.pop(0)}


def scripted(run: Path, script: list[float], **given) -> Scripted:
    made: Any = trainer(run, 4 * len(script), **given)
    made.__class__, made.script = Scripted, list(script)
    return cast(Scripted, made)


def test_saving_follows_save_steps_however_the_loss_falls(tmp_path):
    run = scripted(tmp_path, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], save_steps=12, save_total_limit=99)
    saved = []
    run.callback = lambda event: saved.append(event["path"]) if event["kind"] == "saved" else None
    run.train()
    assert [Path(path).name for path in saved] == ["checkpoint-12", "checkpoint-24"]
    assert (tmp_path / "best").resolve().name == "checkpoint-24"


def test_best_is_the_best_of_the_saved_checkpoints(tmp_path):
    """An evaluation between two checkpoints may be lower, but its weights were not saved."""
    run = scripted(tmp_path, [6.0, 3.0, 1.0, 4.0, 2.0, 5.0], save_steps=8, save_total_limit=1)  # saved: the even ones
    run.train()
    assert (tmp_path / "best").resolve().name == "checkpoint-8"
    assert checkpoint.steps(tmp_path) == [24, 8]
    assert (run.progress.best, run.progress.best_step, run.progress.lowest) == (3.0, 8, 1.0)
    again = resumed(tmp_path)
    assert (again.progress.best, again.progress.lowest, again.progress.stale) == (3.0, 1.0, 3)


def test_a_checkpoint_without_evaluation_is_not_the_best(tmp_path):
    run = scripted(tmp_path, [6.0, 5.0, 4.0], save_steps=3, save_total_limit=99)
    messages = []
    run.callback = lambda event: messages.append(event["text"]) if event["kind"] == "message" else None
    run.train()
    assert checkpoint.steps(tmp_path) == [12, 9, 6, 3]
    assert (tmp_path / "best").resolve().name == "checkpoint-12"
    intervals = "Checkpoints are saved every 3 and evaluations run every 4 steps"
    assert messages == [f"{intervals}: `best` is chosen among the checkpoints that were evaluated."]


def test_an_evaluation_that_is_not_a_number_is_never_the_best(tmp_path):
    nan = float("nan")
    run = scripted(tmp_path, [nan, float("-inf"), 5.0, nan, 6.0], patience=3, save_total_limit=99)
    run.train()
    assert (run.progress.best, run.progress.best_step, run.progress.stale) == (5.0, 12, 2)
    assert (tmp_path / "best").resolve().name == "checkpoint-12"


def test_early_stopping_counts_evaluations_without_checkpoint(tmp_path):
    run = scripted(tmp_path, [6.0, 1.0, 2.0, 3.0, 4.0, 5.0], patience=3, save_steps=100)
    run.train()
    assert run.progress.step == 20
    assert (tmp_path / "best").resolve().name == "checkpoint-20"  # the only one there is


@pytest.mark.parametrize("what", ["metrics.jsonl", "latest"])
def test_a_full_disk_is_one_sentence_wherever_it_occurs(what, tmp_path, monkeypatch):
    run = trainer(tmp_path)
    run.total = 4
    run.train()
    run.total, original = 12, Path.open if what == "metrics.jsonl" else Path.symlink_to

    def full(path: Path, *given, **named):
        if path.name in ("metrics.jsonl", ".latest.new"):
            raise OSError(28, "No space left on device")
        return original(path, *given, **named)

    monkeypatch.setattr(Path, original.__name__, full)
    with pytest.raises((CheckpointError, TrainingError), match="No space left"):
        run.train()
    monkeypatch.undo()
    assert checkpoint.newest(tmp_path) == tmp_path / ("checkpoint-4" if what == "metrics.jsonl" else "checkpoint-8")


def test_early_stopping(tmp_path):
    run = trainer(tmp_path, 1000, patience=2, learning_rate=1e-12)
    run.progress.best, run.progress.best_step = -1.0, 0
    run.train()
    assert run.progress.step == 8


def test_metrics_are_written_line_by_line(tmp_path):
    trainer(tmp_path).train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "lr" in line] == list(range(1, 13))
    assert [line["step"] for line in lines if "eval" in line] == [4, 8, 12]
    assert all(line["grad_norm"] > 0 for line in lines if "lr" in line)
