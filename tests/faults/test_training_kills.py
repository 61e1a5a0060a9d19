"""kill -9 at any moment, also in the middle of a save: the resumed run is the run that nobody killed, byte for byte.

REGARD_KILLS sets how many times (make soak: 60); here a few, so that the tests stay short.
"""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from regard.train import checkpoint
from regard.train.settings import TrainSettings

KILLS = int(os.environ.get("REGARD_KILLS", "6"))
STEPS = 10 * KILLS
WORDS = "the a cat dog sat ran on under mat rug house and but it they was were good red old".split()

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked so that 60 of them start quickly")


def settings(folder: Path, name: str) -> TrainSettings:
    return TrainSettings(
        "lm",
        data=(str(folder / "text.txt"),),
        out=str(folder / name),
        tokenizer="characters",
        vocab_size=64,
        block_size=16,
        layers=2,
        width=16,
        heads=2,
        batch_size=4,
        max_steps=STEPS,
        warmup_steps=5,
        save_steps=3,
        eval_steps=10**6,
        log_steps=5,
        save_total_limit=2,
        dropout=0.1,
        threads=1,
    )


def run_in_a_process(asked: TrainSettings, resume: bool, saving: int | None = None) -> int:
    """The process's id. `saving`, if given, is a pipe to which a byte is written whenever a save begins."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        from regard.train.training_run import train

        if saving is not None:
            original = checkpoint.save

            def told(*arguments, **named):
                os.write(saving, b"s")
                return original(*arguments, **named)

            checkpoint.save = told
        train(asked, resume=resume)
        code = 0
    finally:
        os._exit(code)


def wait_for(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_killed_and_resumed_is_never_killed(tmp_path):
    torch.set_num_threads(1)
    dice = random.Random(0)
    (tmp_path / "text.txt").write_text(" ".join(dice.choice(WORDS) for _ in range(3000)))
    assert wait_for(run_in_a_process(settings(tmp_path, "whole"), resume=False)) == 0

    asked, in_a_save, killed = settings(tmp_path, "killed"), 0, 0
    while killed < KILLS:
        reading, writing = os.pipe()
        resume = checkpoint.newest(asked.run) is not None
        pid = run_in_a_process(asked, resume, writing)
        os.close(writing)
        if dice.random() < 0.4:  # wait for a save to begin, and strike while it writes
            for _ in range(dice.randint(1, 3)):
                os.read(reading, 1)
            time.sleep(dice.random() * 0.03)
            in_a_save += 1
        else:
            time.sleep(dice.random() * 0.6)
        os.kill(pid, signal.SIGKILL)
        os.close(reading)
        killed += wait_for(pid) == -signal.SIGKILL
        for step in checkpoint.steps(asked.run):
            assert checkpoint.damage(asked.run / f"checkpoint-{step}") is None
        if checkpoint.steps(asked.run)[:1] == [STEPS]:
            break
    assert killed >= min(KILLS, 3)
    assert in_a_save > 0
    resume = checkpoint.newest(asked.run) is not None
    assert wait_for(run_in_a_process(asked, resume)) == 0

    ends = [
        json.loads((tmp_path / name / f"checkpoint-{STEPS}" / checkpoint.SUMS).read_text())
        for name in ("whole", "killed")
    ]
    assert ends[0] == ends[1]  # weights, optimiser, cursor: every file
    assert not list(asked.run.glob(".*.part"))
    metrics = [
        [
            {k: v for k, v in json.loads(line).items() if k in ("step", "loss", "lr", "grad_norm")}
            for line in text.splitlines()
        ]
        for text in ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "killed"))
    ]
    assert metrics[0] == metrics[1]
