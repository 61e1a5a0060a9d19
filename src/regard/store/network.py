"""An opened model → the network with its weights: built without numbers, checked, then filled tensor by tensor."""

import logging
from collections.abc import Callable

import torch
from torch import nn

from regard.errors import CheckpointError
from regard.model.spec import Spec
from regard.model.transformer import Network, blueprint, tie
from regard.model.weightmap import Plan
from regard.store.open import Opened, plan_weights, refuse_if_too_large

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
    """mapped: numbers that need not be changed stay in the file, for who takes only a part of them from there at once."""
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
            raise CheckpointError(f"{opened.path}: tensor {move.theirs!r} holds {theirs.dtype}, not floating point.")
        theirs = theirs.to(device=device, dtype=dtype)
        if not torch.isfinite(theirs.sum()) and not torch.isfinite(theirs).all():
            suspicious.append(move.theirs)
        for name, value in zip(move.ours, move.form.load(theirs, [shapes[o] for o in move.ours]), strict=True):
            put(net, name, value.contiguous())
        done += size
        if progress is not None:
            progress(done, sum(sizes))
    for name in opened.table.zero:
        if name in shapes and name not in {o for move in plan.moves for o in move.ours}:
            put(net, name, torch.zeros(shapes[name], dtype=dtype, device=device))
    share_loaded(net, opened.spec)
    if suspicious:
        named = ", ".join(suspicious[:3])
        log.warning("%s: %d tensors hold NaN or infinite weights (%s)", opened.path, len(suspicious), named)


def put(net: nn.Module, name: str, value: torch.Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(net.get_submodule(path), leaf, nn.Parameter(value, requires_grad=False))


def share_loaded(net: Network, spec: Spec) -> None:
    """Of each tied group the member that was in the file is loaded; the others become the same object."""
    for group in spec.tied:
        filled = next(name for name in group if not net.get_parameter(name).is_meta)
        put(net, group[0], net.get_parameter(filled).data)
    tie(net, spec)
