"""One of two processes dies, hangs or fails: the other stops with a sentence, and nothing half-written has a name."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import several
from regard.train import checkpoint, training_run
from regard.train.loop import Trainer

TIMEOUT = 4  # seconds, REGARD_TIMEOUT
SOON = 20  # seconds on a busy machine, from beginning to end
STEPS = 12
LOST = "stops, since another one has died or did not respond within 4 s (REGARD_TIMEOUT)"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked so that they start quickly")


def place(folder: Path) -> Path:
    (folder / "text.txt").write_text("the cat sat on the old red mat and the dog ran under it " * 60)
    return folder / "run"


@pytest.fixture
def run(tmp_path) -> Path:
    return place(tmp_path)


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], dict[str, str]]:
    """The checksums at the end of a run that nothing happened to."""

    @cache
    def ended(*mode: str) -> dict[str, str]:
        run = place(tmp_path_factory.mktemp("unharmed"))
        assert several.wait(happen(run, lambda rank: None, *mode)) == [0, 0]
        return checksums(run)

    return lambda mode: ended(*mode)


def checksums(run: Path) -> dict[str, str]:
    """Of weights, optimiser and progress."""
    return json.loads((run / f"checkpoint-{STEPS}" / checkpoint.SUMS).read_text())


def train(run: Path, *more: str) -> None:
    named = {"data": run.parent / "text.txt", "out": run, "tokenizer": "characters", "block-size": 16, "layers": 1}
    named |= {"width": 16, "heads": 2, "batch-size": 4, "max-steps": STEPS, "save-steps": 3, "eval-steps": 10**6}
    flags = [part for name, value in {**named, "threads": 1}.items() for part in (f"--{name}", value)]
    several.command("train", "lm", *flags, *more)


def befalling(rank: int, step: int, what: Callable[[], object], where: str = "step") -> Callable[[int], None]:
    """A process of this rank in which `what` happens after so many steps, before a step or before a save."""

    def install(mine: int) -> None:
        original = getattr(Trainer, where)

        def then(trainer: Trainer) -> object:
            if trainer.progress.step >= step and mine == rank:
                what()
            return original(trainer)

        setattr(Trainer, where, then)

    return install


def no_picture(run: Path, out: Path | None = None, lines: Any = None) -> Path:
    """It would take longer than the training."""
    return run


def happen(run: Path, install: Callable[[int], None], *more: str) -> list[int]:
    def work(rank: int) -> None:
        training_run.draw = no_picture
        install(rank)
        train(run, *more)

    return several.start(2, work, run.parent, TIMEOUT)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_presently() -> None:
    threading.Timer(0.03, die).start()


def what_is_there_is_whole(run: Path, *possible: list[int]) -> None:
    steps = checkpoint.steps(run)
    assert steps in possible
    assert all(checkpoint.damage(run / f"checkpoint-{step}") is None for step in steps)
    assert (run / "latest").resolve().name in [f"checkpoint-{step}" for step in steps[:2]]


KILLS = [
    pytest.param([], 1, die, "step", id="the-second-in-a-step"),
    pytest.param([], 0, die, "step", id="the-first-in-a-step"),
    pytest.param(["--shard"], 1, die, "save", id="the-second-of-shards-before-a-save"),
    pytest.param(["--shard"], 0, die_presently, "save", id="the-first-of-shards-in-a-save"),
]


@pytest.mark.parametrize(("mode", "victim", "what", "where"), KILLS)
def test_a_killed_process_stops_the_other(mode, victim, what, where, run, unharmed):
    """Nothing half-written has a name, and started again they end with the bytes of those that nothing happened to."""
    began = time.monotonic()
    codes = several.wait(happen(run, befalling(victim, 8, what, where), *mode))
    assert time.monotonic() - began < SOON
    assert codes == ([-signal.SIGKILL, 2] if victim == 0 else [2, -signal.SIGKILL])
    sentence = several.said(run.parent)[1 - victim].splitlines()[-1]
    assert sentence.startswith(f"regard: Process {1 - victim} of 2")
    assert LOST in sentence
    what_is_there_is_whole(run, [6, 3], [9, 6, 3], [9, 6])
    left = list(run.glob(".*.part"))
    assert len(left) <= (victim == 0)  # what the first leaves, its successor clears away
    assert several.wait(happen(run, lambda rank: None, "--resume", *mode)) == [0, 0]
    assert checksums(run) == unharmed(mode)
    assert not list(run.glob(".*"))


def test_a_process_that_hangs_is_given_up(run):
    pids = happen(run, befalling(1, 4, lambda: os.kill(os.getpid(), signal.SIGSTOP)))
    assert several.wait(pids[:1]) == [2]
    os.kill(pids[1], signal.SIGKILL)
    several.wait(pids[1:])
    assert LOST in several.said(run.parent)[0]
    what_is_there_is_whole(run, [3])


def test_a_shard_that_cannot_be_written_leaves_the_old_checkpoint(run):
    """The disk of one process is full; it is said once."""

    def full() -> None:
        from torch.distributed.checkpoint import HuggingFaceStorageWriter

        def write_data(*given: object) -> Any:
            raise OSError(28, "No space left on device")

        HuggingFaceStorageWriter.write_data = write_data  # type: ignore[assignment, method-assign]

    assert several.wait(happen(run, befalling(1, 4, full), "--shard")) == [2, 2]
    first, second = several.said(run.parent)
    assert "cannot be written to by process 1: [Errno 28] No space left on device" in first.splitlines()[-1]
    assert second == ""
    what_is_there_is_whole(run, [3])
    assert not list(run.glob(".*"))


@pytest.mark.parametrize("mode", [[], ["--shard"]], ids=["ddp", "shards"])
def test_not_a_number_in_one_process_stops_both_before_the_update(mode, run):
    """It is said once, with the name of the parameter, also when the first process does not hold that part of it."""

    def poison(mine: int) -> None:
        original = Trainer.step

        def step(trainer: Trainer) -> Any:
            if trainer.progress.step == 4 and mine == 1:
                with torch.no_grad():
                    net: Any = trainer.net
                    weights = net.final_norm.weight
                    (weights.to_local() if mode else weights)[-1] = torch.nan
            return original(trainer)

        Trainer.step = step  # type: ignore[assignment, method-assign]

    assert several.wait(happen(run, poison, *mode)) == [2, 2]
    first, second = several.said(run.parent)
    assert "At step 5 the gradient of embed.tokens.weight is not a finite number" in first.splitlines()[-1]
    assert second == ""
    what_is_there_is_whole(run, [3])
