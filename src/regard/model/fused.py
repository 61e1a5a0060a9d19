"""Attention as PyTorch's fused kernel computes it: `attend` without ever holding N × T numbers."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from regard.nn.attention import attend
from regard.nn.mask import Mask
from regard.nn.operations import finite


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
    """Z by `scaled_dot_product_attention`, a chunk of queries at a time.

    In the kernel a masked key or value that is NaN or infinite still reaches the result. Such results are recomputed by the
    definition, except in training, where they end the run anyway.
    """
    (N, T), heads = (Q.shape[-2], K.shape[-2]), Q.shape[1]

    def kernel(Q: Tensor, K: Tensor, V: Tensor, visible: Tensor | None = None, causal: bool = False) -> Tensor:
        return F.scaled_dot_product_attention(
            Q, K, V, attn_mask=visible, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=heads != K.shape[1]
        )

    def defined(Q: Tensor, K: Tensor, V: Tensor, visible: Tensor | None) -> Tensor:
        computed: Tensor = attend(Q, K, V, visible, scale=scale)
        return computed

    def in_chunks(compute: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> Tensor:
        Z = [compute(*part) for part in mask.chunks(Q, K, V, chunk)]
        return Z[0] if len(Z) == 1 else torch.cat(Z, -2)

    hides = mask.real is not None or (mask.causal and N > 1)
    whole = mask.real is None and (mask.window is None or mask.window >= T) and (N == T or not mask.causal)
    Z = kernel(Q, K, V, causal=mask.causal and N > 1) if whole else in_chunks(kernel)
    if not hides or training or is_compiling() or finite(Z):
        return Z
    return torch.where(Z.isfinite(), Z, in_chunks(defined))
