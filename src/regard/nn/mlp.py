"""The multi-layer perceptron: fan out (usually to 4 d), activation, fan in; applied to each token separately."""

from typing import Any

from regard.nn.linear import Linear
from regard.nn.operations import activation, gate
from regard.nn.part import Dropout, Part
from regard.nn.see import see


class MLP(Part):
    """W_down act(W_up x)."""

    def __init__(self, d: int, d_ff: int, activation: str, *, bias: bool = True, dropout: float = 0.0) -> None:
        self.up, self.down = Linear(d, d_ff, bias, "neuron"), Linear(d_ff, d, bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, X: Any) -> Any:
        act = see("act", activation(see("up", self.up(X)), function=self.activation))  # (B, N, d_ff)
        return see("out", self.down(self.dropout(act)))


class GatedMLP(Part):
    """W_down (act(W_gate x) ⊙ W_up x): a gate for each hidden neuron (SwiGLU in Llama)."""

    def __init__(self, d: int, d_ff: int, activation: str, *, bias: bool = False, dropout: float = 0.0) -> None:
        self.gate, self.up = Linear(d, d_ff, bias, "neuron"), Linear(d, d_ff, bias, "neuron")
        self.down = Linear(d_ff, d, bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def project(self, X: Any) -> tuple[Any, Any]:
        return self.gate(X), self.up(X)  # (B, N, d_ff) each

    def forward(self, X: Any) -> Any:
        G, U = self.project(X)
        act = see("act", activation(see("gate", G), function=self.activation))
        return see("out", self.down(self.dropout(see("gated", gate(act, see("up", U))))))
