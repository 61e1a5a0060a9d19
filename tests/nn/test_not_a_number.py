"""Masked keys and values do not affect the result, even if they are NaN or infinite."""

import math
from typing import Any

import pytest
import torch

import regard
from regard.model.fused import fused
from regard.nn.attention import attend
from regard.nn.mask import Mask
from regard.nn.see import watching

MASKS = {
    "causal": lambda B, T: Mask(causal=True),
    "window": lambda B, T: Mask(causal=True, window=3),
    "padded": lambda B, T: Mask(real=real(B, T)),
    "causal and padded": lambda B, T: Mask(causal=True, real=real(B, T)),
}


def real(B, T):
    """The second text ends before position 4."""
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 4:] = False
    return mask


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["K", "V"])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("name", MASKS)
def test_a_masked_key_or_value_that_is_not_finite(name, past, where, bad):
    torch.manual_seed(0)
    B, h, g, N, d, odd = 2, 4, 2, 7, 5, 4 + past
    T = N + past
    Q, K, V = torch.randn(B, h, N, d), torch.randn(B, g, T, d), torch.randn(B, g, T, d)
    mask = MASKS[name](B, T)
    visible = mask.matrix(torch.empty(N, T)).expand(B, 1, N, T)
    clean = [run(Q, K, V, mask) for run in (readable, lambda *given: fused(*given, chunk=3), fused)]
    {"K": K, "V": V}[where][:, :, odd] = bad
    sees = visible[:, 0, :, odd]  # (B, N)
    assert sees.any()
    assert not sees.all()
    run: Any
    for run, before in zip((readable, lambda *given: fused(*given, chunk=3), fused), clean, strict=True):
        Z = run(Q, K, V, mask).transpose(1, 2)  # (B, N, h, d)
        before = before.transpose(1, 2)
        torch.testing.assert_close(Z[~sees], before[~sees], rtol=1e-5, atol=1e-6)
        if not math.isinf(bad) or where == "V":  # of infinite scores one may be -∞, which is no weight
            assert not Z[sees].isfinite().any()
    Z = readable(Q, K, V, mask).transpose(1, 2)
    assert torch.equal(Z[~sees], clean[0].transpose(1, 2)[~sees])  # to the bit


def readable(Q, K, V, mask):
    return attend(Q, K, V, mask)


def test_a_float_mask_masks_too():
    torch.manual_seed(0)
    Q, K, V = (torch.randn(4, 5) for _ in "123")
    hidden = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf)
    clean = attend(Q, K, V, hidden)
    K[3], V[3] = math.nan, math.nan
    assert torch.equal(attend(Q, K, V, hidden)[:3], clean[:3])


def test_an_overflowing_sum_of_finite_values_changes_nothing():
    """Their sum is infinite, and nothing is changed."""
    V = torch.full((3, 4), 3e38)
    zero = torch.zeros(3, 4)
    assert torch.equal(attend(zero, zero, V), (zero @ zero.mT).softmax(-1) @ V)


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "mistral", "bart"])
def test_a_token_that_is_not_a_number_spoils_nothing_before_it(saved, name):
    """In the fused path and in the readable one."""
    model = regard.load(saved(name), engine="torch")
    net: Any = model.net
    ids, odd = [5, 9, 12, 7, 33, 8], 4
    both = model.spec.kind == "encoder-decoder"
    given = ([3, 4], ids) if both else (ids,)

    def run():
        with torch.no_grad(), watching(lambda name, x: x):
            seen = net(*(torch.tensor([each]) for each in given))[0]
        return model(*(torch.tensor([each]) for each in given))[0], seen

    clean = run()
    with torch.no_grad():
        (net.decoder.embed if both else net.embed).tokens.weight[ids[odd]] = math.nan
    for before, after in zip(clean, run(), strict=True):
        known = [
            i for i in range(before.shape[-1]) if i != ids[odd]
        ]  # tied, the token's own logit is not a number either
        torch.testing.assert_close(after[:odd, known], before[:odd, known], rtol=1e-4, atol=1e-4)
        assert not after[odd:, known].isfinite().any()


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_padding_that_is_not_a_number_spoils_no_text(saved, name):
    model = regard.load(saved(name), engine="torch")
    net: Any = model.net
    pad = model.spec.pad_id or 0
    texts = [[5, 9, 12, 7], [8, 6]]
    alone = [model(text, text)[0] if name == "bart" else model(text)[0] for text in texts]
    with torch.no_grad():
        for side in (net.encoder, net.decoder) if name == "bart" else (net,):
            side.embed.tokens.weight[pad] = math.nan
    together = model(texts, texts) if name == "bart" else model(texts)
    for text, want, got in zip(texts, alone, together, strict=True):
        known = [i for i in range(want.shape[-1]) if i != pad] if name != "bert" else list(range(want.shape[-1]))
        torch.testing.assert_close(got[: len(text), known], want[:, known], rtol=1e-4, atol=1e-4)


def test_why_agrees_on_masked_values(saved):
    """A key of weight 0 counts for nothing in a derivation either."""
    model = regard.load(saved("gpt2"), engine="torch")
    with torch.no_grad():
        net: Any = model.net
        net.embed.tokens.weight[33] = math.nan
    trace = model.trace([5, 9, 12, 33, 8])
    why = trace.why("decoder.1.attention.Z", (0, 2, 1))
    assert math.isfinite(why.value)
    assert why.agrees
