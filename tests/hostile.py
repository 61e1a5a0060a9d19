"""What the tests of bad files share: a person's first steps with a model, and a watch on time and memory."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import regard
from regard.errors import RegardError


@contextmanager
def cheap(seconds: float = 2.0, megabytes: int = 100) -> Iterator[None]:
    """Fails if what happens inside takes long, or if the memory of the process peaks far above where it was."""
    start, before = time.process_time(), _memory("VmRSS")  # of this process alone: others may be busy
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        measured = True
    except OSError:
        measured = False  # not Linux: time alone
    yield
    assert time.process_time() - start < seconds
    if measured:
        assert _memory("VmHWM") - before < megabytes << 10


def _memory(key: str) -> int:
    """In kilobytes, from Linux's account of this process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(key)), 0)


def use(model: regard.Model) -> None:
    """What a person does first: look at it, run it alone and in a batch, have it write."""
    repr(model)
    target = [torch.tensor([[3, 4]])] if model.spec.kind == "encoder-decoder" else []
    model(torch.tensor([[3, 4, 5]]), *target)
    model([[3, 4, 5], [3]], *([[[3, 4], [3]]] if target else []))
    if model.spec.head.kind == "lm":
        model.answers([3, 4, 5], max_new_tokens=2)


def refusal(path: Path) -> str:
    """Load and use what is there: the sentence it is refused with, or "" if all went well. Nothing else may happen."""
    with cheap(seconds=5):
        try:
            use(regard.load(path))
        except RegardError as refused:
            said = str(refused)
        else:
            said = ""
    assert len(said) < 1000 + len(str(path))
    assert "\n" not in said
    return said
