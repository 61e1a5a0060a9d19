"""Several processes that train together, forked so that they start at once, as `torchrun` would start them."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot  # noqa: F401  what every process would import is imported once, here
import torch._dynamo
import torch.distributed.checkpoint
import torch.distributed.fsdp  # noqa: F401

import regard.api
import regard.cli.main
import regard.train.training_run

TIMEOUT = 60  # seconds after which a test has failed anyway


def start(world: int, work: Callable[[int], object], folder: Path, timeout: int = TIMEOUT) -> list[int]:
    """The ids of processes that do `work(rank)` together; what they say goes to `folder/rank-N.txt`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [started(rank, world, port, work, folder, timeout) for rank in range(world)]


def started(rank: int, world: int, port: int, work: Callable[[int], object], folder: Path, timeout: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        said = os.open(folder / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1) for n in (1, 2))
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "REGARD_TIMEOUT": str(timeout)}
        work(rank)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pids: Sequence[int]) -> list[int]:
    """Their exit codes; a negative one is the signal that ended it."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def said(folder: Path, world: int = 2) -> list[str]:
    return [(folder / f"rank-{rank}.txt").read_text() for rank in range(world)]


def command(*arguments: object) -> None:
    """`regard …`, in this process."""
    sys.argv = ["regard", *map(str, arguments)]
    regard.cli.main.run()
