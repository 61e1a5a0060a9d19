"""An opened model → the PyTorch network with its weights: built on the meta device, checked, then filled by tensor."""

import logging
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.errors import CheckpointError
from regard.model.build import Network, blueprint, tie
from regard.model.spec import Spec
from regard.model.weight_map import Plan
from regard.store.open_model import Opened, plan_weights, refuse_if_too_large

log = logging.getLogger("regard")
Progress = Callable[[int, int], None]  # parameters done, parameters in all


def load_network(
    opened: Opened,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    progress: Progress | None = None,
    *,
    mapped: bool = False,
) -> Network:
    """Load the network. mapped: weights that need no conversion stay views of the memory-mapped file."""
    plan, net = plan_weights(opened), blueprint(opened.spec)
    total = sum(p.numel() for p in net.parameters()) * dtype.itemsize
    refuse_if_too_large(opened.path, total, device)
    fill(net, plan, opened, dtype, device, progress, mapped)
    return net.eval().requires_grad_(False)


def fill(
    net: Network,
    plan: Plan,
    opened: Opened,
    dtype: torch.dtype,
    device: str,
    progress: Progress | None,
    mapped: bool,
) -> None:
    shapes = {name: p.shape for name, p in net.named_parameters(remove_duplicate=False)}
    sizes = [sum(shapes[o].numel() for o in move.ours) for move in plan.moves]
    done, suspicious = 0, list[str]()
    for move, size in zip(plan.moves, sizes, strict=True):
        theirs = opened.file.tensor(move.theirs, mapped=mapped)
        if not theirs.is_floating_point():
            format = opened.file.format(move.theirs)
            raise CheckpointError(f"{opened.path}: tensor {move.theirs!r} holds {format}, not floating point.")
        theirs = theirs.to(device=device, dtype=dtype)
        if not torch.isfinite(theirs.sum()) and not torch.isfinite(theirs).all():
            suspicious.append(move.theirs)
        for name, value in zip(move.ours, move.form.load(theirs, [shapes[o] for o in move.ours]), strict=True):
            set_parameter(net, name, value.contiguous())
        done += size
        if progress is not None:
            progress(done, sum(sizes))
    for name in opened.table.zero:
        if name in shapes and name not in {o for move in plan.moves for o in move.ours}:
            set_parameter(net, name, torch.zeros(shapes[name], dtype=dtype, device=device))
    tie_loaded(net, opened.spec)
    if suspicious:
        named = ", ".join(suspicious[:3])
        log.warning("%s: %d tensors hold NaN or infinite weights (%s)", opened.path, len(suspicious), named)


def network_of_arrays(
    spec: Spec, arrays: Mapping[str, NDArray[np.float32]], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Network:
    """The network with these arrays as parameters, sharing their memory if they are float32 on the CPU."""
    net = blueprint(spec)
    for name, X in arrays.items():
        set_parameter(net, name, torch.from_numpy(X).to(device, dtype))
    tie(net, spec)
    return net.eval().requires_grad_(False)


def set_parameter(net: nn.Module, name: str, value: torch.Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(net.get_submodule(path), leaf, nn.Parameter(value, requires_grad=False))


def tie_loaded(net: Network, spec: Spec) -> None:
    """Of each tied group the member that was in the file is loaded; the others become the same object."""
    for group in spec.tied:
        filled = next(name for name in group if not net.get_parameter(name).is_meta)
        set_parameter(net, group[0], net.get_parameter(filled).data)
    tie(net, spec)
