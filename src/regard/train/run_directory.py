"""The directory of a run: who may train in it, and what is in it already.

In: settings, and whether a run is to go on. Out: the settings as they are in effect, and the checkpoint to go on from. What
cannot go on, or would take the place of another run, is refused before anything on the disk has changed.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from regard.errors import TrainingError
from regard.store.atomic import replace_file
from regard.train import checkpoint
from regard.train.metrics import METRICS, trim_metrics
from regard.train.network_sizes import SETTLED, settled
from regard.train.parallel import Parallel
from regard.train.settings import TrainSettings, same_but, settings_from

try:
    import fcntl
except ImportError:  # Windows has no such locks; two processes must not train in one directory there
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("regard")

SETTINGS, LOCK = "run.toml", "run.lock"
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some network file systems

# What may differ between a run and its continuation
FREE = {"out", "max_steps", "epochs", "log_steps", "eval_steps", "save_steps", "save_total_limit", "patience"}
FREE |= {"probes", "probe_steps", "threads", "data", "eval_data", "shard", "compile", "checkpoint_activations"}
FREE |= {"accumulate"}  # with more or fewer processes, a step may have to be computed in other parts


# ── one process at a time ───────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def alone_in(run: Path, together: Parallel) -> Iterator[None]:
    """Of processes that train together the first holds the lock for all."""
    with ExitStack() as held:

        def lock() -> None:
            held.enter_context(locked(run))

        together.first_does(lock)
        yield


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """The lock ends with the process that holds it, however that ends. Its file is gone afterwards, and so is the
    directory if it was made for nothing."""
    existed = run.exists()
    try:
        run.mkdir(parents=True, exist_ok=True)
        handle = lock_file(run / LOCK)
    except OSError as problem:
        raise TrainingError(f"{run} cannot be written to: {problem.strerror}; choose another --out.") from problem
    try:
        yield
    finally:
        (run / LOCK).unlink(missing_ok=True)  # while it is held: who waits in `lock_file` looks again
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
            sentence = f"Another process trains in {path.parent}; wait until it has ended, or choose another --out."
            raise TrainingError(sentence) from None
        except OSError as problem:
            if problem.errno in WITHOUT_LOCKS:
                log.warning("%s cannot be locked (%s); let no other process train there", path.parent, problem.strerror)
                return handle
            os.close(handle)
            raise
        os.close(handle)  # its holder has just ended and removed it


# ── what is there ───────────────────────────────────────────────────────────────────────────────────────────────────


def entered(
    settings: TrainSettings, resume: bool, say: Callable[[str], None] = lambda sentence: None
) -> tuple[TrainSettings, Path | None]:
    """The settings in effect, and where the run goes on from, if it does. Nothing is written yet."""
    run = settings.run
    before = checkpoint_to_resume(run) if resume else None
    if not resume and (held := what_is_held(run)):
        raise TrainingError(
            f"{run} already holds a run ({held}); go on with it by --resume, choose another --out, or remove it."
        )
    for name in (METRICS, SETTINGS):
        if os.path.lexists(run / name) and not (run / name).is_file():
            raise TrainingError(f"{run / name} is not a file, so it cannot be written to; remove it.")
    settings = recorded(run, settings, say) if before is not None else settled(settings, say)
    checkpoint.clear_leftovers(run)
    return settings, before


def taken_over(settings: TrainSettings, before: Path | None, step: int) -> None:
    """The run begins, or goes on from this step: from here on the directory is its own."""
    run = settings.run
    if before is not None:
        checkpoint.go_back_to(run, before)
        trim_metrics(run, step)
    elif (run / METRICS).exists():  # of a run that ended before its first checkpoint
        checkpoint.set_aside(run / METRICS, "old")
    with replace_file(run / SETTINGS) as file:
        file.write(settings.as_toml().encode())


def checkpoint_to_resume(run: Path) -> Path:
    before = checkpoint.newest(run)
    if before is None:
        damaged = ", ".join(path.name for _, path in checkpoint.entries(run)[:3])
        why = f"all are damaged ({damaged} …)" if damaged else "there is none"
        raise TrainingError(f"{run} holds no checkpoint to resume from: {why}; nothing was changed.")
    return before


def what_is_held(run: Path) -> str | None:
    """A sign of a run that has saved something, readable or not."""
    names = [path.name for _, path in checkpoint.entries(run)] + ["latest", "best"]
    return next((name for name in names if os.path.lexists(run / name)), None)


def recorded(run: Path, settings: TrainSettings, say: Callable[[str], None]) -> TrainSettings:
    """The settings with which a run goes on: as they were recorded, but for those that may change. The model that it was
    begun from need not be there any more."""
    path = run / SETTINGS
    if not path.exists():
        return settled(settings, say)
    old = settings_from(settings.task, {}, path, {})
    unsaid = [name for name in SETTLED if settings.start is not None and getattr(settings, name) is None]
    settings = replace(settings, **{name: getattr(old, name) for name in unsaid})
    changed = same_but(old, settings, FREE)
    if changed:
        raise TrainingError(
            f"{run} was begun with other settings ({', '.join(changed)}), so it cannot go on with these; "
            "choose another --out, or --from this run to start anew from its weights."
        )
    return settings
