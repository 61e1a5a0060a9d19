"""Data parallel training equals training in one process: the same losses and files, and either can resume the other.

Sums over a batch are taken in another order by two processes than by one, so losses agree within TOLERANCE and not to the
bit (measured: 4e-7 after 30 steps).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from toytext import reviews

import regard
import several
from regard.api import write_targets
from regard.store.safetensors import open_checkpoint
from regard.train import checkpoint
from regard.train.loop import Trainer
from regard.train.parallel import Parallel, data_parallel
from regard.train.settings import TrainSettings
from regard.train.task.mlm import MaskedLanguageModel
from regard.train.training_run import train

TOLERANCE = 1e-5
STEPS, LATER, END = 30, 34, 38
WORDS = "the a cat dog sat ran on under mat rug house and but it they was were good red old".split()
MODES: dict[str, dict[str, Any]] = {"ddp": {"accumulate": 2}, "shard": {"shard": True}}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked so that they start quickly")


def settings(folder: Path, out: str, task: str = "lm", **given) -> TrainSettings:
    sizes = {"block_size": 16, "layers": 2, "width": 16, "heads": 2, "batch_size": 8, "dropout": 0.0}
    pace = {"max_steps": STEPS, "warmup_steps": 5, "schedule": "constant", "eval_steps": 15, "log_steps": 1}
    data = {"data": (str(folder / "text.tsv"),), "format": "text" if task == "lm" else "tsv", "out": str(folder / out)}
    text = {"tokenizer": "characters", "vocab_size": 64}
    return TrainSettings(task, **{**data, **text, **sizes, **pace, "threads": 1, **given})


def together(asked: TrainSettings, work=None, world: int = 2, **given) -> None:
    codes = several.wait(several.start(world, lambda rank: (work or train)(asked, **given), asked.run.parent))
    assert codes == [0] * world, several.said(asked.run.parent, world)


def logged(run: Path, key: str) -> dict:
    """By step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[key] for line in lines if key in line}


def close(a, b) -> bool:
    return a == pytest.approx(b, rel=TOLERANCE, abs=TOLERANCE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the text, and the run of one process that the others are compared with."""
    made, dice = tmp_path_factory.mktemp("together"), random.Random(0)
    lines = (" ".join(dice.choice(WORDS) for _ in range(4)) for _ in range(700))
    (made / "text.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    train(settings(made, "alone", max_steps=END))
    return made


@pytest.fixture(scope="module", params=MODES)
def pair(request, folder) -> Path:
    """A run begun by two processes, resumed by one, and finished by two."""
    asked = partial(settings, folder, request.param, **MODES[request.param])
    together(asked(probes=("the cat",), probe_steps=STEPS), and_compare if request.param == "shard" else None)
    train(asked(max_steps=LATER), resume=True)
    together(asked(max_steps=END), resume=True)
    return folder / request.param


def and_compare(asked: TrainSettings) -> None:
    """Train, and compare the checkpoint with the shards of the processes, number for number."""
    original, compared = Trainer.train, []

    def train_and_compare(trainer: Trainer) -> checkpoint.Progress:
        progress = original(trainer)
        compare(trainer, progress)
        compared.append(progress.step)
        return progress

    Trainer.train = train_and_compare  # type: ignore[assignment, method-assign]
    train(asked)
    assert compared == [STEPS]


def compare(trainer: Trainer, progress: checkpoint.Progress) -> None:
    latest = trainer.run / "latest"
    saved = dict(regard.load(latest).net.named_parameters())
    moments = open_checkpoint(latest / checkpoint.OPTIMIZER)
    shards: dict[str, Any] = dict(trainer.net.named_parameters())
    for name, p in shards.items():
        assert p.to_local().numel() < p.numel()
        assert torch.equal(p.full_tensor(), saved[name]), name
        for key in ("exp_avg", "exp_avg_sq"):
            held = trainer.optimizer.state[p][key]
            assert held.to_local().numel() < p.numel()
            assert torch.equal(held.full_tensor(), moments.tensor(f"{key}.{name}")), name
        assert moments.tensor(f"step.{name}") == progress.step


def test_two_processes_have_the_losses_of_one_and_resume_each_other(pair, folder):
    alone, found = logged(folder / "alone", "loss"), logged(pair, "loss")
    assert list(found) == list(range(1, END + 1))
    assert close(found, alone)
    assert alone[1] - alone[END] > 0.1  # there was something to agree on


def test_two_processes_have_the_weights_of_one(pair, folder):
    a, b = (regard.load(run).net.state_dict() for run in (folder / "alone", pair))
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-4)


def test_evaluation_and_probes_are_the_same(pair, folder):
    alone, found = logged(folder / "alone", "eval"), logged(pair, "eval")
    assert list(found) == [15, 30, LATER, END]
    assert all(close(found[step], alone[step]) for step in alone)
    assert [frame.name for frame in (pair / "frames").glob("step-*")] == ["step-000030.safetensors"]
    assert list(logged(pair, "entropy")) == [STEPS]


def test_a_parallel_run_has_the_same_files_as_any_other(pair):
    """Neither pickles nor shards nor leftovers; everything as its checksum says."""
    import transformers

    assert not list(pair.glob(".*"))
    kinds = {path.suffix for path in pair.rglob("*") if path.is_file() and "data" not in path.parts}
    assert kinds == {".json", ".jsonl", ".safetensors", ".svg", ".toml"}
    assert all(checkpoint.damage(pair / f"checkpoint-{step}") is None for step in checkpoint.steps(pair))
    theirs, told = transformers.GPT2LMHeadModel.from_pretrained(pair / "latest", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        torch.testing.assert_close(regard.load(pair)(ids), theirs(ids).logits, rtol=0, atol=1e-4)


def test_processes_may_have_different_numbers_of_micro_batches(folder):
    """Of three examples one process has one and the other two, so one of them computes a micro-batch of weight 0."""
    given: dict[str, Any] = {"batch_size": 3, "accumulate": 3, "max_steps": 4, "checkpoint_activations": True}
    train(settings(folder, "three", **given))
    together(settings(folder, "three-shards", shard=True, **given))
    assert close(logged(folder / "three-shards", "loss"), logged(folder / "three", "loss"))


def test_a_sharded_translator_generates_what_an_unsharded_one_does(folder):
    given: dict[str, Any] = {
        "task": "translate",
        "max_steps": 4,
        "eval_steps": 4,
        "block_size": 40,
        "eval_share": 0.01,
        "layers": 1,
    }
    given |= {"probes": ("the cat\ttac eht",), "probe_steps": 4}
    train(settings(folder, "pairs", **given), generate=write_targets)
    together(settings(folder, "pairs-shards", shard=True, **given), generate=write_targets)
    whole, sharded = (logged(folder / name, "eval")[4] for name in ("pairs", "pairs-shards"))
    assert set(sharded) == {"loss", "bleu", "chrf"}
    assert sharded["chrf"] > 0
    assert close(sharded, whole)
    whole, sharded = (logged(folder / name, "entropy")[4] for name in ("pairs", "pairs-shards"))
    assert sharded == {name: pytest.approx(whole[name], abs=1e-3) for name in whole}


def hide_some(
    task: MaskedLanguageModel, ids: torch.Tensor, real: torch.Tensor | None, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """Without dice, which each process throws by itself: of a text the same tokens are hidden whoever reads it."""
    assert task.tokenizer.mask_id is not None
    chosen = (ids + torch.arange(ids.shape[1])) % 5 == 1  # of some texts more than of others
    chosen = chosen if real is None else chosen & real
    return torch.where(chosen, task.tokenizer.mask_id, ids), chosen


@pytest.mark.parametrize("task", ["mlm", "classify"])
def test_every_parameter_of_an_encoder_has_a_gradient(task, folder, monkeypatch):
    """DDP raises an error at the second step if one has none."""
    monkeypatch.setattr(MaskedLanguageModel, "hide", hide_some)
    reviews.write(folder / "classify.tsv", 60, 0, "train")
    data = {"mlm": "text.tsv", "classify": "classify.tsv"}[task]
    given: dict[str, Any] = {
        "data": (str(folder / data),),
        "format": None,
        "layers": 1,
        "block_size": 40,
        "max_steps": 3,
    }
    given |= {"format": "text"} if task == "mlm" else {}
    together(settings(folder, f"{task}-2", task, **given))
    train(settings(folder, task, task, **given))
    alone, found = (logged(folder / name, "loss") for name in (task, f"{task}-2"))
    assert list(found) == [1, 2, 3]
    assert close(found, alone)
    first, second = (regard.load(folder / name).net.state_dict() for name in (task, f"{task}-2"))
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=1e-4)


def test_an_error_of_all_processes_is_printed_once(folder):
    said = several.start(2, lambda rank: several.command("train", "lm", *flags(folder, "alone")), folder)
    assert several.wait(said) == [2, 2]
    first, second = several.said(folder)
    assert "already has a run in it" in first
    assert second == ""


def flags(folder: Path, out: str, steps: int = STEPS) -> list[str]:
    named = {"data": folder / "text.tsv", "format": "text", "out": folder / out, "tokenizer": "characters"}
    named |= {"block-size": 16, "layers": 1, "width": 16, "heads": 2, "batch-size": 4, "max-steps": steps}
    named |= {"save-steps": 10**6, "eval-steps": 10**6, "threads": 1, "log-steps": 1}
    return [part for name, value in named.items() for part in (f"--{name}", str(value))]


def test_torchrun_and_sigterm(folder):
    """The real launcher: its SIGTERM reaches both processes, which finish their step and save one checkpoint."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "regard", "train", "lm", *flags(folder, "ended", 10**6), "--shard"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REGARD_TIMEOUT": str(several.TIMEOUT)}
    metrics, patience = folder / "ended" / "metrics.jsonl", time.monotonic() + several.TIMEOUT
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True) as running:
        while running.poll() is None and time.monotonic() < patience:
            if metrics.exists() and metrics.read_text().count("loss") > 3:
                break
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=several.TIMEOUT)[1]
    (step,) = checkpoint.steps(folder / "ended")
    assert step == len(logged(folder / "ended", "loss"))
    assert checkpoint.damage(folder / "ended" / f"checkpoint-{step}") is None
    assert (folder / "ended" / "latest").resolve().name == f"checkpoint-{step}"
    assert said.count("Stopping after this step; a checkpoint will be saved.") == 1
    assert said.count("The model is in") == 1


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_activation_checkpointing_gives_the_same_gradients(dropout, folder):
    """To the bit, dropout included."""
    given: dict[str, Any] = {"max_steps": 3, "dropout": dropout}
    for name, again in (("kept", False), ("again", True)):
        train(settings(folder, f"{name}-{dropout}", checkpoint_activations=again, **given))
    a, b = (folder / f"{name}-{dropout}" / "checkpoint-3" for name in ("kept", "again"))
    for file in ("model.safetensors", checkpoint.OPTIMIZER):  # the moments are the gradients' trace
        assert (a / file).read_bytes() == (b / file).read_bytes()


def test_one_process_needs_no_process_group():
    with data_parallel(shard=True) as one:
        assert (one.rank, one.world_size, one.shard, one.first) == (0, 1, False, True)
        assert one.sum(1.0, 2.0) == [1.0, 2.0]
        assert one.run_on_first(lambda: "done") == "done"
    assert Parallel(rank=1, world_size=2).first is False
