"""Attention: the lectures' mathematics as functions, and the parts that hold its weights.

In: X (B, N, d), and for cross attention the encoder's output. Out: M (B, N, d). `attend` is the definition that
everything faster is tested against: PyTorch's fused kernel (model/fused.py), and the native engine.
"""

import math
from typing import Any

from regard.nn.cache import LayerCache
from regard.nn.linear import Linear, Projection
from regard.nn.mask import Mask
from regard.nn.operation import library_of
from regard.nn.operations import dot, join, mask, mix, rotate, scale, softmax, split
from regard.nn.part import Dropout, Part
from regard.nn.position import Angles
from regard.nn.see import see

# B batch · N tokens (queries) · T keys · d model · h heads · g key/value heads · d_k per head


def attend(Q: Any, K: Any, V: Any, mask: Any = None, *, scale: float | None = None) -> Any:
    """Z = A V with A = softmax(Q Kᵀ / √d_k)."""
    return see("Z", mix(attention_weights(Q, K, mask, scale=scale), V))  # (…, N, d_v)


def attention_weights(Q: Any, K: Any, mask: Any = None, *, scale: float | None = None) -> Any:
    """A = softmax(Q Kᵀ / √d_k): row i says how much token i looks at each token j; rows sum to 1.

    mask: a `Mask`, a boolean array that is True where a query may attend (broadcast against the scores), or floats that
    are added to the scores. scale: multiplies the scores instead of 1/√d_k; 1 leaves them unscaled.
    """
    S = scores(Q, K, 1 / math.sqrt(Q.shape[-1]) if scale is None else scale, "")
    return see("weights", softmax(masked(S, mask)))


def scores(Q: Any, K: Any, by: float, label: str) -> Any:
    """S = Q Kᵀ · by: attention scores, before the softmax."""
    return see("scores", scale(see("dots", dot(Q, K)), by=by, label=label))  # (…, N, T)


def masked(S: Any, by: Any) -> Any:
    """The scores with -∞ at hidden keys; `by` as `mask` of `attention_weights`."""
    if by is None or (isinstance(by, Mask) and not by.hides):
        return S
    if isinstance(by, Mask):
        return see("masked", mask(S, by=by))
    xp = library_of(S)
    hidden = ~by if by.dtype == xp.bool else by == -math.inf
    S = S if by.dtype == xp.bool else S + by
    return see("masked", xp.where(hidden, -math.inf, S))  # whatever the score was: NaN - ∞ would be NaN


def simple_attention(X: Any) -> Any:
    """Self-attention before there are weights: score_ij = x_i · x_j for j ≤ i, softmax, weighted sum of the x_j."""
    return attend(X, X, X, Mask(causal=True), scale=1.0)


class Heads(Part):
    """Base of self- and cross-attention: the four projections W_q, W_k, W_v, W_o, and the steps from Q, K, V to M."""

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
        self.heads, self.kv_heads, self.d_k = heads, kv_heads or heads, d_k or d // heads
        self.scale = self.d_k**-0.5 if scale is None else scale
        self.W_q = Projection(d, self.heads * self.d_k, bias)
        self.W_k = Projection(d, self.kv_heads * self.d_k, bias)
        self.W_v = Projection(d, self.kv_heads * self.d_k, bias)
        self.W_o = Linear(self.heads * self.d_k, d, bias if out_bias is None else out_bias)
        self.dropout = Dropout(dropout)

    def attend(self, Q: Any, K: Any, V: Any, by: Mask) -> Any:
        label = f"1/√{self.d_k}" if self.scale == self.d_k**-0.5 else ""
        A = see("weights", softmax(masked(scores(Q, K, self.scale, label), by)))  # (B, h, N, T)
        return see("Z", mix(self.dropout(A), V))  # (B, h, N, d_k)

    def mix(self, Q: Any, K: Any, V: Any, by: Mask) -> Any:
        return see("M", self.W_o(join(self.attend(Q, K, V, by))))  # heads concatenated, one output projection


class MultiHead(Heads):
    """Multi-head self-attention: every token has a query (Q), a key (K) and a value (V).

    causal: no token attends to later ones; window: nor further back than so many tokens, itself included.
    """

    def __init__(self, *sizes: int, causal: bool = False, window: int | None = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.causal, self.window = causal, window

    def project(self, X: Any) -> tuple[Any, Any, Any]:
        return self.W_q(X), self.W_k(X), self.W_v(X)

    def forward(self, X: Any, real: Any = None, cache: LayerCache | None = None, angles: Angles | None = None) -> Any:
        q, k, v = self.project(X)
        Q = see("Q", split(q, heads=self.heads))  # (B, h, N, d_k)
        K = see("K", split(k, heads=self.kv_heads, name="kv_head"))  # (B, g, N, d_k)
        V = see("V", split(v, heads=self.kv_heads, name="kv_head"))
        if angles is not None:
            Q, K = see("Q_rotated", rotate(Q, *angles)), see("K_rotated", rotate(K, *angles))
        if cache is not None:
            K, V = cache.extend(K, V)  # (B, g, T, d_k)
        return self.mix(Q, K, V, Mask(self.causal, self.window, real))


class Cross(Heads):
    """Cross-attention: queries from the decoder's tokens, keys and values from the encoder's output, computed once."""

    def forward(self, X: Any, memory: Any, memory_real: Any = None, cache: LayerCache | None = None) -> Any:
        Q = see("Q", split(self.W_q(X), heads=self.heads))
        if cache is None or cache.cross is None:
            K = split(self.W_k(memory), heads=self.kv_heads, name="kv_head")
            V = split(self.W_v(memory), heads=self.kv_heads, name="kv_head")
            if cache is not None:
                cache.cross = K, V
        else:
            K, V = cache.cross
        return self.mix(Q, see("K", K), see("V", V), Mask(real=memory_real))
