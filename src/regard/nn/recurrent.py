"""What attention was added to before it was all there was: a recurrent decoder that looks back at its encoder.

Bahdanau, Cho and Bengio (2015). Kept beside the Transformer so that the two can be measured on the same task.
"""

import math

import torch
from torch import Tensor, nn

from regard.nn.see import Part, see


class AdditiveAttention(Part):
    """A score for each source position by a small network instead of a dot product: vᵀ tanh(W_s s + W_h h_j)."""

    def __init__(self, d_state: int, d_memory: int, d: int) -> None:
        super().__init__()
        self.W_s = nn.Linear(d_state, d, bias=False)
        self.W_h = nn.Linear(d_memory, d, bias=True)
        self.v = nn.Linear(d, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """W_h h_j for every source position, computed once: (B, T, d)."""
        projected: Tensor = self.W_h(memory)
        return projected

    def forward(
        self, state: Tensor, keys: Tensor, memory: Tensor, real: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Decoder state (B, d_state) → what it reads (B, d_memory), and the scores and weights (B, T) of where it looks."""
        S = self.v(torch.tanh(self.W_s(state)[:, None] + keys))[..., 0]  # (B, T)
        if real is not None:
            S = S.masked_fill(~real, -math.inf)
        A = S.softmax(-1)
        return (A[:, None] @ memory)[:, 0], S, A


class RecurrentEncoder(Part):
    """A GRU in each direction; each token's two states side by side. (B, N, d) → (B, N, 2 h)"""

    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(d, hidden, batch_first=True, bidirectional=True)

    def forward(self, X: Tensor, real: Tensor | None) -> Tensor:
        if real is None:
            return see("H", self.gru(X)[0])
        lengths = real.sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(X, lengths, batch_first=True, enforce_sorted=False)
        H, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=X.shape[1])
        return see("H", H)


class RecurrentState:
    """What a recurrent decoder remembers between two tokens: one state, however long the text."""

    def __init__(self) -> None:
        self.length = 0
        self.state: Tensor | None = None  # (B, h)
        self.keys: Tensor | None = None  # (B, T, d)

    def pick(self, rows: Tensor) -> None:
        self.state = None if self.state is None else self.state[rows]
        self.keys = None if self.keys is None else self.keys[rows]
