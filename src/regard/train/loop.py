"""The training loop: forward pass, backward pass, optimizer step; now and then probes, an evaluation, a checkpoint.

In: settings, a task, a network and a data loader. Out: trained weights in checkpoints, metrics in `metrics.jsonl`, and an
event per step to the callback. Gradient accumulation, gradient clipping, the learning rate schedule, early stopping and
resuming are here.

Everything a step depends on is a function of the settings, the step's number and the weights before it: the data loader is
a function of its cursor, and the random seed is set anew for every step. So a run that is killed and resumed is, bit for
bit, the run that was not interrupted.
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
from regard.model.build import Network, Seq2Seq
from regard.model.transformer import Stack
from regard.train import checkpoint
from regard.train.activation_checkpointing import checkpoint_activations
from regard.train.checkpoint import Progress
from regard.train.metrics import METRICS
from regard.train.optimizer import adamw, schedule
from regard.train.parallel import Parallel, local_shard
from regard.train.probe import Probes
from regard.train.settings import TrainSettings
from regard.train.task.base import Batch, Task

ALONE = Parallel()
Callback = Callable[[dict[str, Any]], None]  # called with an event, whose "kind" is step, log, message or saved
T = TypeVar("T")


class BatchSource(Protocol):
    """What the loop needs of a data loader (`train/data.py` has the one of real runs)."""

    cursor: dict[str, int]  # the position in the data, saved in checkpoints; assign it to resume from there

    def micro_batches(self, step: int) -> list[Batch]:
        """This process's share of the next step's batch, split into micro-batches for gradient accumulation."""
        ...

    def held_out(self) -> list[Batch]:
        """The evaluation batches, the same ones every time."""
        ...


class NetworkCall(nn.Module):
    """Runs any function of the network as a module's forward, so that DDP and FSDP, which wrap a forward, wrap them all."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, work: Callable[..., T], *given: Any) -> T:
        return work(self.net, *given)


@dataclass
class StepResult:
    """The figures of one optimizer step."""

    loss: float
    tokens: int
    learning_rate: float
    grad_norm: float
    layer_norms: dict[str, float]


class Trainer:
    """One run's training loop and its state: network, optimizer, progress, and when to log, evaluate, save and stop."""

    def __init__(
        self,
        settings: TrainSettings,
        task: Task,
        net: Network,
        loader: BatchSource,
        total_steps: int,
        write_model: Callable[
            ..., None
        ],  # called with a directory and, as `net`, another network than the one given here
        callback: Callback = lambda event: None,
        parallel: Parallel = ALONE,
        probes: Probes | None = None,
    ) -> None:
        self.settings, self.task, self.net, self.loader = settings, task, net, loader
        self.total, self.write_model, self.callback, self.parallel = total_steps, write_model, callback, parallel
        self.probes, self.run, self.progress, self.stopping = probes, settings.run, Progress(), False
        self.last_eval = dict[int, float]()  # step → value of the metric, negated where higher is better
        self.blocks = blocks_of(net)
        net.train()
        net.requires_grad_(True)
        if settings.checkpoint_activations:
            checkpoint_activations(self.blocks)
        if settings.compile:
            for block in self.blocks:
                block.compile()
        self.module = parallel.wrap(NetworkCall(net), self.blocks)
        self.optimizer = adamw(net, settings.learning_rate, settings.weight_decay, (settings.beta_1, settings.beta_2))
        self.factor = schedule(settings.schedule, settings.warmup_steps, total_steps)

    def train(self) -> Progress:
        """Train until the last step, a signal, or early stopping (`patience`). All processes stop after the same step."""
        s, p = self.settings, self.progress
        every_eval = s.eval_steps or max(1, self.total // 10)
        every_save = s.save_steps or every_eval
        if every_save % every_eval:
            intervals = f"Checkpoints are saved every {every_save:,} and evaluations run every {every_eval:,} steps"
            self.message(f"{intervals}: `best` is chosen among the checkpoints that were evaluated.")
        spent, tokens, ending = 0.0, 0, False  # seconds and tokens since the last line of the log
        with stop_on_signal(self):
            while p.step < self.total and not ending:
                began = time.monotonic()
                result = self.step()
                spent, tokens = spent + time.monotonic() - began, tokens + result.tokens
                if p.step % s.log_steps == 0 or p.step == self.total:
                    rate = tokens / max(1e-9, spent)
                    facts = {"loss": result.loss, "lr": result.learning_rate, "grad_norm": result.grad_norm}
                    self.log({**facts, "layer_norms": result.layer_norms, "rate": rate, "memory": peak_memory()})
                    spent, tokens = 0.0, 0
                if self.probes and (p.step % s.probe_steps == 0 or p.step == self.total):
                    self.log({"entropy": self.in_eval_mode(self.probes.record, p.step)})
                if p.step % every_eval == 0 or p.step == self.total:
                    self.evaluate()
                ending = self.parallel.any(self.stopping)
                if p.step % every_save == 0 or p.step == self.total or ending:
                    self.save()
        return p

    def step(self) -> StepResult:
        """One optimizer step: gradients accumulated over the micro-batches, clipped, and applied at the schedule's rate."""
        s, p = self.settings, self.progress
        torch.manual_seed(step_seed(s.seed, p.step, self.parallel.rank))
        batches = to_device(self.loader.micro_batches(p.step), self.parallel.device)
        count, tokens = self.parallel.sum(sum(b.count for b in batches), sum(b.tokens for b in batches))
        parts = int(self.parallel.max(len(batches)))  # all ranks run as many backward passes, some with weight 0
        batches += [batches[-1].without_weight()] * (parts - len(batches))
        plain = 0.0
        for i, batch in enumerate(batches):
            with self.gradient_sync(last=i == parts - 1), self.autocast():
                total, reported = self.module(self.loss, batch)
                share = batch.weight * self.parallel.world_size / max(1.0, count)  # DDP and FSDP average over ranks
                (total * share).backward()
            plain += batch.weight * float(reported)
        loss = self.parallel.sum(plain)[0] / max(1.0, count)
        norm, by_layer = clip_gradients(self.net, s.clip, self.parallel)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise self.parallel.report_once(TrainingError(self.non_finite_message(loss)))
        rate = s.learning_rate * self.factor(p.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        p.step, p.tokens, p.cursor = p.step + 1, p.tokens + int(tokens), dict(self.loader.cursor)
        self.callback({"kind": "step", "step": p.step, "total": self.total, "loss": loss, "tokens": int(tokens)})
        return StepResult(loss, int(tokens), rate, norm, by_layer)

    def loss(self, net: Network, batch: Batch) -> tuple[Tensor, Tensor]:
        """The summed loss to minimise, and the one to report."""
        loss = self.task.loss(net, batch)
        return loss.total, loss.plain

    def gradient_sync(self, last: bool) -> Any:
        """Under DDP, gradients are all-reduced once a step, with the last micro-batch (`no_sync` before it). FSDP
        reduce-scatters them with every micro-batch: to wait, each process would have to store the whole network's."""
        split = isinstance(self.module, nn.parallel.DistributedDataParallel) and not last
        return self.module.no_sync() if split else nullcontext()  # type: ignore[operator]

    def autocast(self) -> Any:
        """Mixed precision (bfloat16), if it is on. Without autocast's weight cache under FSDP: shards are freed after use,
        so a 16-bit copy would never be used a second time."""
        if not self.settings.bf16:
            return nullcontext()
        return torch.autocast(self.parallel.device.type, torch.bfloat16, cache_enabled=not self.parallel.shard)

    def non_finite_message(self, loss: float) -> str:
        """An error message that names the first parameter whose gradient is NaN or infinite."""
        wrong = [float(p.grad is not None and not local_shard(p.grad).isfinite().all()) for p in self.net.parameters()]
        names = [name for name, _ in self.net.named_parameters()]
        where = [name for name, ranks in zip(names, self.parallel.sum(*wrong), strict=True) if ranks]
        first = f"the gradient of {where[0]}" if where else "the loss"
        return (
            f"At step {self.progress.step + 1} {first} is not a finite number (loss {loss:g}); the weights were not "
            "changed. Lower the learning rate or raise the warm-up, and resume from the last checkpoint."
        )

    @torch.no_grad()
    def in_eval_mode(self, work: Callable[..., T], *given: Any) -> T:
        """`work(net, …)` in evaluation mode, without gradients. An encoder-decoder generates text there, one forward pass
        per token, so its blocks are unsharded once for all of them."""
        generating = self.blocks if isinstance(self.net, Seq2Seq) else []
        self.net.eval()
        with self.parallel.unsharded(self.module, generating):
            found: T = self.module(work, *given)
        self.net.train()
        return found

    def evaluate(self) -> dict[str, float]:
        """Metrics on held-out data. Early stopping counts evaluations since the lowest value; `save` records the best."""
        p, began = self.progress, time.monotonic()
        metrics = self.in_eval_mode(self.task.evaluate, to_device(self.loader.held_out(), self.parallel.device))
        metric = metrics.get(self.task.best_metric, metrics["loss"])
        value = -metric if self.task.higher_is_better and self.task.best_metric in metrics else metric
        value = self.parallel.broadcast_first(value)  # so that all processes decide alike
        self.last_eval = {p.step: value} if math.isfinite(value) else {}
        before = [each for each in (p.lowest, p.best) if each is not None]
        if self.last_eval and all(value < each for each in before):
            p.lowest, p.stale = value, 0
        else:
            p.stale += 1
        self.log({"eval": metrics, "seconds": time.monotonic() - began})
        if self.settings.patience is not None and p.stale >= self.settings.patience:
            self.stopping = True
            self.message(f"No improvement in {p.stale} evaluations: stopping early.")
        return metrics

    def save(self) -> None:
        """Save a checkpoint; the first process writes it. It becomes `best` if its evaluation is the best so far."""
        p = self.progress
        value = self.last_eval.get(p.step)
        if value is not None and (p.best is None or value < p.best):
            p.best, p.best_step = value, p.step

        def write() -> Path:
            keep = self.settings.save_total_limit
            return checkpoint.save(self.run, self.progress, gathered.write_model, gathered.optimizer, keep)

        with checkpoint.gathered_parts(self.run, self.net, self.optimizer, self.write_model, self.parallel) as gathered:
            path = self.parallel.run_on_first(write)
        self.callback({"kind": "saved", "path": str(path)})

    def resume(self, path: Path) -> None:
        """Resume from a checkpoint: progress, data cursor and optimizer state. The caller has loaded the weights."""
        self.progress = checkpoint.read_progress(path)
        self.loader.cursor = dict(self.progress.cursor)
        p = self.progress
        if p.best_step is not None and not (self.run / f"checkpoint-{p.best_step}").is_dir():
            p.best = p.best_step = None  # it was deleted: the next one that is evaluated is the best
        checkpoint.restore_optimizer(self.net, self.optimizer, checkpoint.read_optimizer(path))

    def message(self, text: str) -> None:
        self.callback({"kind": "message", "text": text})

    def log(self, facts: dict[str, Any]) -> None:
        """Append a line to `metrics.jsonl` and call the callback with it."""
        line = {"step": self.progress.step, **facts}
        if self.parallel.first:
            try:
                with (self.run / METRICS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError as problem:
                sentence = (
                    f"{self.run / METRICS} cannot be written to: {problem.strerror}; free disk space and --resume."
                )
                raise TrainingError(sentence) from problem
        self.callback({"kind": "log", **line})


def blocks_of(net: Network) -> list[nn.Module]:
    """The network's transformer blocks: the units of FSDP, activation checkpointing and compilation."""
    return [block for stack in net.modules() if isinstance(stack, Stack) for block in stack.blocks]


def to_device(batches: list[Batch], device: torch.device) -> list[Batch]:
    return [replace(b, tensors={name: x.to(device) for name, x in b.tensors.items()}) for b in batches]


@torch.no_grad()
def clip_gradients(net: Network, limit: float, parallel: Parallel) -> tuple[float, dict[str, float]]:
    """Gradient clipping: scale all gradients so that their norm is at most `limit`. The norm before, total and by layer."""
    named = [(name, local_shard(p.grad)) for name, p in net.named_parameters() if p.grad is not None]
    gradients = [g for _, g in named]
    squares = [norm**2 for norm in torch.stack(torch._foreach_norm(gradients)).tolist()]
    if parallel.shard:
        squares = parallel.sum(*squares)
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
    """The process's peak resident memory so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 if sys.platform == "linux" else 1024 * 1024)


def step_seed(seed: int, step: int, rank: int) -> int:
    """A different random seed for every step and process (dropout)."""
    return (seed * 1_000_003 + step) * 8191 + rank & 0x7FFF_FFFF_FFFF_FFFF


@contextmanager
def stop_on_signal(trainer: Trainer) -> Iterator[None]:
    """After SIGTERM or the first Ctrl-C the step is finished and a checkpoint saved; the second Ctrl-C stops at once."""

    def request_stop(number: int, frame: object) -> None:
        if trainer.stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        trainer.stopping = True
        trainer.message("Stopping after this step; a checkpoint will be saved.")

    before: Sequence[Any] = []
    if threading.current_thread() is threading.main_thread():  # other threads cannot set signal handlers
        before = [(n, signal.signal(n, request_stop)) for n in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
