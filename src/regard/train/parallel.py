"""One process or many: who this process is, and what it does together with the others.

Under `torchrun` every process holds the whole network (DDP) or a share of it (FSDP2), takes its part of each batch, and
gradients are combined by PyTorch's own engine. All of them compute, at evaluations too; the first one speaks and writes.
Alone, all of this is nothing.

A process that dies breaks its connections, which the others notice at once; one that hangs is given up after
REGARD_TIMEOUT seconds. While the first one tokenises or saves, the others wait for as long as it takes.
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

PATIENCE = timedelta(days=7)
CPU = torch.device("cpu")
T = TypeVar("T")


@dataclass(frozen=True)
class Parallel:
    rank: int = 0
    world: int = 1
    shard: bool = False
    device: torch.device = CPU
    patient: dist.ProcessGroup | None = None  # the same processes, for waits that may be long

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def wrap(self, module: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """The module through which everything is computed, made to share its gradients, or its weights as well."""
        if self.shard:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(self.device.type, (self.world,))
            for block in blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(module, mesh=mesh)
            return module
        module = module.to(self.device)
        if self.world == 1:
            return module
        return nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)

    @contextmanager
    def gathered(self, module: nn.Module, blocks: Sequence[nn.Module]) -> Iterator[None]:
        """For looking: new tensors are made where the network is, and these blocks, if sharded, are put together once
        instead of at every call. Afterwards nothing of the module is."""
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
        return self._reduced(values, dist.ReduceOp.SUM)

    def most(self, value: float) -> float:
        return self._reduced([value], dist.ReduceOp.MAX)[0]

    def _reduced(self, values: Sequence[float], how: dist.ReduceOp.RedOpType) -> list[float]:
        if self.world == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device="cpu")
        dist.all_reduce(together, how)
        return together.tolist()

    def agree(self, flag: bool) -> bool:
        """True everywhere if it is true anywhere."""
        return bool(self.most(float(flag)))

    def of_first(self, value: float) -> float:
        """The first process's number, in all of them."""
        return self.sum(value if self.first else 0.0)[0]

    def first_does(self, work: Callable[[], T]) -> T:
        """What `work` gives in the first process, in all of them. If it fails there, it is said there alone."""
        if self.world == 1:
            return work()
        result, problem = None, None
        if self.first:
            try:
                result = work()
            except Exception as raised:
                problem = raised
        told: list[Any] = [(result, problem is None)]
        dist.broadcast_object_list(told, src=0, group=self.patient)
        result, well = told[0]
        if problem is not None:
            raise problem
        if not well:
            raise SystemExit(2)
        return result

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier(group=self.patient)

    def found_by_all(self, problem: Exception) -> BaseException:
        """What every process finds alike is said by the first; the others leave without a word."""
        return problem if self.first else SystemExit(2)


@contextmanager
def parallel(shard: bool = False) -> Iterator[Parallel]:
    """Join the other processes if `torchrun` started this one among several. There is a GPU for each, or none."""
    world, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    if world == 1:
        yield Parallel(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return
    backend, device = "gloo", CPU
    if torch.cuda.is_available():
        backend, device = "cpu:gloo,cuda:nccl", torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(backend, timeout=timeout())
        yield Parallel(rank, world, shard, device, dist.new_group(backend="gloo", timeout=PATIENCE))
    except RuntimeError as problem:
        if not is_of_connection(problem):
            raise
        raise TrainingError(
            f"Process {rank} of {world} stops, since another one has died or has not answered within "
            f"{timeout().total_seconds():g} s (REGARD_TIMEOUT); start them all again with --resume."
        ) from problem
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def speaks() -> bool:
    """Whether this process is the first, or alone; known before it joins the others."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


def timeout() -> timedelta:
    said = os.environ.get("REGARD_TIMEOUT", "600")
    if not said.isdecimal() or int(said) < 1:
        raise ConfigError(f"REGARD_TIMEOUT is {said!r}; it must be a whole number of seconds.")
    return timedelta(seconds=int(said))


def is_of_connection(problem: RuntimeError) -> bool:
    """Gloo's errors have no class of their own; they name the file of Gloo that they come from."""
    return isinstance(problem, dist.DistError) or "gloo" in str(problem)


def local(tensor: Tensor) -> Tensor:
    """This process's share of a sharded tensor, the same memory. Others are as they are."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def laid_out(value: Tensor, like: Tensor) -> Tensor:
    """A copy of a whole tensor in memory of its own, as `like` is laid out; of a sharded one, this process's share."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    fresh = torch.empty_like(like)
    if isinstance(like, DTensor):
        value = distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return fresh.copy_(value)
