"""Training: our loop against a plain loop around Hugging Face's GPT-2, each in its own process, taking turns.

Both train the same shape from the same ids without dropout: 6 layers × 384, 6 heads, block 256, batch 8, vocabulary 4096.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.versus import Comparison, Share, alternate, product_speed

SHAPE = {"vocab_size": 4096, "n_positions": 256, "n_embd": 384, "n_layer": 6, "n_head": 6}
PLAIN = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
BLOCK, BATCH, STEPS = 256, 8, 4
TOKENS = BLOCK * BATCH


def flops_per_token() -> float:
    """Of forward and backward pass: 6 per weight of a matrix, 12 n d N for scores and weighted sums (PaLM, appendix B)."""
    d, layers = SHAPE["n_embd"], SHAPE["n_layer"]
    return 6 * (12 * layers * d * d + SHAPE["vocab_size"] * d) + 12 * layers * d * BLOCK


def our_steps(probing: bool = False) -> Callable[[], None]:
    """A step of `regard train lm`; or what a run adds to a hundred steps: ten lines of metrics and one recording of a
    probe."""
    import torch

    from regard.malloc import keep_freed_memory
    from regard.model.build import build
    from regard.model.init import initialise
    from regard.model.registry import spec_of
    from regard.train.loop import Trainer
    from regard.train.probe import Probes
    from regard.train.settings import TrainSettings
    from regard.train.task.base import Batch
    from regard.train.task.lm import LanguageModel

    keep_freed_memory()
    net = build(spec_of({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **SHAPE, **PLAIN}))
    initialise(net, 0)
    ids = torch.randint(0, SHAPE["vocab_size"], (BATCH, BLOCK + 1))
    batch = Batch({"ids": ids[:, :-1], "targets": ids[:, 1:]}, TOKENS, TOKENS)

    class Same:
        def __init__(self) -> None:
            self.cursor = dict[str, int]()

        def micro_batches(self, step: int) -> list[Batch]:
            return [batch]

        def held_out(self) -> list[Batch]:
            return []

    class Ids:
        """As much of a tokenizer as training on given ids needs."""

        pad_id, eos_id = None, 0
        encode = staticmethod(lambda text: list(range(24)))
        pieces = staticmethod(lambda ids: [str(i) for i in ids])

    settings = TrainSettings(task="lm", out=tempfile.mkdtemp())
    probes = Probes(Path(settings.out), ["a probe"], Ids())  # type: ignore[arg-type]
    task = LanguageModel(settings, Ids())  # type: ignore[arg-type]
    trainer = Trainer(settings, task, net, Same(), 1 << 30, lambda *given: None)

    def step() -> None:
        trainer.step()

    def record_probe() -> None:
        for _ in range(10):
            trainer.log({"loss": 1.0, "lr": 1e-3, "grad_norm": 1.0, "layer_norms": dict.fromkeys("123456", 1.0)})
        trainer.log({"entropy": trainer.in_eval_mode(probes.record, trainer.progress.step)})

    return record_probe if probing else step


def their_steps() -> Callable[[], None]:
    import torch
    import transformers

    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHAPE, **PLAIN)).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ids = torch.randint(0, SHAPE["vocab_size"], (BATCH, BLOCK))

    def step() -> None:
        net(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


SIDES: dict[str, Callable[[], Callable[[], None]]] = {
    "ours": our_steps,
    "probing": lambda: our_steps(probing=True),
    "theirs": their_steps,
}


def resident_memory() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def serve(side: str, threads: int, pipe: Connection) -> None:
    """For every number of steps received, run them and send the seconds they took and the peak MB beyond the libraries."""
    import logging

    import torch
    import transformers  # noqa: F401 - imported by both sides, so that memory compares

    logging.disable()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    before = resident_memory()
    step = SIDES[side]()
    while steps := pipe.recv():
        began = time.perf_counter()
        for _ in range(steps):
            step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1) / 1e6
        pipe.send((time.perf_counter() - began, peak - before))


@contextmanager
def running(side: str, threads: int) -> Iterator[Connection]:
    context: Any = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(side, threads, there), daemon=True)
    process.start()
    try:
        yield here
    finally:
        here.send(0)
        process.join()


def rate_of(pipe: Connection, steps: int = STEPS) -> float:
    pipe.send(steps)
    return steps * TOKENS / pipe.recv()[0]


def peak_of(pipe: Connection) -> float:
    pipe.send(1)
    return pipe.recv()[1]


def comparisons() -> Iterator[Comparison | Share]:
    import torch

    threads = torch.get_num_threads()
    with running("ours", threads) as ours, running("theirs", threads) as theirs:
        what = "train GPT-2, 6 layers × 384, block 256, batch 8"
        speed = alternate(what, "tok/s", lambda: rate_of(ours), lambda: rate_of(theirs), rounds=9, aim=1.3)
        yield speed
        product = max(product_speed() for _ in range(3))
        share = speed.ours * flops_per_token() / 1e9 / product
        yield Share(f"its arithmetic, of a float32 product's {product:.0f} GFLOP/s", share, at_least=0.75)
        mine, yours = peak_of(ours), peak_of(theirs)
        yield Share(f"its peak memory, {mine:,.0f} MB, of the plain loop's {yours:,.0f} MB", mine / yours, at_most=1.0)
        with running("probing", threads) as probing:
            rate_of(probing), rate_of(ours)
            hundred, added = 100 * TOKENS / rate_of(ours), TOKENS / rate_of(probing)
        yield Share("what metrics and a probe add to a hundred steps", added / hundred, at_most=0.03)
