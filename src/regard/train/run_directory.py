"""The directory of a run: its lock, its recorded settings, and the checkpoint to resume from.

In: settings, and whether to resume. Out: the effective settings, and the checkpoint to resume from. A run that cannot be
resumed, or would overwrite another, is refused before anything on the disk has changed.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from regard.errors import TrainingError
from regard.store.atomic_write import replace_file
from regard.train import checkpoint
from regard.train.metrics import METRICS, trim_metrics
from regard.train.network_sizes import FROM_MODEL, effective_settings
from regard.train.parallel import Parallel
from regard.train.settings import TrainSettings, changed_settings, settings_from

try:
    import fcntl
except ImportError:  # Windows has no such locks; two processes must not train in one directory there
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("regard")

SETTINGS, LOCK = "run.toml", "run.lock"
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some network file systems

# Settings that may change when a run is resumed
MAY_CHANGE = {"out", "max_steps", "epochs", "log_steps", "eval_steps", "save_steps", "save_total_limit", "patience"}
MAY_CHANGE |= {"probes", "probe_steps", "threads", "data", "eval_data", "shard", "compile", "checkpoint_activations"}
MAY_CHANGE |= {"accumulate"}  # with another number of processes, other micro-batches may be needed


# ── one process at a time ───────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def lock_run(run: Path, parallel: Parallel) -> Iterator[None]:
    """Lock the run's directory; of processes that train together the first has the lock for all."""
    with ExitStack() as held:

        def lock() -> None:
            held.enter_context(locked(run))

        parallel.run_on_first(lock)
        yield


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Lock a run's directory. The operating system releases the lock when its process ends, however it ends. Afterwards
    the lock file is deleted, and so is the directory if it was made here and is still empty."""
    existed = run.exists()
    try:
        run.mkdir(parents=True, exist_ok=True)
        handle = lock_file(run / LOCK)
    except OSError as problem:
        raise TrainingError(f"{run} cannot be written to: {problem.strerror}; choose another --out.") from problem
    try:
        yield
    finally:
        (run / LOCK).unlink(missing_ok=True)  # before it is unlocked: `lock_file` checks that the file still exists
        os.close(handle)
        if not existed and not any(run.iterdir()):
            run.rmdir()


def lock_file(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            sentence = f"Another process is training in {path.parent}; wait until it ends, or choose another --out."
            raise TrainingError(sentence) from None
        except OSError as problem:
            if problem.errno in WITHOUT_LOCKS:
                log.warning("%s cannot be locked (%s): run no other training in it", path.parent, problem.strerror)
                return handle
            os.close(handle)
            raise
        os.close(handle)  # deleted by the process that had the lock and just ended: try again


# ── new or resumed ──────────────────────────────────────────────────────────────────────────────────────────────────


def open_run(
    settings: TrainSettings, resume: bool, notify: Callable[[str], None] = lambda sentence: None
) -> tuple[TrainSettings, Path | None]:
    """The effective settings, and the checkpoint to resume from, if `resume`. Nothing is written yet."""
    run = settings.run
    last_checkpoint = checkpoint_to_resume(run) if resume else None
    if not resume and (held := existing_run(run)):
        raise TrainingError(
            f"{run} already has a run in it ({held}); continue it with --resume, choose another --out, or delete it."
        )
    for name in (METRICS, SETTINGS):
        if os.path.lexists(run / name) and not (run / name).is_file():
            raise TrainingError(f"{run / name} is not a file, so it cannot be written to; remove it.")
    if last_checkpoint is not None:
        settings = resumed_settings(run, settings, notify)
    else:
        settings = effective_settings(settings, notify)
    checkpoint.clear_leftovers(run)
    return settings, last_checkpoint


def begin_run(settings: TrainSettings, last_checkpoint: Path | None, step: int) -> None:
    """Prepare the directory for a run that begins, or resumes at this step: checkpoints, metrics and `run.toml`."""
    run = settings.run
    if last_checkpoint is not None:
        checkpoint.roll_back_to(run, last_checkpoint)
        trim_metrics(run, step)
    elif (run / METRICS).exists():  # of an earlier run that ended before its first checkpoint
        checkpoint.set_aside(run / METRICS, "old")
    with replace_file(run / SETTINGS) as file:
        file.write(settings.as_toml().encode())


def checkpoint_to_resume(run: Path) -> Path:
    last_checkpoint = checkpoint.newest(run)
    if last_checkpoint is None:
        damaged = ", ".join(path.name for _, path in checkpoint.entries(run)[:3])
        why = f"all are damaged ({damaged} …)" if damaged else "there is none"
        raise TrainingError(f"{run} has no checkpoint to resume from: {why}; nothing was changed.")
    return last_checkpoint


def existing_run(run: Path) -> str | None:
    """The name of a checkpoint or link in the directory, damaged or not; None if there is none."""
    names = [path.name for _, path in checkpoint.entries(run)] + ["latest", "best"]
    return next((name for name in names if os.path.lexists(run / name)), None)


def resumed_settings(run: Path, settings: TrainSettings, notify: Callable[[str], None]) -> TrainSettings:
    """The settings of a resumed run, checked against its `run.toml`: only those in MAY_CHANGE may differ. The model that it
    began from (`--from`) need not exist any more."""
    path = run / SETTINGS
    if not path.exists():
        return effective_settings(settings, notify)
    old = settings_from(settings.task, {}, path, {})
    unset = [name for name in FROM_MODEL if settings.start is not None and getattr(settings, name) is None]
    settings = replace(settings, **{name: getattr(old, name) for name in unset})
    changed = changed_settings(old, settings, MAY_CHANGE)
    if changed:
        raise TrainingError(
            f"{run} was begun with other settings ({', '.join(changed)}), so it cannot be resumed with these; "
            "choose another --out, or --from this run to begin a new one with its weights."
        )
    return settings
