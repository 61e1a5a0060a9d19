"""A spec becomes a network of PyTorch modules: `build(spec)`."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.model.module import as_module
from regard.model.reference import Network, Seq2Seq
from regard.model.registry import network
from regard.model.spec import Spec
from regard.nn.part import Part

__all__ = ["Network", "Seq2Seq", "arrays_of", "blueprint", "build", "module_of", "parameters_of", "tie"]


def build(spec: Spec) -> Network:
    """The network as a module, on the current default device."""
    net = as_module(network(spec))
    tie(net, spec)
    return net


def blueprint(spec: Spec) -> Network:
    """The network on PyTorch's meta device: modules and shapes, no memory for weights."""
    with torch.device("meta"):
        return build(spec)


def tie(net: nn.Module, spec: Spec) -> None:
    """Make tied parameters the same object."""
    for first, *others in spec.tied:
        for other in others:
            path, _, leaf = other.rpartition(".")
            setattr(net.get_submodule(path), leaf, net.get_parameter(first))


def module_of(part: Part) -> Network:
    """A network on numpy arrays as an nn.Module that shares their memory, for gradients."""
    net, spec = blueprint(part.spec), part.spec
    for name, _ in net.named_parameters(remove_duplicate=False):
        path, _, leaf = name.rpartition(".")
        setattr(net.get_submodule(path), leaf, nn.Parameter(torch.from_numpy(part.get(name)), requires_grad=False))
    tie(net, spec)
    return net.eval()


def parameters_of(net: nn.Module) -> dict[str, nn.Parameter]:
    """A module's parameters under each of their names: tied ones are listed twice."""
    return dict(net.named_parameters(remove_duplicate=False))


def arrays_of(net: nn.Module) -> dict[str, NDArray[np.float32]]:
    """A module's parameters as float32 numpy arrays, sharing memory where they are float32 on the CPU already."""
    return {name: p.detach().to("cpu", torch.float32).numpy() for name, p in parameters_of(net).items()}
