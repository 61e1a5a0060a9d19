"""Data parallel training: DDP and FSDP over the processes that `torchrun` started, and their collective operations.

In: torchrun's environment variables (RANK, WORLD_SIZE, …). Out: `Parallel`, this process's rank and what it does together
with the others. Every process stores the whole network (DDP) or a shard of it (FSDP2, `--shard`) and computes its part of
each batch; PyTorch combines the gradients. All processes also compute evaluations; only the first one (rank 0) prints and
writes files. With one process every operation here is the identity.

A process that dies breaks its connections, which the others notice at once; one that hangs is given up after
REGARD_TIMEOUT seconds. While the first one tokenises or saves, the others wait without that limit.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

SLOW_TIMEOUT = timedelta(days=7)
CPU = torch.device("cpu")
T = TypeVar("T")


@dataclass(frozen=True)
class Parallel:
    """This process's place among those that train together, and their collective operations."""

    rank: int = 0
    world_size: int = 1
    shard: bool = False  # FSDP2 instead of DDP
    device: torch.device = CPU
    slow_group: dist.ProcessGroup | None = None  # the same processes, with a timeout for long waits

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which prints and writes files for all."""
        return self.rank == 0

    def wrap(self, module: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """The module wrapped in DDP (gradients are all-reduced) or, with `shard`, FSDP2 (weights are sharded too)."""
        if self.shard:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(self.device.type, (self.world_size,))
            for block in blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(module, mesh=mesh)
            return module
        module = module.to(self.device)
        if self.world_size == 1:
            return module
        return nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)

    @contextmanager
    def unsharded(self, module: nn.Module, blocks: Sequence[nn.Module]) -> Iterator[None]:
        """For evaluation: new tensors are made on the network's device, and these blocks, under FSDP, are all-gathered
        once instead of at every call. Afterwards all of the module is sharded again."""
        shards = cast("list[FSDPModule]", blocks if self.shard else [])
        for block in shards:
            block.set_reshard_after_forward(False)
            block.unshard()
        with nullcontext() if self.device.type == "cpu" else self.device:
            yield
        for block in shards:
            block.set_reshard_after_forward(True)
            block.reshard()
        if self.shard:
            cast("FSDPModule", module).reshard()

    def sum(self, *values: float) -> list[float]:
        """The sums of these numbers over all processes."""
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def max(self, value: float) -> float:
        """The largest of this number over all processes."""
        return self._all_reduce([value], dist.ReduceOp.MAX)[0]

    def _all_reduce(self, values: Sequence[float], how: dist.ReduceOp.RedOpType) -> list[float]:
        if self.world_size == 1:
            return list(values)
        reduced = torch.tensor(values, dtype=torch.float64, device="cpu")
        dist.all_reduce(reduced, how)
        return reduced.tolist()

    def any(self, flag: bool) -> bool:
        """In all processes: whether the flag is true in any of them."""
        return bool(self.max(float(flag)))

    def broadcast_first(self, value: float) -> float:
        """The first process's number, in all of them."""
        return self.sum(value if self.first else 0.0)[0]

    def run_on_first(self, work: Callable[[], T]) -> T:
        """Run `work` in the first process and return its result in all of them. If it raises, the first process raises the
        error and the others exit silently."""
        if self.world_size == 1:
            return work()
        result, problem = None, None
        if self.first:
            try:
                result = work()
            except Exception as raised:
                problem = raised
        message: list[Any] = [(result, problem is None)]
        dist.broadcast_object_list(message, src=0, group=self.slow_group)
        result, succeeded = message[0]
        if problem is not None:
            raise problem
        if not succeeded:
            raise SystemExit(2)
        return result

    def barrier(self) -> None:
        """Wait until all processes have come here."""
        if self.world_size > 1:
            dist.barrier(group=self.slow_group)

    def report_once(self, problem: Exception) -> BaseException:
        """The exception to raise for an error that occurs in every process: the first reports it, the others exit
        silently."""
        return problem if self.first else SystemExit(2)


@contextmanager
def data_parallel(shard: bool = False) -> Iterator[Parallel]:
    """Join the process group if `torchrun` started this process as one of several. Each has a GPU, or none has."""
    world_size, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    if world_size == 1:
        yield Parallel(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return
    backend, device = "gloo", CPU
    if torch.cuda.is_available():
        backend, device = "cpu:gloo,cuda:nccl", torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(backend, timeout=timeout())
        yield Parallel(rank, world_size, shard, device, dist.new_group(backend="gloo", timeout=SLOW_TIMEOUT))
    except RuntimeError as problem:
        if not is_connection_error(problem):
            raise
        raise TrainingError(
            f"Process {rank} of {world_size} stops, since another one has died or did not respond within "
            f"{timeout().total_seconds():g} s (REGARD_TIMEOUT); start them all again with --resume."
        ) from problem
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def is_first_process() -> bool:
    """Whether this process is rank 0 or the only one; known before the process group is joined."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def timeout() -> timedelta:
    """After how long a collective operation gives up on a process that hangs."""
    seconds = os.environ.get("REGARD_TIMEOUT", "600")
    if not seconds.isdecimal() or int(seconds) < 1:
        raise ConfigError(f"REGARD_TIMEOUT is {seconds!r}; it must be a whole number of seconds.")
    return timedelta(seconds=int(seconds))


def is_connection_error(problem: RuntimeError) -> bool:
    """Whether the error is about a lost process. Gloo's errors have no class of their own, but name Gloo's source file."""
    return isinstance(problem, dist.DistError) or "gloo" in str(problem)


def local_shard(tensor: Tensor) -> Tensor:
    """This process's shard of a DTensor, sharing its memory; any other tensor itself."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def copy_like(value: Tensor, like: Tensor) -> Tensor:
    """A copy of a whole tensor in new memory, with the device, memory layout and sharding of `like`."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    fresh = torch.empty_like(like)
    if isinstance(like, DTensor):
        value = distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return fresh.copy_(value)
