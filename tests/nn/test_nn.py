"""The parts one by one, each against a formula written out here or against an independent implementation."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.model.fused import fused
from regard.model.module import as_module
from regard.model.products import MKL, PIECE
from regard.nn import (
    Cache,
    GatedMLP,
    LayerNorm,
    Mask,
    MultiHead,
    RMSNorm,
    Rotary,
    RotaryScaling,
    Sinusoidal,
    attend,
    rotate,
    see,
    watching,
)
from regard.nn.embed import Unembed
from regard.nn.linear import Linear
from tensor_sizes import LargestTensor


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(0, 7),
    st.sampled_from([(1, 1), (4, 4), (6, 2), (6, 1)]),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 6)),
    st.booleans(),
    st.integers(1, 4),
)
def test_fused_attention_equals_attend(N, past, heads, causal, window, padded, chunk):
    """For every mask a model can have, in chunks of any size, and with keys from a cache before the queries."""
    h, g = heads
    torch.manual_seed(N * 100 + past)
    T, B = N + past, 2
    Q, K, V = torch.randn(B, h, N, 5), torch.randn(B, g, T, 5), torch.randn(B, g, T, 5)
    real = torch.ones(B, T, dtype=torch.bool)
    real[1, : T // 3] = not padded
    mask = Mask(causal=causal, window=window if causal else None, real=real if padded else None)
    readable = attend(Q, K, V, mask)
    torch.testing.assert_close(fused(Q, K, V, mask, chunk=chunk), readable, rtol=1e-5, atol=1e-6)


def test_fused_attention_needs_no_quadratic_memory():
    """8192 tokens, padded and causal: all scores at once would be 8192² numbers."""
    N = 8192
    Q = torch.randn(1, 1, N, 4)
    real = torch.ones(1, N, dtype=torch.bool)
    real[0, :100] = False
    with LargestTensor() as largest:
        fused(Q, Q, Q, Mask(causal=True, real=real))
    assert largest.numel < N * N / 8


def test_padding_rows_stay_finite():
    real = torch.tensor([[False, False, True]])
    Q = torch.randn(1, 1, 3, 4)
    mask = Mask(causal=True, real=real)
    assert torch.isfinite(attend(Q, Q, Q, mask)).all()


def test_float_masks_are_added():
    Q = torch.randn(3, 4)
    hidden = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)
    torch.testing.assert_close(attend(Q, Q, Q, hidden), attend(Q, Q, Q, torch.ones(3, 3).tril().bool()))


def test_multi_head_is_its_heads_concatenated():
    torch.manual_seed(0)
    d, h = 12, 3
    m, X = as_module(MultiHead(d, h)), torch.randn(2, 5, d)
    reference = nn.MultiheadAttention(d, h, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([m.W_q.weight, m.W_k.weight, m.W_v.weight]))
        reference.in_proj_bias.copy_(torch.cat([m.W_q.bias, m.W_k.bias, m.W_v.bias]))
        reference.out_proj.load_state_dict(m.W_o.state_dict())
    torch.testing.assert_close(m(X), reference(X, X, X, need_weights=False)[0], rtol=1e-5, atol=1e-6)


def test_packing_changes_no_number_and_keeps_the_weights_visible():
    torch.manual_seed(0)
    X = torch.randn(2, 5, 12)
    module: Any
    for module in (as_module(MultiHead(12, 4, 2)), as_module(GatedMLP(12, 20, "silu"))):
        before = {k: v.clone() for k, v in module.state_dict().items()}
        out = module(X)
        module.pack()
        torch.testing.assert_close(module(X), out, rtol=1e-6, atol=1e-6)
        assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
        with torch.no_grad():  # an edit of one matrix is seen by the packed product
            next(module.parameters()).mul_(2)
        assert not torch.allclose(module(X), out)
        module.double()  # weights moved elsewhere: the packed store is no longer used
        assert module(X.double()).dtype == torch.float64


turns = pytest.mark.skipif(not MKL, reason="this PyTorch multiplies without MKL, so nothing is turned")


@turns
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 200), st.integers(1, 9), st.integers(1, 12), st.booleans(), st.booleans())
def test_a_transposed_product_equals_the_product(B, N, d, out, bias, strided):
    W = as_module(Linear(d, out, bias))
    X = torch.randn(N, B, d).transpose(0, 1) if strided else torch.randn(B, N, d)
    expected = X.double() @ W.weight.double().T + (0 if W.bias is None else W.bias.double())
    with torch.no_grad():
        Y = W(X)
    assert Y.shape == (B, N, out)
    torch.testing.assert_close(Y.double(), expected, rtol=1e-5, atol=1e-5)


@turns
def test_only_tens_of_rows_without_gradients_are_transposed():
    W = as_module(Linear(6, 10))

    def is_turned(X: torch.Tensor, W: Linear = W) -> bool:
        return W(X).stride(-1) != 1

    with torch.no_grad():
        assert is_turned(torch.randn(1, 16, 6))
        assert is_turned(torch.randn(4, 4, 6))
        assert is_turned(torch.randn(2, 256, 6))
        assert not is_turned(torch.randn(1, 15, 6))
        assert not is_turned(torch.randn(3, 171, 6))
        assert not is_turned(torch.randn(1, 16, 6, dtype=torch.float64), as_module(Linear(6, 10)).double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not is_turned(torch.randn(1, 16, 6))
    assert not is_turned(torch.randn(1, 16, 6))  # gradients of training are PyTorch's own


@turns
@pytest.mark.parametrize("bias", [False, True])
def test_chunked_logits_are_row_major(bias):
    torch.manual_seed(0)
    unembed, X = as_module(Unembed(5, 2 * PIECE + 3, bias)), torch.randn(2, 9, 5)
    expected = nn.functional.linear(X, unembed.weight, unembed.bias)
    with torch.no_grad():
        logits = unembed(X)
        assert logits.is_contiguous()
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-6)
        unembed.weight.data = unembed.weight.data.T.contiguous().T  # as it lies for decoding
        torch.testing.assert_close(unembed(X), expected, rtol=1e-5, atol=1e-6)


def test_layer_norm_and_rms_norm_readable_equal_fused():
    torch.manual_seed(0)
    for norm in (as_module(LayerNorm(7, 1e-5)), as_module(RMSNorm(7, 1e-6))):
        nn.init.normal_(norm.weight)
        X = torch.randn(3, 7) * 5
        seen: dict[str, torch.Tensor] = {}
        with watching(seen.setdefault):
            readable = norm(X)
        torch.testing.assert_close(readable, norm(X), rtol=1e-5, atol=1e-6)
        assert torch.equal(seen["out"], readable)


def test_sinusoids_by_the_papers_formula():
    PE = Sinusoidal(6)(torch.arange(4)[None])[0]
    for p in range(4):
        for i in range(3):
            angle = p / 10000 ** (2 * i / 6)
            assert PE[p, 2 * i] == pytest.approx(math.sin(angle), abs=1e-7)
            assert PE[p, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-7)
    halves = Sinusoidal(6, halves=True)(torch.arange(4)[None])[0]
    torch.testing.assert_close(halves, torch.cat([PE[:, 0::2], PE[:, 1::2]], 1))


def test_stretched_sinusoids_end_at_one_ten_thousandth():
    PE = Sinusoidal(8, halves=True, stretch=True, offset=2)(torch.tensor([[5]]))[0, 0]
    assert PE[3] == pytest.approx(math.sin(7 / 10000), abs=1e-8)
    assert PE[0] == pytest.approx(math.sin(7), abs=1e-6)


def test_rotary_scores_depend_on_distance_alone():
    torch.manual_seed(0)
    rotary = Rotary(8)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(i: int, j: int) -> float:
        a, b = (rotate(x, *rotary(torch.tensor([[p]]))) for x, p in ((q, i), (k, j)))
        return float((a * b).sum())

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)


def test_rotary_rotates_pairs_half_a_head_apart():
    x = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    turned = rotate(x, *Rotary(4)(torch.tensor([[1]]))).flatten()
    torch.testing.assert_close(turned, torch.tensor([math.cos(1), 0, math.sin(1), 0]))


def test_rotary_scaling():
    plain = Rotary(8).frequencies()
    np.testing.assert_array_equal(Rotary(8, scaling=RotaryScaling("linear", 4.0)).frequencies(), plain / 4)
    slowed = Rotary(64, scaling=RotaryScaling("llama3", 8.0)).frequencies() / Rotary(64).frequencies()
    assert slowed[0] == 1
    assert slowed[-1] == pytest.approx(1 / 8)
    assert bool((slowed[1:] <= slowed[:-1]).all())


def test_cache_fills_in_place_and_grows():
    cache = Cache(1, capacity=4)
    K = torch.randn(1, 2, 10, 3)
    layer = cache.layers[0]
    layer.extend(K[:, :, :3], K[:, :, :3])
    room = layer.K
    assert room is not None
    pointer = room.data_ptr()
    layer.extend(K[:, :, 3:4], K[:, :, 3:4])
    assert layer.K is not None
    assert layer.K.data_ptr() == pointer
    got, _ = layer.extend(K[:, :, 4:], K[:, :, 4:])
    assert torch.equal(got, K)
    cache.cut(2)
    assert cache.length == 2
    cache.pick(torch.tensor([0, 0, 0]))
    got, _ = layer.extend(*(torch.zeros(3, 2, 1, 3),) * 2)
    assert torch.equal(got[2, :, :2], K[0, :, :2])


def test_only_the_innermost_observer_is_called():
    x = torch.ones(2)
    assert see("x", x) is x
    with watching(lambda name, x: x * 2), watching(lambda name, x: x * 3):
        assert torch.equal(see("x", x), x * 3)
    assert see("x", x) is x


def test_an_observer_can_replace_a_value():
    torch.manual_seed(0)
    m, X = as_module(MultiHead(8, 2, causal=True)), torch.randn(1, 4, 8)

    def first_head_off(name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :1] * 0, x[:, 1:]], 1) if name == "Z" else x

    with watching(first_head_off):
        off = m(X)
    seen: dict[str, torch.Tensor] = {}
    with watching(lambda name, x: seen.setdefault(name, x)):
        on = m(X)
    contribution = seen["Z"][:, 0] @ m.W_o.weight[:, :4].T
    torch.testing.assert_close(on - off, contribution, rtol=1e-5, atol=1e-6)
    assert list(seen) == ["Q", "K", "V", "dots", "scores", "masked", "weights", "Z", "M"]
