"""The multi-layer perceptron: fan out (usually to 4 d), bend, fan in. The same for every token, each on its own."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.linear import Linear
from regard.nn.pack import SideBySide
from regard.nn.see import Part, see


def gelu(X: Tensor) -> Tensor:
    """x Φ(x), exactly."""
    return F.gelu(X)


def gelu_tanh(X: Tensor) -> Tensor:
    """GELU through tanh, as GPT-2 computes it."""
    return F.gelu(X, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": Tensor.tanh,
}


class MLP(Part):
    """W_down act(W_up x)."""

    def __init__(self, d: int, d_ff: int, activation: str, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.up, self.down = Linear(d, d_ff, bias), Linear(d_ff, d, bias)
        self.activation, self.dropout = ACTIVATIONS[activation], nn.Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:
        act = see("act", self.activation(see("up", self.up(X))))  # (B, N, d_ff)
        return see("out", self.down(self.dropout(act)))


class GatedMLP(Part):
    """W_down (act(W_gate x) ⊙ W_up x): each hidden number has a gate of its own (Llama)."""

    packed: SideBySide | None = None

    def __init__(self, d: int, d_ff: int, activation: str, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.gate, self.up, self.down = Linear(d, d_ff, bias), Linear(d, d_ff, bias), Linear(d_ff, d, bias)
        self.activation, self.dropout = ACTIVATIONS[activation], nn.Dropout(dropout)

    def pack(self) -> None:
        self.packed = SideBySide(self.gate, self.up)

    def project(self, X: Tensor) -> tuple[Tensor, ...]:
        if self.packed is not None and self.packed.suits(X):
            return self.packed(X)
        return self.gate(X), self.up(X)

    def forward(self, X: Tensor) -> Tensor:
        gate, up = self.project(X)  # (B, N, d_ff)
        act = see("act", self.activation(see("gate", gate)))
        gated = see("gated", act * see("up", up))
        return see("out", self.down(self.dropout(gated)))
