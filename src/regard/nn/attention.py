"""Attention: the lectures' mathematics as functions, and the modules that hold its weights.

In: X (B, N, d), and for cross attention the encoder's output. Out: M (B, N, d). `attend` is the definition that
everything faster is tested against: `fused` below, and the native engine.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling

from regard.nn.cache import LayerCache
from regard.nn.linear import Linear
from regard.nn.mask import EVERYTHING, Mask
from regard.nn.pack import SideBySide
from regard.nn.position import Angles, rotate
from regard.nn.see import Part, see, watched

# B batch · N tokens (queries) · T keys · d model · h heads · g key/value heads · d_k per head


def attend(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, *, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """Z = A V with A = softmax(Q Kᵀ / √d_k)."""
    A = attention_weights(Q, K, mask, scale=scale)
    A = F.dropout(A, dropout) if dropout else A
    return see("Z", mix(A, V.to(A.dtype)))  # (…, N, d_v)


def attention_weights(Q: Tensor, K: Tensor, mask: Tensor | None = None, *, scale: float | None = None) -> Tensor:
    """A = softmax(Q Kᵀ / √d_k): row i says how much token i looks at each token j; rows sum to 1.

    mask: True where a query may look (broadcast against the scores), or a float tensor that is added to them.
    scale: what the scores are multiplied by instead of 1/√d_k; 1 leaves them unscaled.
    """
    dots = see("dots", Q @ K.mT)  # (…, N, T)
    S = see("scores", dots * (1 / math.sqrt(Q.shape[-1]) if scale is None else scale))
    if mask is not None:
        hidden = ~mask if mask.dtype == torch.bool else mask == -math.inf
        S = S if mask.dtype == torch.bool else S + mask
        S = see("masked", S.masked_fill(hidden, -math.inf))  # whatever the score was: NaN - ∞ would be NaN
    return see("weights", S.softmax(-1))


def mix(A: Tensor, V: Tensor) -> Tensor:
    """A V, where a key of weight 0 counts for nothing, even if its value is not a number: 0 · NaN would be NaN."""
    Z = A @ V
    if is_compiling() or finite(Z):
        return Z
    odd = ~V.isfinite()
    seen = (A != 0).to(A.dtype) @ odd.to(A.dtype) > 0  # such a value, by a query that does look at it
    return torch.where(seen, Z, A @ V.masked_fill(odd, 0))


def finite(X: Tensor) -> bool:
    """Whether all are numbers. Their sum tells in a fraction of the time, unless it is itself too large."""
    return math.isfinite(X.sum().item()) or bool(X.isfinite().all())


def simple_attention(X: Tensor) -> Tensor:
    """Self-attention before there are weights: score_ij = x_i · x_j for j ≤ i, softmax, weighted sum of the x_j."""
    N = X.shape[-2]
    return attend(X, X, X, torch.ones(N, N, dtype=torch.bool, device=X.device).tril(), scale=1.0)


def fused(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Mask,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    chunk: int = 512,
    training: bool = False,
) -> Tensor:
    """`attend` without ever holding N × T numbers: PyTorch's fused kernel, a chunk of queries at a time.

    The kernel lets a hidden key or value that is not a number spoil what it is hidden from. What it spoilt the definition
    computes again, but not in training, where such a number ends the run anyway.
    """
    (N, T), heads = (Q.shape[-2], K.shape[-2]), Q.shape[1]

    def kernel(Q: Tensor, K: Tensor, V: Tensor, visible: Tensor | None = None, causal: bool = False) -> Tensor:
        return F.scaled_dot_product_attention(
            Q, K, V, attn_mask=visible, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=heads != K.shape[1]
        )

    def defined(Q: Tensor, K: Tensor, V: Tensor, visible: Tensor | None) -> Tensor:
        return attend(Q, share_heads(K, heads), share_heads(V, heads), visible, scale=scale)

    def in_chunks(compute: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> Tensor:
        Z = []
        for first in range(0, N, chunk):
            last = min(first + chunk, N)
            keys = mask.reach(first, last, N, T)
            visible = mask.rows(first, last, keys, N, T, Q.device) if hides else None
            span = slice(keys.start, keys.stop)
            Z.append(compute(Q[..., first:last, :], K[..., span, :], V[..., span, :], visible))
        return Z[0] if len(Z) == 1 else torch.cat(Z, -2)

    hides = mask.real is not None or (mask.causal and N > 1)
    whole = mask.real is None and (mask.window is None or mask.window >= T) and (N == T or not mask.causal)
    Z = kernel(Q, K, V, causal=mask.causal and N > 1) if whole else in_chunks(kernel)
    if not hides or training or is_compiling() or finite(Z):
        return Z
    return torch.where(Z.isfinite(), Z, in_chunks(defined))


def share_heads(K: Tensor, heads: int) -> Tensor:
    """Grouped-query attention: each of the g key/value heads serves h/g query heads. (B, g, T, d_k) → (B, h, T, d_k)"""
    return K if K.shape[1] == heads else K.repeat_interleave(heads // K.shape[1], 1)


class SelfAttention(nn.Module):
    """One attention head over a matrix of token encodings, with the dimensions of rows and columns as arguments.

    The lecture's class, working: `row_dim` and `col_dim` are the axes of tokens and of features.
    """

    def __init__(self, d_model: int = 2, row_dim: int = 0, col_dim: int = 1) -> None:
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.row_dim, self.col_dim = row_dim, col_dim

    def forward(self, token_encodings: Tensor) -> Tensor:
        axes = (self.row_dim, self.col_dim)
        X = token_encodings.movedim(axes, (-2, -1))  # (…, N, d)
        Z = attend(self.W_q(X), self.W_k(X), self.W_v(X))
        return Z.movedim((-2, -1), axes)


class Heads(Part):
    """What self and cross attention share: the four projections, and the way from Q, K, V to M."""

    def __init__(
        self,
        d: int,
        heads: int,
        kv_heads: int | None = None,
        d_k: int | None = None,
        *,
        bias: bool = True,
        out_bias: bool | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.d_k = heads, kv_heads or heads, d_k or d // heads
        self.scale, self.dropout = scale, dropout
        self.W_q = nn.Linear(d, self.heads * self.d_k, bias)
        self.W_k = nn.Linear(d, self.kv_heads * self.d_k, bias)
        self.W_v = nn.Linear(d, self.kv_heads * self.d_k, bias)
        self.W_o = Linear(self.heads * self.d_k, d, bias if out_bias is None else out_bias)

    def split(self, X: Tensor) -> Tensor:
        return X.unflatten(-1, (-1, self.d_k)).transpose(1, 2)  # (B, N, h·d_k) → (B, h, N, d_k)

    def mix(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if watched():
            visible = mask.matrix(Q.shape[-2], K.shape[-2], Q.device)
            K, V = share_heads(K, self.heads), share_heads(V, self.heads)
            Z = attend(Q, K, V, visible, scale=self.scale, dropout=dropout)
        else:
            Z = fused(Q, K, V, mask, scale=self.scale, dropout=dropout, training=self.training)
        return see("M", self.W_o(Z.transpose(1, 2).flatten(2)))  # heads side by side, one output projection


class MultiHead(Heads):
    """Self-attention: every token asks (Q), offers itself (K) and answers (V). Causal or not is the mask's business."""

    packed: SideBySide | None = None

    def pack(self) -> None:
        self.packed = SideBySide(self.W_q, self.W_k, self.W_v)

    def project(self, X: Tensor) -> tuple[Tensor, ...]:
        if self.packed is not None and self.packed.suits(X):
            return self.packed(X)
        return self.W_q(X), self.W_k(X), self.W_v(X)

    def forward(
        self, X: Tensor, mask: Mask = EVERYTHING, cache: LayerCache | None = None, angles: Angles | None = None
    ) -> Tensor:
        Q, K, V = (self.split(P) for P in self.project(X))  # (B, h, N, d_k), (B, g, N, d_k) twice
        Q, K, V = see("Q", Q), see("K", K), see("V", V)
        if angles is not None:
            Q, K = see("Q_rotated", rotate(Q, angles)), see("K_rotated", rotate(K, angles))
        if cache is not None:
            K, V = cache.extend(K, V)  # (B, g, T, d_k)
        return self.mix(Q, K, V, mask)


class Cross(Heads):
    """Cross attention: the decoder's tokens ask, the encoder's output is looked up. Its K and V are computed once."""

    def forward(self, X: Tensor, memory: Tensor, mask: Mask = EVERYTHING, cache: LayerCache | None = None) -> Tensor:
        Q = see("Q", self.split(self.W_q(X)))
        if cache is None or cache.crossed is None:
            K, V = self.split(self.W_k(memory)), self.split(self.W_v(memory))
            if cache is not None:
                cache.crossed = K, V
        else:
            K, V = cache.crossed
        return self.mix(Q, see("K", K), see("V", V), mask)
