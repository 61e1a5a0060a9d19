"""Parts as PyTorch modules: for training, gradients and GPUs.

`as_module(part)` is the same part as an `nn.Module`: declared weights become parameters of the same names, parts become
submodules, and the forward is the part's. Faster implementations (fused kernels) replace methods of parts here, from
outside (`SWAPS`); tests/laws prove each equal to the definition.
"""

import functools
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.model.fused import fused
from regard.model.products import FusedProjection, store_transposed, suits, transposed_product, unembedded
from regard.nn import operations
from regard.nn.attention import Heads, MultiHead
from regard.nn.embed import Unembed
from regard.nn.linear import Linear, Projection
from regard.nn.mask import Mask
from regard.nn.mlp import GatedMLP
from regard.nn.norm import LayerNorm
from regard.nn.part import Dropout, Part, Weight, fill
from regard.nn.position import Rotary
from regard.nn.see import call_observed, current_observer, set_compiler_check, watched

set_compiler_check(torch.compiler.is_compiling)
P = TypeVar("P", bound=Part)


class Module(nn.Module):
    """A module that knows its path in the network, so that what `see` reports inside it has a full name."""

    place = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        observer = current_observer()
        if observer is None:
            return super().__call__(*args, **kwargs)
        # not super().__call__, which would run the compiled forward after `compile`
        return call_observed(observer, self.place, self._call_impl, *args, **kwargs)


# ── swaps: methods of parts with faster equivalents in PyTorch ────────────────────────────────────────────────────────


class TrainingDropout:
    def forward(self: Any, X: Tensor) -> Tensor:
        return F.dropout(X, self.p) if self.training and self.p else X


class TransposedLinear:
    def forward(self: Any, X: Tensor) -> Tensor:
        product = transposed_product if suits(X, self.weight) else F.linear
        return product(X, self.weight, self.bias)


class PlainLinear:
    """F.linear always: the result is split into heads, which the attention kernel reads fastest in row-major layout."""

    def forward(self: Any, X: Tensor) -> Tensor:
        return F.linear(X, self.weight, self.bias)


class ChunkedUnembed:
    def forward(self: Any, X: Tensor) -> Tensor:
        return unembedded(X, self.weight, self.bias)


class FusedLayerNorm:
    def forward(self: Any, X: Tensor) -> Tensor:
        if watched():
            defined: Tensor = super().forward(X)  # type: ignore[misc]
            return defined
        return F.layer_norm(X, (self.d,), self.weight, self.bias, self.eps)


class FusedAttention:
    def attend(self: Any, Q: Tensor, K: Tensor, V: Tensor, by: Mask) -> Tensor:
        if watched():
            defined: Tensor = super().attend(Q, K, V, by)  # type: ignore[misc]
            return defined
        dropout = self.dropout.p if self.training else 0.0
        return fused(Q, K, V, by, scale=self.scale, dropout=dropout, training=self.training)


class TorchFrequencies:
    def frequencies(self: Any) -> Any:
        """By the same operations as `transformers`, so that logits can be compared bit for bit. The last bit of the power
        depends on the processor."""
        exponent = torch.arange(0, self.dims, 2, dtype=torch.float32, device="cpu") / self.dims
        frequency = (1.0 / self.theta**exponent).numpy()
        return frequency if self.scaling is None else self.scaling.apply(frequency)


class Packed:
    """Linear maps of the same input, computed as one product once `pack` has concatenated their weights."""

    packed: FusedProjection | None = None
    together: tuple[str, ...]

    def pack(self) -> None:
        self.packed = FusedProjection(*(getattr(self, name) for name in self.together))

    def project(self: Any, X: Tensor) -> tuple[Tensor, ...]:
        if self.packed is not None and self.packed.suits(X):
            return self.packed(X)
        each: tuple[Tensor, ...] = super().project(X)  # type: ignore[misc]
        return each


class PackedHeads(Packed):
    together = ("W_q", "W_k", "W_v")


class PackedGate(Packed):
    together = ("gate", "up")


SWAPS: dict[type[Part], type] = {
    Dropout: TrainingDropout,
    Unembed: ChunkedUnembed,
    Projection: PlainLinear,
    Linear: TransposedLinear,
    LayerNorm: FusedLayerNorm,
    MultiHead: PackedHeads,
    Heads: FusedAttention,
    GatedMLP: PackedGate,
    Rotary: TorchFrequencies,
}
ACTIVATIONS: dict[str, Any] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": Tensor.tanh,
    "sigmoid": Tensor.sigmoid,
}


def normalised(X: Tensor, spread: Tensor, mean: Tensor | None = None, *, eps: float) -> Tensor:
    return X * torch.rsqrt(spread + eps) if mean is None else (X - mean) / torch.sqrt(spread + eps)


# the same operations as in `transformers`, so that logits can be compared bit for bit
IN_TORCH: dict[str, Any] = {
    "lookup": lambda E, ids, offset=0: F.embedding(ids + offset if offset else ids, E),
    "linear": F.linear,
    "softmax": lambda S: S.softmax(-1),
    "cosine": lambda positions, theta: (positions.float()[..., None] * theta).cos(),
    "sine": lambda positions, theta: (positions.float()[..., None] * theta).sin(),
    "normalise": normalised,
    "activation": lambda X, function: ACTIVATIONS[function](X),
}
for name, faster in IN_TORCH.items():
    operations.OPERATIONS[name].in_torch = faster


# ── construction ─────────────────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def module_class(cls: type[Part]) -> Any:
    """The nn.Module class of a part class: its swaps and those of its bases, then the part class itself."""
    swaps = [SWAPS[base] for base in cls.__mro__ if base in SWAPS]
    first = [swap for swap in swaps if not any(issubclass(other, swap) and other is not swap for other in swaps)]
    return type(cls.__name__, (*first, cls, Module), {"__call__": Module.__call__, "__module__": cls.__module__})


def as_module(part: P) -> P:
    """The part as an nn.Module, its weights initialised, on the current default device."""

    def new(part: Part) -> Any:
        made = object.__new__(module_class(type(part)))  # type: ignore[arg-type]
        nn.Module.__init__(made)
        for name, x in vars(part).items():
            if not isinstance(x, Part | Weight | list):
                setattr(made, name, x)
        return made

    return fill(part, parameter, new=new, row=nn.ModuleList)


def parameter(name: str, weight: Weight) -> nn.Parameter:
    """An initialised parameter. Nothing is drawn on the meta device, which would import PyTorch's compiler."""
    made = torch.empty(weight.shape)
    if not made.is_meta:
        if weight.start is not None:
            made.fill_(weight.start)
        elif weight.transposed:
            made.uniform_(-(weight.shape[1] ** -0.5), weight.shape[1] ** -0.5)
        else:
            made.normal_(0, 0.02)
    return nn.Parameter(made)


# ── memory layout ────────────────────────────────────────────────────────────────────────────────────────────────────


@torch.inference_mode(False)  # so that the weights can still be trained
def pack_for_decoding(net: nn.Module) -> None:
    """Repack the weights in the memory layout that one-row products read fastest. No number changes; idempotent."""
    if getattr(net, "is_packed", False):
        return
    packed = set[Any]()
    for module in net.modules():
        if isinstance(module, Packed):
            module.pack()
            packed.update(module.packed.maps if module.packed else ())
    for module in net.modules():
        if isinstance(module, Linear) and module not in packed:
            store_transposed(module)
    net.is_packed = True  # type: ignore[assignment]
