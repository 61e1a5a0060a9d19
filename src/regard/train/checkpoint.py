"""Checkpoints: saved atomically, verified when resuming, and deleted beyond a limit.

A run's directory has `checkpoint-N/`, each a model directory in Hugging Face's layout plus two files: the optimizer state
(`optimizer.safetensors`) and the run's progress (`trainer.json`). `checksums.json` has a SHA-256 for every file. A
checkpoint is written to a temporary directory, flushed and renamed, and only then does `latest` point to it: a
`checkpoint-N` is complete, whenever the process is killed. One that was damaged afterwards is renamed
`checkpoint-N.damaged` and the one before it is used; files that cannot be read are never deleted.

A checkpoint does not depend on the number of processes: FSDP shards are consolidated before it is written.
"""

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError, quoted
from regard.model.build import Network, build, tie
from regard.safe_open import open_file, read_json
from regard.store.atomic_write import flush, staging
from regard.store.named_tensors import Planned
from regard.store.open_model import open_model, plan_weights
from regard.store.safetensors import open_checkpoint
from regard.store.safetensors_write import write_file
from regard.train.parallel import Parallel, copy_like

log = logging.getLogger("regard")

NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,17})")
SUMS, OPTIMIZER, TRAINER = "checksums.json", "optimizer.safetensors", "trainer.json"
WEIGHTS = "weights."  # prefix of the weights' names, in a file that also has the optimizer state


@dataclass
class Progress:
    """The state of a run between two steps, besides weights and optimizer: what is needed to resume it exactly."""

    step: int = 0
    tokens: int = 0
    cursor: dict[str, int] = field(default_factory=dict)  # the data loader's position
    best: float | None = None  # the best evaluation of a checkpoint; lower is better
    best_step: int | None = None
    lowest: float | None = None  # the best evaluation of all, also of steps that were not saved
    stale: int = 0  # evaluations since the lowest, for early stopping
    data: str = ""  # SHA-256 of data and model: a run can only be resumed with those it began with
    model: str = ""


def save(
    run: Path, progress: Progress, write_model: Callable[[Path], None], optimizer: dict[str, Tensor], keep: int
) -> Path:
    """Write `checkpoint-{step}`; then update `latest`; then delete all but the newest `keep` checkpoints and the best."""
    final = run / f"checkpoint-{progress.step}"
    with staging(run) as stage:
        part = stage / final.name
        part.mkdir()
        write_model(part)
        write_file(part / OPTIMIZER, [planned(name, t) for name, t in sorted(optimizer.items())], {"format": "pt"})
        (part / TRAINER).write_text(json.dumps(asdict(progress), indent=2) + "\n")
        sums = {str(p.relative_to(part)): sha256(p) for p in sorted(part.rglob("*")) if p.is_file()}
        (part / SUMS).write_text(json.dumps(sums, indent=2) + "\n")
        flush_tree(part)
        if final.exists():  # from before the run was resumed at an earlier step
            remove(final)
        os.rename(part, final)
        flush(run)
        update_link(run, "latest", final.name)
        if progress.best_step == progress.step:
            update_link(run, "best", final.name)
        delete_old(run, keep, progress.best_step)
    return final


def planned(name: str, tensor: Tensor) -> Planned:
    return Planned(name, tuple(tensor.shape), "F32", lambda: tensor.detach().float())


def update_link(run: Path, link: str, name: str) -> None:
    """Make `link` a symbolic link to `name`, atomically."""
    new = run / f".{link}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(name)
    os.replace(new, run / link)
    flush(run)


def delete_old(run: Path, keep: int, best_step: int | None) -> None:
    """Delete all checkpoints but the newest `keep` and the best."""
    kept = steps(run)[:keep]
    for step in steps(run):
        if step not in kept and step != best_step:
            remove(run / f"checkpoint-{step}")


def remove(path: Path) -> None:
    """Delete a checkpoint, renamed first: a half-deleted one never has a checkpoint's name."""
    renamed = path.with_name(f".{path.name}.old")
    shutil.rmtree(renamed, ignore_errors=True)
    os.rename(path, renamed)
    shutil.rmtree(renamed, ignore_errors=True)


# ── finding and verifying checkpoints ───────────────────────────────────────────────────────────────────────────────


def steps(run: Path) -> list[int]:
    """The steps of the checkpoints, newest first."""
    return [step for step, path in entries(run) if path.is_dir() and not path.is_symlink()]


def entries(run: Path) -> list[tuple[int, Path]]:
    """Everything named like a checkpoint, damaged or not, newest first."""
    found = [(NAME.fullmatch(path.name), path) for path in run.iterdir()] if run.is_dir() else []
    return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)


def newest(run: Path) -> Path | None:
    """The newest checkpoint that is intact by its checksums; damaged ones are skipped with a warning."""
    for _, path in entries(run):
        problem = damage(path)
        if problem is None:
            return path
        log.warning("%s is damaged (%s); trying the checkpoint before it", path, problem)
    return None


def roll_back_to(run: Path, path: Path) -> None:
    """Make `path` the newest checkpoint: newer ones, which are damaged, are renamed, and the links updated."""
    for step, newer in entries(run):
        if step > int(path.name.rpartition("-")[2]):
            log.warning("%s is now %s", newer, set_aside(newer, "damaged").name)
    best = f"checkpoint-{read_progress(path).best_step}"
    for link, name in (("latest", path.name), ("best", best)):
        if (
            os.path.lexists(run / link) and not (run / link).is_symlink()
        ):  # a copy of the run in which links became files
            set_aside(run / link, "damaged")
        if (run / name).is_dir():
            update_link(run, link, name)
        else:
            (run / link).unlink(missing_ok=True)


def set_aside(path: Path, why: str) -> Path:
    """Rename it to `checkpoint-8.damaged`, or `checkpoint-8.damaged-2` if that exists."""
    names = (path.with_name(f"{path.name}.{why}" + (f"-{n}" if n > 1 else "")) for n in itertools.count(1))
    free = next(name for name in names if not os.path.lexists(name))
    os.rename(path, free)
    return free


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        if path.is_symlink() or not path.is_dir():
            return "it is not a directory"
        sums = read_json(path / SUMS, "the checkpoint's checksums")
        present = {str(p.relative_to(path)) for p in path.rglob("*") if not p.is_dir() and not p.name.startswith(".")}
        if odd := sorted(present ^ {*sums, SUMS}):
            return f"{odd[0]} is missing" if odd[0] in sums else f"{odd[0]} was not saved with it"
        for name, expected in sums.items():
            regular = (path / name).is_file() and not (path / name).is_symlink()  # opening a named pipe would block
            if not regular or sha256(path / name) != expected:
                return f"{name} has changed"
        if not {OPTIMIZER, TRAINER, "config.json"} <= set(sums):
            return f"{SUMS} is incomplete"
        if f"checkpoint-{read_progress(path).step}" != path.name:
            return f"{TRAINER} is of another step"
        plan_weights(open_model(path))
        open_checkpoint(path / OPTIMIZER)
    except Exception as problem:  # any error means damage; an older checkpoint may be intact
        return str(problem) or type(problem).__name__
    return None


def read_progress(path: Path) -> Progress:
    values = read_json(path / TRAINER, "the run's progress")
    try:
        progress = Progress(**values)
    except TypeError:
        raise CheckpointError(f"{path / TRAINER} was written by another version of this package.") from None
    for name, value in asdict(progress).items():
        if not FITS[name](value):
            raise CheckpointError(f"{path / TRAINER}: {name} is {quoted(value)}, which it cannot be.")
    return progress


def is_count(value: object) -> bool:
    return type(value) is int and value >= 0


FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("step", "tokens", "stale"), is_count),
    "best_step": lambda value: value is None or is_count(value),
    **dict.fromkeys(("best", "lowest"), lambda value: value is None or type(value) in (int, float)),
    **dict.fromkeys(("data", "model"), lambda value: isinstance(value, str)),
    "cursor": lambda value: isinstance(value, dict) and all(map(is_count, value.values())),
}


def read_optimizer(path: Path) -> dict[str, Tensor]:
    """The optimizer state, memory-mapped from a file that was just verified; `restore_optimizer` copies it."""
    file = open_checkpoint(path / OPTIMIZER)
    return {name: file.tensor(name, mapped=True) for name in file.names}


def optimizer_tensors(net: Network, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer state as named tensors: "exp_avg.PARAMETER", "exp_avg_sq.PARAMETER", "step.PARAMETER"."""
    names = {id(p): name for name, p in net.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            for key, value in optimizer.state.get(p, {}).items():
                found[f"{key}.{names[id(p)]}"] = torch.as_tensor(value)
    return found


def restore_optimizer(net: Network, optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Load a saved optimizer state, copied into new memory with the parameters' layout: results must not depend on the
    alignment of a mapped file."""
    parameters = dict(net.named_parameters())
    state: dict[Any, dict[str, Tensor]] = {}
    for full, value in saved.items():
        key, _, name = full.partition(".")
        if name not in parameters:
            raise CheckpointError(f"The optimizer state's {full!r} belongs to no parameter of this model.")
        p = parameters[name]
        like = p if value.shape == p.shape else torch.empty(value.shape, device=p.device)
        state.setdefault(p, {})[key] = copy_like(value, like.detach())
    optimizer.state.clear()
    optimizer.state.update(state)


# ── gathering FSDP shards ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class CheckpointParts:
    """The contents of a checkpoint: a function that writes the model, and the optimizer state."""

    write_model: Callable[[Path], None]
    optimizer: dict[str, Tensor]


@contextmanager
def gathered_parts(
    run: Path, net: Network, optimizer: torch.optim.Optimizer, write_model: Callable[..., None], parallel: Parallel
) -> Iterator[CheckpointParts]:
    """Called in every process; in the first one the parts are complete.

    FSDP shards are written by the processes that have them, consolidated on disk and memory-mapped from there, so that no
    process ever has the whole model in memory.
    """
    numbers = optimizer_tensors(net, optimizer)
    if not parallel.shard:
        yield CheckpointParts(write_model, numbers)
        return
    directory = run / ".shards.part"
    try:
        parallel.run_on_first(partial(shutil.rmtree, directory, ignore_errors=True))
        weights = {WEIGHTS + name: p for name, p in net.named_parameters()}
        consolidate_shards(directory, {**weights, **numbers}, parallel)
        if parallel.first:
            whole = open_checkpoint(next(directory.glob("*.safetensors")))
            others = [name for name in whole.names if not name.startswith(WEIGHTS)]
            numbers |= {name: whole.tensor(name, mapped=True) for name in others}
            mapped = {name: whole.tensor(WEIGHTS + name, mapped=True) for name, _ in net.named_parameters()}
            write_model = partial(write_model, net=network_with_weights(net, mapped))
        yield CheckpointParts(write_model, numbers)
    finally:
        if parallel.first:
            shutil.rmtree(directory, ignore_errors=True)


def consolidate_shards(directory: Path, tensors: dict[str, Tensor], parallel: Parallel) -> None:
    """Sharded tensors → one safetensors file, by `torch.distributed.checkpoint`; no pickle is written."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.tensor import DTensor

    sharded = {name: t for name, t in tensors.items() if isinstance(t, DTensor)}
    writer = dcp.HuggingFaceStorageWriter(str(directory), save_distributed=True, enable_consolidation=True)
    try:
        dcp.save(sharded, storage_writer=writer, process_group=parallel.slow_group)
    except CheckpointException as problem:
        rank, (reason, _) = min(problem.failures.items())
        sentence = (
            f"{directory} cannot be written to by process {rank}: {reason}; free disk space or choose another --out."
        )
        raise parallel.report_once(CheckpointError(sentence)) from problem


def network_with_weights(net: Network, weights: Mapping[str, Tensor]) -> Network:
    """The same network with these (memory-mapped) weights; nothing is allocated."""
    with torch.device("meta"):
        other = build(net.spec)
    other.load_state_dict(weights, strict=False, assign=True)
    tie(other, net.spec)
    return other


def sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_tree(path: Path) -> None:
    """fsync every file of a directory, and the directory."""
    for each in sorted(path.rglob("*")):
        flush(each)
    flush(path)


def clear_leftovers(run: Path) -> None:
    """Delete temporary directories that a killed process left."""
    for each in run.glob(".*"):
        if each.name.endswith((".part", ".old")) and each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
