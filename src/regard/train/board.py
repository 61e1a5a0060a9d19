"""A run's numbers for TensorBoard, where that is installed: `tensorboard --logdir RUN/board`. Elsewhere, nothing.

In: the events of a run as they are told. Out: the same events, and scalars in `RUN/board/`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Tell = Callable[[dict[str, Any]], None]

SCALARS = ("loss", "lr", "grad_norm", "rate", "memory")


@contextmanager
def board(run: Path, tell: Tell, first: bool = True) -> Iterator[Tell]:
    """`tell`, with what is logged shown on the board too, by the first of several processes. A run that goes on takes back
    what it had shown beyond its step."""
    writer_of = writer_class() if first else None
    if writer_of is None:
        yield tell
        return
    writers = list[Any]()

    def shown(event: dict[str, Any]) -> None:
        tell(event)
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
    """`train/loss`, …, `eval/chrf`, … and, of every head looked at, `entropy/decoder.0.attend/3`."""
    found = {f"train/{name}": event[name] for name in SCALARS if name in event}
    found |= {f"eval/{name}": value for name, value in event.get("eval", {}).items()}
    for site, heads in event.get("entropy", {}).items():
        found |= {f"entropy/{site}/{head}": value for head, value in enumerate(heads)}
    return found
