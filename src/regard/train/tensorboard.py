"""A run's metrics for TensorBoard, if that is installed: `tensorboard --logdir RUN/board`. Otherwise nothing is written.

In: the training callback and its events. Out: the same events, and scalars in `RUN/board/`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Callback = Callable[[dict[str, Any]], None]

SCALARS = ("loss", "lr", "grad_norm", "rate", "memory")


@contextmanager
def board(run: Path, callback: Callback, first: bool = True) -> Iterator[Callback]:
    """A callback that calls `callback` and writes logged scalars for TensorBoard, in the first process. A resumed run
    purges what was written beyond its step."""
    writer_of = writer_class() if first else None
    if writer_of is None:
        yield callback
        return
    writers = list[Any]()

    def shown(event: dict[str, Any]) -> None:
        callback(event)
        if event["kind"] == "log":
            if not writers:
                writers.append(writer_of(str(run / "board"), purge_step=event["step"]))
            for name, value in scalars(event).items():
                writers[0].add_scalar(name, value, event["step"])

    try:
        yield shown
    finally:
        for writer in writers:
            writer.close()


def writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter


def scalars(event: Mapping[str, Any]) -> dict[str, float]:
    """`train/loss`, …, `eval/chrf`, … and, for every head of the probes, `entropy/decoder.0.attend/3`."""
    found = {f"train/{name}": event[name] for name in SCALARS if name in event}
    found |= {f"eval/{name}": value for name, value in event.get("eval", {}).items()}
    for site, heads in event.get("entropy", {}).items():
        found |= {f"entropy/{site}/{head}": value for head, value in enumerate(heads)}
    return found
