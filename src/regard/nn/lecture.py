"""The lecture's class in PyTorch: single-head self-attention, as one writes it first."""

from torch import Tensor, nn

from regard.nn.attention import attend


class SelfAttention(nn.Module):
    """One attention head over a matrix of token encodings; `row_dim` and `col_dim` are the axes of tokens and features."""

    def __init__(self, d_model: int = 2, row_dim: int = 0, col_dim: int = 1) -> None:
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.row_dim, self.col_dim = row_dim, col_dim

    def forward(self, token_encodings: Tensor) -> Tensor:
        axes = (self.row_dim, self.col_dim)
        X = token_encodings.movedim(axes, (-2, -1))  # (…, N, d)
        Z: Tensor = attend(self.W_q(X), self.W_k(X), self.W_v(X))
        return Z.movedim((-2, -1), axes)
