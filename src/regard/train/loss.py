"""Cross-entropy over a large vocabulary without ever holding all of its logits.

For N positions and a vocabulary of n the logits are N × n numbers, and their gradient as many again: often more memory than
the network. Here a few hundred positions at a time are unembedded and compared with their targets, and the gradients of the
states and of the matrix are computed in the forward pass; only those are stored for the backward pass.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = 512  # positions


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, X: Tensor, W: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        needs = X.requires_grad or W.requires_grad
        dX = torch.empty_like(X) if needs else None
        dW = torch.zeros_like(W, dtype=torch.float32) if needs else None
        db = torch.zeros_like(bias, dtype=torch.float32) if needs and bias is not None else None
        total, plain = X.new_zeros((), dtype=torch.float32), X.new_zeros((), dtype=torch.float32)
        n_vocab = W.shape[0]
        for first in range(0, len(X), chunk):
            x, t = X[first : first + chunk], targets[first : first + chunk]
            logits = torch.nn.functional.linear(x, W, bias).float()  # (chunk, n_vocab)
            lse = logits.logsumexp(-1)
            own = logits.gather(-1, t[:, None])[:, 0]
            nll = (lse - own).sum()
            plain += nll
            total += nll if not smoothing else (1 - smoothing) * nll + smoothing * (lse - logits.mean(-1)).sum()
            if dX is None or dW is None:
                continue
            P = logits.sub_(lse[:, None]).exp_()  # softmax, in place: it becomes the gradient of the logits
            if smoothing:
                P -= smoothing / n_vocab
            P.scatter_add_(-1, t[:, None], torch.full_like(t[:, None], -(1 - smoothing), dtype=P.dtype))
            P = P.to(W.dtype)
            torch.mm(P, W, out=dX[first : first + chunk])
            dW.addmm_(P.T, x) if dW.dtype == x.dtype else dW.add_(P.T @ x)
            if db is not None:
                db += P.sum(0)
        ctx.save_for_backward(*(g for g in (dX, dW, db) if g is not None))
        ctx.biased, ctx.dtypes = bias is not None, (X.dtype, W.dtype)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale, saved = upstream[0], ctx.saved_tensors
        dX, dW = saved[0] * scale, (saved[1] * scale).to(ctx.dtypes[1])
        return dX.to(ctx.dtypes[0]), dW, saved[2] * scale if ctx.biased else None, None, None, None


def linear_cross_entropy(
    X: Tensor, W: Tensor, bias: Tensor | None, targets: Tensor, *, smoothing: float = 0.0, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """The summed loss of predicting `targets` (M,) from states X (M, d), and the same without smoothing for reporting.

    With label smoothing (Szegedy et al., 2016) the target distribution gives a share of the probability to all tokens.
    """
    total, plain = _LinearCrossEntropy.apply(X, W, bias, targets, smoothing, chunk)
    return total, plain
