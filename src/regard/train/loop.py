"""The loop: a batch, its loss, its gradients, a step; now and then a look, an evaluation, a checkpoint.

Everything a step depends on is a function of the settings, the step's number and the weights before it: batches come from a
cursor, randomness is seeded per step. So a run that is killed and resumed is, bit for bit, the run that was not.
"""

import json
import math
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import TrainingError
from regard.model.transformer import Network, Seq2Seq
from regard.nn.block import CrossPostNorm, CrossPreNorm, PostNorm, PreNorm
from regard.train import checkpoint
from regard.train.checkpoint import Progress
from regard.train.metrics import METRICS
from regard.train.optimise import adamw, schedule
from regard.train.parallel import Parallel, local
from regard.train.probe import Probes
from regard.train.recompute import recompute
from regard.train.settings import TrainSettings
from regard.train.task.base import Batch, Task

ALONE = Parallel()
Tell = Callable[[dict[str, Any]], None]
T = TypeVar("T")


class Feed(Protocol):
    """Where batches come from: `take` gives the next step's, `cursor` says where it stands."""

    cursor: dict[str, int]

    def take(self, step: int) -> list[Batch]:
        """This process's share of the next step, in as many parts as it is to be computed in."""
        ...

    def held_out(self) -> list[Batch]: ...


class Work(nn.Module):
    """Whatever is computed with a network as a module's forward, which is what PyTorch's distributed engines wrap."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, work: Callable[..., T], *given: Any) -> T:
        return work(self.net, *given)


@dataclass
class Stepped:
    """What one step was like."""

    loss: float
    tokens: int
    learning_rate: float
    grad_norm: float
    layer_norms: dict[str, float]


class Trainer:
    def __init__(
        self,
        settings: TrainSettings,
        task: Task,
        net: Network,
        feed: Feed,
        total_steps: int,
        write_model: Callable[..., None],  # a directory and, if it is not the one given here, the network → files
        tell: Tell = lambda event: None,
        together: Parallel = ALONE,
        probes: Probes | None = None,
    ) -> None:
        self.settings, self.task, self.net, self.feed = settings, task, net, feed
        self.total, self.write_model, self.tell, self.together = total_steps, write_model, tell, together
        self.probes, self.run, self.progress, self.stopping = probes, settings.run, Progress(), False
        self.judged = dict[int, float]()  # the last evaluation: step → value, the lower the better
        self.blocks = blocks_of(net)
        net.train()
        net.requires_grad_(True)
        if settings.checkpoint_activations:
            recompute(self.blocks)
        if settings.compile:
            for block in self.blocks:
                block.compile()
        self.module = together.wrap(Work(net), self.blocks)
        self.optimizer = adamw(net, settings.learning_rate, settings.weight_decay, (settings.beta_1, settings.beta_2))
        self.factor = schedule(settings.schedule, settings.warmup_steps, total_steps)

    def train(self) -> Progress:
        """Until the last step, a signal to end, or no improvement for too long. All processes end after the same step."""
        s, p = self.settings, self.progress
        every_eval = s.eval_steps or max(1, self.total // 10)
        every_save = s.save_steps or every_eval
        if every_save % every_eval:
            unjudged = f"every {every_save:,} and evaluations every {every_eval:,} steps"
            self.tell({"kind": "said", "text": f"Checkpoints come {unjudged}: `best` is among those that were judged."})
        spent, tokens, ending = 0.0, 0, False  # time and text since the last line of the log
        with finishing_on_signal(self):
            while p.step < self.total and not ending:
                began = time.monotonic()
                stepped = self.step()
                spent, tokens = spent + time.monotonic() - began, tokens + stepped.tokens
                if p.step % s.log_steps == 0 or p.step == self.total:
                    rate = tokens / max(1e-9, spent)
                    facts = {"loss": stepped.loss, "lr": stepped.learning_rate, "grad_norm": stepped.grad_norm}
                    self.log({**facts, "layer_norms": stepped.layer_norms, "rate": rate, "memory": peak_memory()})
                    spent, tokens = 0.0, 0
                if self.probes and (p.step % s.probe_steps == 0 or p.step == self.total):
                    self.log({"entropy": self.look(self.probes.look, p.step)})
                if p.step % every_eval == 0 or p.step == self.total:
                    self.evaluate()
                ending = self.together.agree(self.stopping)
                if p.step % every_save == 0 or p.step == self.total or ending:
                    self.save()
        return p

    def step(self) -> Stepped:
        """One update of the weights."""
        s, p = self.settings, self.progress
        torch.manual_seed(step_seed(s.seed, p.step, self.together.rank))
        batches = moved(self.feed.take(p.step), self.together.device)
        count, tokens = self.together.sum(sum(b.count for b in batches), sum(b.tokens for b in batches))
        parts = int(self.together.most(len(batches)))  # where there are fewer, go through the motions
        batches += [batches[-1].without_weight()] * (parts - len(batches))
        plain = 0.0
        for i, batch in enumerate(batches):
            with self.last_part_shares(i == parts - 1), self.precision():
                total, reported = self.module(self.loss, batch)
                share = batch.weight * self.together.world / max(1.0, count)  # ranks are averaged: each counts `world`
                (total * share).backward()
            plain += batch.weight * float(reported)
        loss = self.together.sum(plain)[0] / max(1.0, count)
        norm, by_layer = clip_gradients(self.net, s.clip, self.together)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise self.together.found_by_all(TrainingError(self.what_is_not_a_number(loss)))
        rate = s.learning_rate * self.factor(p.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        p.step, p.tokens, p.cursor = p.step + 1, p.tokens + int(tokens), dict(self.feed.cursor)
        self.tell({"kind": "step", "step": p.step, "total": self.total, "loss": loss, "tokens": int(tokens)})
        return Stepped(loss, int(tokens), rate, norm, by_layer)

    def loss(self, net: Network, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = self.task.loss(net, batch)
        return loss.total, loss.plain

    def last_part_shares(self, last: bool) -> Any:
        """Under DDP gradients are exchanged once a step, with its last part; shards exchange them with every part, since
        to wait would be to hold the whole network's."""
        split = isinstance(self.module, nn.parallel.DistributedDataParallel) and not last
        return self.module.no_sync() if split else nullcontext()  # type: ignore[operator]

    def precision(self) -> Any:
        """Shards are let go after use, so no copies of them in 16 bits are kept for a second use that does not come."""
        if not self.settings.bf16:
            return nullcontext()
        return torch.autocast(self.together.device.type, torch.bfloat16, cache_enabled=not self.together.shard)

    def what_is_not_a_number(self, loss: float) -> str:
        wrong = [float(p.grad is not None and not local(p.grad).isfinite().all()) for p in self.net.parameters()]
        names = [name for name, _ in self.net.named_parameters()]
        where = [name for name, ranks in zip(names, self.together.sum(*wrong), strict=True) if ranks]
        first = f"the gradient of {where[0]}" if where else "the loss"
        return (
            f"At step {self.progress.step + 1} {first} is not a finite number (loss {loss:g}); the weights were not "
            "changed. Lower the learning rate or raise the warm-up, and resume from the last checkpoint."
        )

    @torch.no_grad()
    def look(self, work: Callable[..., T], *given: Any) -> T:
        """`work(net, …)` without learning from it. A network that writes is called once a token, so it is put together."""
        writing = self.blocks if isinstance(self.net, Seq2Seq) else []
        self.net.eval()
        with self.together.gathered(self.module, writing):
            found: T = self.module(work, *given)
        self.net.train()
        return found

    def evaluate(self) -> dict[str, float]:
        """Metrics on held-out text. The lowest value of all decides on patience; the best checkpoint is noted by `save`."""
        p, began = self.progress, time.monotonic()
        metrics = self.look(self.task.evaluate, moved(self.feed.held_out(), self.together.device))
        judged = metrics.get(self.task.judged_by, metrics["loss"])
        value = -judged if self.task.higher_is_better and self.task.judged_by in metrics else judged
        value = self.together.of_first(value)  # all must come to the same conclusions
        self.judged = {p.step: value} if math.isfinite(value) else {}
        before = [each for each in (p.lowest, p.best) if each is not None]
        if self.judged and all(value < each for each in before):
            p.lowest, p.stale = value, 0
        else:
            p.stale += 1
        self.log({"eval": metrics, "seconds": time.monotonic() - began})
        if self.settings.patience is not None and p.stale >= self.settings.patience:
            self.stopping = True
            self.tell({"kind": "said", "text": f"No improvement in {p.stale} evaluations: stopping."})
        return metrics

    def save(self) -> None:
        """A checkpoint, which the first process writes. It is the best if it was judged better than those before it."""
        p = self.progress
        value = self.judged.get(p.step)
        if value is not None and (p.best is None or value < p.best):
            p.best, p.best_step = value, p.step

        def write() -> Path:
            keep = self.settings.save_total_limit
            return checkpoint.save(self.run, self.progress, held.write_model, held.optimizer, keep)

        with checkpoint.held(self.run, self.net, self.optimizer, self.write_model, self.together) as held:
            path = self.together.first_does(write)
        self.tell({"kind": "saved", "path": str(path)})

    def resume(self, path: Path) -> None:
        """Stand where the checkpoint stood. The weights are loaded by whoever made the network."""
        self.progress = checkpoint.read_progress(path)
        self.feed.cursor = dict(self.progress.cursor)
        p = self.progress
        if p.best_step is not None and not (self.run / f"checkpoint-{p.best_step}").is_dir():
            p.best = p.best_step = None  # the next one that is judged is the best there is
        checkpoint.restore_optimizer(self.net, self.optimizer, checkpoint.read_optimizer(path))

    def log(self, facts: dict[str, Any]) -> None:
        line = {"step": self.progress.step, **facts}
        if self.together.first:
            try:
                with (self.run / METRICS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError as problem:
                sentence = f"{self.run / METRICS} cannot be written to: {problem.strerror}; make room, and --resume."
                raise TrainingError(sentence) from problem
        self.tell({"kind": "log", **line})


def blocks_of(net: Network) -> list[nn.Module]:
    return [m for m in net.modules() if isinstance(m, PreNorm | PostNorm | CrossPreNorm | CrossPostNorm)]


def moved(batches: list[Batch], device: torch.device) -> list[Batch]:
    return [replace(b, tensors={name: x.to(device) for name, x in b.tensors.items()}) for b in batches]


@torch.no_grad()
def clip_gradients(net: Network, limit: float, together: Parallel) -> tuple[float, dict[str, float]]:
    """Scale all gradients so that their norm is at most `limit`; the norm before, and its share per layer."""
    named = [(name, local(p.grad)) for name, p in net.named_parameters() if p.grad is not None]
    gradients = [g for _, g in named]
    squares = [norm**2 for norm in torch.stack(torch._foreach_norm(gradients)).tolist()]
    if together.shard:
        squares = together.sum(*squares)
    by_layer: dict[str, float] = {}
    for (name, _), square in zip(named, squares, strict=True):
        layer = layer_of(name)
        by_layer[layer] = by_layer.get(layer, 0.0) + square
    total = math.sqrt(sum(squares))
    if total > limit and math.isfinite(total):
        torch._foreach_mul_(gradients, limit / total)
    return total, {layer: round(math.sqrt(square), 6) for layer, square in by_layer.items()}


def layer_of(name: str) -> str:
    """The block a parameter belongs to ("decoder.3"), or the part outside of blocks ("embed")."""
    parts = name.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 and parts[1].isdigit() else parts[0]


def peak_memory() -> int:
    """The most memory this process has held so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 if sys.platform == "linux" else 1024 * 1024)


def step_seed(seed: int, step: int, rank: int) -> int:
    """A seed of its own for every step and process."""
    return (seed * 1_000_003 + step) * 8191 + rank & 0x7FFF_FFFF_FFFF_FFFF


@contextmanager
def finishing_on_signal(trainer: Trainer) -> Iterator[None]:
    """SIGTERM and the first Ctrl-C let the step end and the checkpoint be written; the second Ctrl-C does not wait."""

    def ask(number: int, frame: object) -> None:
        if trainer.stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        trainer.stopping = True
        trainer.tell({"kind": "said", "text": "Stopping after this step; a checkpoint will be written."})

    before: Sequence[Any] = []
    if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
        before = [(n, signal.signal(n, ask)) for n in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
