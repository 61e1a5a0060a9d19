"""One process or many: who this process is, and what it does together with the others.

Under `torchrun` every process holds the whole network (DDP) or a share of it (FSDP2), takes its part of each batch, and
gradients are combined by PyTorch's own engine. Alone, all of this is nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

TIMEOUT = timedelta(seconds=int(os.environ.get("REGARD_TIMEOUT", "600")))


@dataclass(frozen=True)
class Parallel:
    rank: int = 0
    world: int = 1
    shard: bool = False

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def wrap(self, module: nn.Module, blocks: list[nn.Module]) -> nn.Module:
        """The module whose forward computes a loss, made to share its gradients (and its weights, when sharding)."""
        if self.world == 1:
            return module
        if self.shard:
            from torch.distributed.fsdp import fully_shard

            for block in blocks:
                fully_shard(block)
            fully_shard(module)
            return module
        return nn.parallel.DistributedDataParallel(module)

    def sum(self, *values: float) -> list[float]:
        """The sums of these numbers over all processes."""
        if self.world == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(together)
        return together.tolist()

    def agree(self, flag: bool) -> bool:
        """True everywhere if it is true anywhere."""
        return bool(self.sum(float(flag))[0])

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


@contextmanager
def parallel(shard: bool = False) -> Iterator[Parallel]:
    """Join the other processes if `torchrun` started this one among several."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Parallel()
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    try:
        yield Parallel(dist.get_rank(), world, shard)
    finally:
        dist.destroy_process_group()


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor put together; every process must ask for it. Others are as they are."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
