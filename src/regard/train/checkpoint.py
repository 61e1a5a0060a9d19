"""Checkpoints that survive anything: written aside, checked, renamed; `latest` moves last.

A run's directory holds `checkpoint-N/`, each a model directory that anybody opens, with two files more: the optimiser's
numbers (`optimizer.safetensors`) and where the run stood (`trainer.json`). `checksums.json` has a SHA-256 for every file.
At no moment is there a `checkpoint-N` that is not whole, whatever is killed when. One that was damaged afterwards is passed
over for the one before it and set aside as `checkpoint-N.damaged`; what could not be read is never deleted.

How many processes there were does not show: shards are put together before they are given a name.
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
from regard.model.transformer import Network, build, tie
from regard.modelfile import open_file
from regard.store.atomic import flush, staging
from regard.store.jsonfile import read_json
from regard.store.named import Planned
from regard.store.open import open_model, plan_weights
from regard.store.safetensors import open_checkpoint
from regard.store.safetensors_write import write_file
from regard.train.parallel import Parallel, laid_out

log = logging.getLogger("regard")

NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,17})")
SUMS, OPTIMIZER, TRAINER = "checksums.json", "optimizer.safetensors", "trainer.json"
WEIGHTS = "weights."  # before the names of weights, where they lie beside the optimiser's numbers


@dataclass
class Progress:
    """Where a run stands between two steps: enough to go on as if nothing had happened."""

    step: int = 0
    tokens: int = 0
    cursor: dict[str, int] = field(default_factory=dict)  # of the order of batches
    best: float | None = None  # evaluation of a checkpoint, the lower the better
    best_step: int | None = None
    lowest: float | None = None  # evaluation of all, also of steps that were not saved
    stale: int = 0  # evaluations since the lowest
    data: str = ""  # fingerprints: a run goes on with the data and the model it began with
    model: str = ""


def save(
    run: Path, progress: Progress, write_model: Callable[[Path], None], optimizer: dict[str, Tensor], keep: int
) -> Path:
    """Write `checkpoint-{step}`; then move `latest`; then let go of checkpoints beyond the newest `keep` (and the best)."""
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
        if final.exists():  # a run that was resumed from before this step comes by again
            remove(final)
        os.rename(part, final)
        flush(run)
        point(run, "latest", final.name)
        if progress.best_step == progress.step:
            point(run, "best", final.name)
        forget(run, keep, progress.best_step)
    return final


def planned(name: str, tensor: Tensor) -> Planned:
    return Planned(name, tuple(tensor.shape), "F32", lambda: tensor.detach().float())


def point(run: Path, link: str, name: str) -> None:
    """A symbolic link, replaced in one go."""
    new = run / f".{link}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(name)
    os.replace(new, run / link)
    flush(run)


def forget(run: Path, keep: int, best_step: int | None) -> None:
    kept = steps(run)[:keep]
    for step in steps(run):
        if step not in kept and step != best_step:
            remove(run / f"checkpoint-{step}")


def remove(path: Path) -> None:
    """Never is there a half-deleted checkpoint under its own name."""
    doomed = path.with_name(f".{path.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


# ── which there are, and whether they are whole ─────────────────────────────────────────────────────────────────────


def steps(run: Path) -> list[int]:
    """The checkpoints there are, newest first."""
    return [step for step, path in entries(run) if path.is_dir() and not path.is_symlink()]


def entries(run: Path) -> list[tuple[int, Path]]:
    """What has a checkpoint's name, whatever it is, newest first."""
    found = [(NAME.fullmatch(path.name), path) for path in run.iterdir()] if run.is_dir() else []
    return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)


def newest(run: Path) -> Path | None:
    """The newest checkpoint that is what it was when it was written; damaged ones are passed over loudly."""
    for _, path in entries(run):
        problem = damage(path)
        if problem is None:
            return path
        log.warning("%s is damaged (%s); going back to the one before it", path, problem)
    return None


def go_back_to(run: Path, path: Path) -> None:
    """Make `path` the newest: what is newer could not be read and is set aside, and the links are put right."""
    for step, newer in entries(run):
        if step > int(path.name.rpartition("-")[2]):
            log.warning("%s is now %s", newer, set_aside(newer, "damaged").name)
    best = f"checkpoint-{read_progress(path).best_step}"
    for link, name in (("latest", path.name), ("best", best)):
        if os.path.lexists(run / link) and not (run / link).is_symlink():  # a copy that was made without links
            set_aside(run / link, "damaged")
        if (run / name).is_dir():
            point(run, link, name)
        else:
            (run / link).unlink(missing_ok=True)


def set_aside(path: Path, why: str) -> Path:
    """Keep it under another name: `checkpoint-8.damaged`, or `checkpoint-8.damaged-2` if there is one already."""
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
        lying = {str(p.relative_to(path)) for p in path.rglob("*") if not p.is_dir() and not p.name.startswith(".")}
        if odd := sorted(lying ^ {*sums, SUMS}):
            return f"{odd[0]} is missing" if odd[0] in sums else f"{odd[0]} was not saved with it"
        for name, expected in sums.items():
            regular = (path / name).is_file() and not (path / name).is_symlink()  # a named pipe would be waited for
            if not regular or sha256(path / name) != expected:
                return f"{name} has changed"
        if not {OPTIMIZER, TRAINER, "config.json"} <= set(sums):
            return f"{SUMS} is incomplete"
        if f"checkpoint-{read_progress(path).step}" != path.name:
            return f"{TRAINER} is of another step"
        plan_weights(open_model(path))
        open_checkpoint(path / OPTIMIZER)
    except Exception as problem:  # whatever it is, there may be one before it
        return str(problem) or type(problem).__name__
    return None


def read_progress(path: Path) -> Progress:
    said = read_json(path / TRAINER, "the run's progress")
    try:
        progress = Progress(**said)
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
    """As they lie in the file, which has just been checked; who takes over its share copies that."""
    file = open_checkpoint(path / OPTIMIZER)
    return {name: file.tensor(name, mapped=True) for name in file.names}


def optimizer_tensors(net: Network, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's numbers by the names of the parameters they belong to."""
    names = {id(p): name for name, p in net.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            for key, value in optimizer.state.get(p, {}).items():
                found[f"{key}.{names[id(p)]}"] = torch.as_tensor(value)
    return found


def restore_optimizer(net: Network, optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Fresh tensors, laid out as the parameters are: results must not depend on where a file was mapped."""
    parameters = dict(net.named_parameters())
    state: dict[Any, dict[str, Tensor]] = {}
    for full, value in saved.items():
        key, _, name = full.partition(".")
        if name not in parameters:
            raise CheckpointError(f"The optimiser's {full!r} belongs to no parameter of this model.")
        p = parameters[name]
        like = p if value.shape == p.shape else torch.empty(value.shape, device=p.device)
        state.setdefault(p, {})[key] = laid_out(value, like.detach())
    optimizer.state.clear()
    optimizer.state.update(state)


# ── what one process writes for all ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class Held:
    """What a checkpoint is made of: how to write the model, and the optimiser's numbers."""

    write_model: Callable[[Path], None]
    optimizer: dict[str, Tensor]


@contextmanager
def held(
    run: Path, net: Network, optimizer: torch.optim.Optimizer, write_model: Callable[..., None], together: Parallel
) -> Iterator[Held]:
    """Every process asks for it, and the first gets it whole.

    Shards are written by the processes that hold them, put together on the disk and mapped from there, so that nobody ever
    has the whole in memory.
    """
    numbers = optimizer_tensors(net, optimizer)
    if not together.shard:
        yield Held(write_model, numbers)
        return
    place = run / ".shards.part"
    try:
        together.first_does(partial(shutil.rmtree, place, ignore_errors=True))
        weights = {WEIGHTS + name: p for name, p in net.named_parameters()}
        put_together(place, {**weights, **numbers}, together)
        if together.first:
            whole = open_checkpoint(next(place.glob("*.safetensors")))
            others = [name for name in whole.names if not name.startswith(WEIGHTS)]
            numbers |= {name: whole.tensor(name, mapped=True) for name in others}
            mapped = {name: whole.tensor(WEIGHTS + name, mapped=True) for name, _ in net.named_parameters()}
            write_model = partial(write_model, net=network_of(net, mapped))
        yield Held(write_model, numbers)
    finally:
        if together.first:
            shutil.rmtree(place, ignore_errors=True)


def put_together(place: Path, tensors: dict[str, Tensor], together: Parallel) -> None:
    """Sharded tensors → one safetensors file, by PyTorch's distributed checkpoints; no pickle is written."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.tensor import DTensor

    sharded = {name: t for name, t in tensors.items() if isinstance(t, DTensor)}
    writer = dcp.HuggingFaceStorageWriter(str(place), save_distributed=True, enable_consolidation=True)
    try:
        dcp.save(sharded, storage_writer=writer, process_group=together.patient)
    except CheckpointException as problem:
        rank, (reason, _) = min(problem.failures.items())
        sentence = f"{place} cannot be written to by process {rank}: {reason}; choose another place or make room."
        raise together.found_by_all(CheckpointError(sentence)) from problem


def network_of(net: Network, weights: Mapping[str, Tensor]) -> Network:
    """The same network with these weights, in no memory of its own."""
    with torch.device("meta"):
        other = build(net.spec)
    other.load_state_dict(weights, strict=False, assign=True)
    tie(other, net.spec)
    return other


def sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_tree(path: Path) -> None:
    for each in sorted(path.rglob("*")):
        flush(each)
    flush(path)


def clear_leftovers(run: Path) -> None:
    """What a killed process left half-written."""
    for each in run.glob(".*"):
        if each.name.endswith((".part", ".old")) and each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
