"""The 2017 Transformer with fairseq's names, against a plain reading of the paper that shares no code with the package.

A random checkpoint is written as fairseq writes one; the reference below computes it with numpy in float64, one text at a
time, straight from the tensors' names.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import regard
from regard.store.safetensors_write import save_checkpoint

Array = NDArray[np.float64]
Weights = dict[str, Array]
D, FF, LAYERS, HEADS, PAD = 20, 37, {"encoder": 3, "decoder": 2}, {"encoder": 5, "decoder": 4}, 1
VOCAB = {"encoder": 31, "decoder": 43}
EPS = 1e-5


def checkpoint(seed: int, pre_norm: bool, tied: bool) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def noise(*shape: int, around: float = 0.0) -> torch.Tensor:
        return torch.randn(shape, generator=rng) * 0.3 + around

    tensors = {}
    for side in ("encoder", "decoder"):
        tensors[f"{side}.embed_tokens.weight"] = noise(VOCAB[side], D)
        norms = [f"{side}.layer_norm"] if pre_norm else []
        linears: dict[str, tuple[int, int]] = {}
        for layer in (f"{side}.layers.{i}" for i in range(LAYERS[side])):
            norms += [f"{layer}.self_attn_layer_norm", f"{layer}.final_layer_norm"]
            looks = ["self_attn"] if side == "encoder" else ["self_attn", "encoder_attn"]
            norms += [f"{layer}.{look}_layer_norm" for look in looks[1:]]
            linears |= {f"{layer}.{look}.{x}_proj": (D, D) for look in looks for x in ("q", "k", "v", "out")}
            linears |= {f"{layer}.fc1": (FF, D), f"{layer}.fc2": (D, FF)}
        for name in norms:
            tensors |= {f"{name}.weight": noise(D, around=1.0), f"{name}.bias": noise(D)}
        for name, (out, into) in linears.items():
            tensors |= {f"{name}.weight": noise(out, into), f"{name}.bias": noise(out)}
    decoder = tensors["decoder.embed_tokens.weight"]
    tensors["decoder.output_projection.weight"] = decoder.clone() if tied else noise(VOCAB["decoder"], D)
    tensors["encoder.version"] = torch.tensor([3.0])  # buffers fairseq leaves in its files
    tensors["decoder.embed_positions._float_tensor"] = torch.zeros(1)
    return tensors


class Plain:
    """fairseq's `transformer`: (source, target so far) → logits at every target position."""

    def __init__(self, tensors: dict[str, torch.Tensor], pre_norm: bool, position: Callable[[int], Array]) -> None:
        self.W: Weights = {name: tensor.double().numpy() for name, tensor in tensors.items()}
        self.pre_norm, self.position = pre_norm, position

    def __call__(self, source: list[int], target: list[int]) -> Array:
        memory = self.stack("encoder", source, None)
        return self.stack("decoder", target, memory) @ self.W["decoder.output_projection.weight"].T

    def stack(self, side: str, ids: list[int], memory: Array | None) -> Array:
        X = np.stack([np.sqrt(D) * self.W[f"{side}.embed_tokens.weight"][id] for id in ids])
        X = X + np.stack([self.position(p) for p in range(len(ids))])
        for i in range(LAYERS[side]):
            X = self.layer(f"{side}.layers.{i}", X, memory, HEADS[side])
        return self.norm(f"{side}.layer_norm", X) if self.pre_norm else X

    def layer(self, name: str, X: Array, memory: Array | None, h: int) -> Array:
        causal = memory is not None
        X = self.added(X, f"{name}.self_attn", lambda Y: self.look(f"{name}.self_attn", Y, Y, h, causal))
        if memory is not None:
            X = self.added(X, f"{name}.encoder_attn", lambda Y: self.look(f"{name}.encoder_attn", Y, memory, h))
        return self.added(X, f"{name}.final", lambda Y: self.mlp(name, Y))

    def added(self, X: Array, name: str, part: Callable[[Array], Array]) -> Array:
        norm = f"{name}_layer_norm"
        return X + part(self.norm(norm, X)) if self.pre_norm else self.norm(norm, X + part(X))

    def linear(self, name: str, X: Array) -> Array:
        return X @ self.W[f"{name}.weight"].T + self.W[f"{name}.bias"]

    def norm(self, name: str, X: Array) -> Array:
        X = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + EPS)
        return X * self.W[f"{name}.weight"] + self.W[f"{name}.bias"]

    def mlp(self, layer: str, X: Array) -> Array:
        return self.linear(f"{layer}.fc2", np.maximum(self.linear(f"{layer}.fc1", X), 0))

    def look(self, name: str, X: Array, Y: Array, h: int, causal: bool = False) -> Array:
        Q, K, V = self.linear(f"{name}.q_proj", X), self.linear(f"{name}.k_proj", Y), self.linear(f"{name}.v_proj", Y)
        size, Z = D // h, np.zeros_like(Q)
        for i in range(len(X)):
            seen = i + 1 if causal else len(Y)
            for head in (slice(first, first + size) for first in range(0, D, size)):
                scores = K[:seen, head] @ Q[i, head] / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                Z[i, head] = weights / weights.sum() @ V[:seen, head]
        return self.linear(f"{name}.out_proj", Z)


def fairseq_position(p: int) -> Array:
    """All sines, then all cosines, of frequencies from 1 to exactly 1/10000; the first token stands at PAD + 1."""
    frequencies = 10000.0 ** -(np.arange(D // 2) / (D // 2 - 1))
    angles = (p + PAD + 1) * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)])


def paper_position(p: int) -> Array:
    """Sine and cosine side by side, of frequencies 10000^(-2i/d); the first token stands at 0."""
    return np.array(
        [np.sin(p / 10000 ** (j / D)) if j % 2 == 0 else np.cos(p / 10000 ** ((j - 1) / D)) for j in range(D)]
    )


@pytest.mark.parametrize("style", ["fairseq", "paper"])
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_against_a_plain_reading(tmp_path: Path, style: str, pre_norm: bool, tied: bool) -> None:
    tensors = checkpoint(3, pre_norm, tied)
    save_checkpoint(tmp_path, tensors)
    config: dict[str, Any] = {
        "model_type": "vaswani",
        "src_vocab_size": VOCAB["encoder"],
        "tgt_vocab_size": VOCAB["decoder"],
        "d_model": D,
        "normalize_before": pre_norm,
        "position_style": style,
        "tie_word_embeddings": tied,
        "pad_token_id": PAD,
    }
    for side in ("encoder", "decoder"):
        sizes = {"layers": LAYERS[side], "attention_heads": HEADS[side], "ffn_dim": FF}
        config |= {f"{side}_{key}": value for key, value in sizes.items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = regard.load(tmp_path)
    plain = Plain(tensors, pre_norm, fairseq_position if style == "fairseq" else paper_position)
    sources, targets = [[4, 9, 30, 17, 5, 2], [8, 2], [11, 12, 13, 2]], [[2, 7, 42, 9], [2, 5], [2, 40, 41]]
    together = model(sources, targets)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        expected = plain(source, target)
        assert expected.std() > 0.5
        np.testing.assert_allclose(model(source, target)[0], expected, rtol=0, atol=2e-5)
        np.testing.assert_allclose(together[i, : len(target)], expected, rtol=0, atol=2e-5)
        by_torch = model(torch.tensor([source]), torch.tensor([target]))[0]
        np.testing.assert_allclose(by_torch.numpy(), expected, rtol=0, atol=2e-5)


def test_a_target_written_greedily(tmp_path: Path) -> None:
    """The written ids are those the plain reading would have chosen, step by step."""
    tensors = checkpoint(5, True, True)
    save_checkpoint(tmp_path, tensors)
    sizes = {f"{s}_{k}": v for s in LAYERS for k, v in (("layers", LAYERS[s]), ("attention_heads", HEADS[s]))}
    config = {"model_type": "vaswani", "d_model": D, "normalize_before": True, "position_style": "fairseq", **sizes}
    config |= {"encoder_ffn_dim": FF, "decoder_ffn_dim": FF}
    config |= {"src_vocab_size": VOCAB["encoder"], "tgt_vocab_size": VOCAB["decoder"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    plain, written = Plain(tensors, True, fairseq_position), [2]
    for _ in range(8):
        written.append(int(plain([4, 9, 30, 2], written)[-1].argmax()))
        if written[-1] == 2:
            break
    (answer,) = regard.load(tmp_path).answers([4, 9, 30, 2], max_new_tokens=8, temperature=0)[0]
    assert answer.ids == written[1:]
