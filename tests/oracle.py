"""The oracle: what a small transformer computes and what is chosen of its logits, written from the definitions.

The laws compare the package with this file, so it imports nothing of the package. Plain numpy in float64, one text at a
time, no cache, no batch, nothing fast. The letters are the lectures' (docs/notation.md). Weights come from a directory
that `transformers` wrote, under the names that it gave them.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[Any]

# ── functions of a row of numbers ────────────────────────────────────────────────────────────────────────────────────


def softmax(x: Array) -> Array:
    """e^x / Σ e^x along the last axis; the largest is subtracted first, which changes nothing but the range."""
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def log_sum_exp(x: Array) -> Array:
    x = x.astype(np.float64)
    top = x.max(-1)
    return np.asarray(np.log(np.exp(x - top[..., None]).sum(-1)) + top)


def gelu(x: Array) -> Array:
    """x Φ(x), with the normal distribution's Φ."""
    return np.asarray(x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)


def gelu_tanh(x: Array) -> Array:
    return np.asarray(x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


# ── the parts of a transformer ───────────────────────────────────────────────────────────────────────────────────────


def layer_norm(X: Array, gain: Array, shift: Array, eps: float) -> Array:
    """(x - μ) / √(σ² + ε) · γ + β for each token."""
    mean = X.mean(-1, keepdims=True)
    variance = ((X - mean) ** 2).mean(-1, keepdims=True)
    return np.asarray((X - mean) / np.sqrt(variance + eps) * gain + shift)


def rms_norm(X: Array, gain: Array, eps: float) -> Array:
    return np.asarray(X / np.sqrt((X**2).mean(-1, keepdims=True) + eps) * gain)


def rotated(X: Array, theta: float) -> Array:
    """(N, d_k): at position p, the numbers i and i + d_k/2 are one complex number, turned by p · θ^(-2i/d_k)."""
    half = X.shape[1] // 2
    angles = np.arange(len(X))[:, None] * theta ** (-np.arange(half) / half)
    Z = (X[:, :half] + 1j * X[:, half:]) * np.exp(1j * angles)
    return np.concatenate([Z.real, Z.imag], 1)


def attend(Q: Array, K: Array, V: Array, sees: Array, scale: float) -> Array:
    """One head: Z = softmax(scale · Q Kᵀ) V over the keys that each query sees."""
    S = np.where(sees, Q @ K.T * scale, -np.inf)  # (N, T)
    return np.asarray(softmax(S) @ V)


def split(X: Array, heads: int) -> list[Array]:
    """(N, h · d_k) → h matrices (N, d_k)."""
    return np.split(X, heads, axis=1)


def looking_back(n: int, window: int | None = None) -> Array:
    """(N, N): a token sees itself and those before it, at most `window` in all."""
    back = np.arange(n)[:, None] - np.arange(n)
    return np.asarray((back >= 0) & (back < (window or n)))


# ── whole networks ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Weights:
    tensors: dict[str, Array]
    config: dict[str, Any]

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name].astype(np.float64)

    def linear(self, X: Array, name: str) -> Array:
        """X W + b; a file holds W turned, (out, in), and perhaps no b."""
        Y = X @ self[f"{name}.weight"].T
        return np.asarray(Y + self[f"{name}.bias"]) if f"{name}.bias" in self.tensors else np.asarray(Y)

    def norm(self, X: Array, name: str, eps: float) -> Array:
        return layer_norm(X, self[f"{name}.weight"], self[f"{name}.bias"], eps)


def opened(directory: Path) -> Weights:
    return Weights(load_file(directory / "model.safetensors"), json.loads((directory / "config.json").read_text()))


class GPT2(Weights):
    def stream(self, ids: Sequence[int]) -> list[Array]:
        """The residual stream (N, d): what the embedding gives out, and each block."""
        c = self.config
        X = self["transformer.wte.weight"][list(ids)] + self["transformer.wpe.weight"][: len(ids)]
        stream = [X]
        for i in range(c["n_layer"]):
            at = f"transformer.h.{i}"
            normed = self.norm(X, f"{at}.ln_1", c["layer_norm_epsilon"])
            Q, K, V = np.split(self.turned(normed, f"{at}.attn.c_attn"), 3, axis=1)
            scale = 1 / math.sqrt(c["n_embd"] / c["n_head"]) if c["scale_attn_weights"] else 1.0
            scale /= i + 1 if c["scale_attn_by_inverse_layer_idx"] else 1
            heads = zip(*(split(x, c["n_head"]) for x in (Q, K, V)), strict=True)
            Z = np.concatenate([attend(q, k, v, looking_back(len(ids)), scale) for q, k, v in heads], 1)
            H = X + self.turned(Z, f"{at}.attn.c_proj")
            normed = self.norm(H, f"{at}.ln_2", c["layer_norm_epsilon"])
            up = ACTIVATIONS[c["activation_function"]](self.turned(normed, f"{at}.mlp.c_fc"))
            X = H + self.turned(up, f"{at}.mlp.c_proj")
            stream.append(X)
        return stream

    def turned(self, X: Array, name: str) -> Array:
        """X W + b, with W as the lectures write it: so GPT-2's files do."""
        return np.asarray(X @ self[f"{name}.weight"] + self[f"{name}.bias"])

    def logits(self, X: Array) -> Array:
        """What the end of the network makes of states: last norm, then a score for each token of the vocabulary."""
        tied = "lm_head.weight" not in self.tensors
        X = self.norm(X, "transformer.ln_f", self.config["layer_norm_epsilon"])
        return np.asarray(X @ self["transformer.wte.weight" if tied else "lm_head.weight"].T)


class Llama(Weights):
    """Also Mistral, which is a Llama that sees only so far back."""

    def stream(self, ids: Sequence[int]) -> list[Array]:
        c = self.config
        h, g, eps, theta = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"], self.theta
        X = self["model.embed_tokens.weight"][list(ids)]
        stream = [X]
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}"
            normed = rms_norm(X, self[f"{at}.input_layernorm.weight"], eps)
            Q = split(self.linear(normed, f"{at}.self_attn.q_proj"), h)
            K = split(self.linear(normed, f"{at}.self_attn.k_proj"), g)
            V = split(self.linear(normed, f"{at}.self_attn.v_proj"), g)
            sees, scale = looking_back(len(ids), c.get("sliding_window")), 1 / math.sqrt(Q[0].shape[1])
            Z = [
                attend(rotated(Q[n], theta), rotated(K[n * g // h], theta), V[n * g // h], sees, scale)
                for n in range(h)  # h / g queries in a row share a key and a value
            ]
            H = X + self.linear(np.concatenate(Z, 1), f"{at}.self_attn.o_proj")
            normed = rms_norm(H, self[f"{at}.post_attention_layernorm.weight"], eps)
            gate = ACTIVATIONS[c["hidden_act"]](self.linear(normed, f"{at}.mlp.gate_proj"))
            X = H + self.linear(gate * self.linear(normed, f"{at}.mlp.up_proj"), f"{at}.mlp.down_proj")
            stream.append(X)
        return stream

    @property
    def theta(self) -> float:
        return float(self.config["rope_parameters"]["rope_theta"])

    def logits(self, X: Array) -> Array:
        tied = "lm_head.weight" not in self.tensors
        X = rms_norm(X, self["model.norm.weight"], self.config["rms_norm_eps"])
        return np.asarray(X @ self["model.embed_tokens.weight" if tied else "lm_head.weight"].T)


class Bart(Weights):
    """An encoder and a decoder, with each norm behind its sum."""

    EPS = 1e-5

    def encode(self, source: Sequence[int]) -> Array:
        c, everywhere = self.config, np.full((len(source),) * 2, True)
        X = self.embedded(source, "model.encoder")
        for i in range(c["encoder_layers"]):
            at, h = f"model.encoder.layers.{i}", c["encoder_attention_heads"]
            X = self.added(X, self.attention(X, X, f"{at}.self_attn", h, everywhere), f"{at}.self_attn_layer_norm")
            X = self.added(X, self.mlp(X, at), f"{at}.final_layer_norm")
        return X

    def stream(self, source: Sequence[int], target: Sequence[int]) -> list[Array]:
        """The decoder's, which reads the source through cross attention."""
        c, Y = self.config, self.encode(source)
        everywhere = np.full((len(target), len(source)), True)
        X = self.embedded(target, "model.decoder")
        stream = [X]
        for i in range(c["decoder_layers"]):
            at, h = f"model.decoder.layers.{i}", c["decoder_attention_heads"]
            back = self.attention(X, X, f"{at}.self_attn", h, looking_back(len(target)))
            X = self.added(X, back, f"{at}.self_attn_layer_norm")
            X = self.added(
                X, self.attention(X, Y, f"{at}.encoder_attn", h, everywhere), f"{at}.encoder_attn_layer_norm"
            )
            X = self.added(X, self.mlp(X, at), f"{at}.final_layer_norm")
            stream.append(X)
        return stream

    def logits(self, X: Array) -> Array:
        return np.asarray(X @ self["model.shared.weight"].T + self["final_logits_bias"])

    def embedded(self, ids: Sequence[int], at: str) -> Array:
        """The table of positions has two rows that belong to none."""
        scale = math.sqrt(self.config["d_model"]) if self.config["scale_embedding"] else 1.0
        places = self[f"{at}.embed_positions.weight"][2 : 2 + len(ids)]
        X = self["model.shared.weight"][list(ids)] * scale + places
        return self.norm(X, f"{at}.layernorm_embedding", self.EPS)

    def attention(self, X: Array, Y: Array, at: str, h: int, sees: Array) -> Array:
        """Queries of X, keys and values of Y."""
        Q = split(self.linear(X, f"{at}.q_proj"), h)
        K, V = (split(self.linear(Y, f"{at}.{kind}_proj"), h) for kind in "kv")
        scale = 1 / math.sqrt(Q[0].shape[1])
        Z = [attend(*head, sees, scale) for head in zip(Q, K, V, strict=True)]
        return self.linear(np.concatenate(Z, 1), f"{at}.out_proj")

    def mlp(self, X: Array, at: str) -> Array:
        up = ACTIVATIONS[self.config["activation_function"]](self.linear(X, f"{at}.fc1"))
        return self.linear(up, f"{at}.fc2")

    def added(self, X: Array, change: Array, norm: str) -> Array:
        return self.norm(X + change, norm, self.EPS)


NETWORKS: dict[str, type[GPT2] | type[Llama] | type[Bart]] = {
    "gpt2": GPT2,
    "llama": Llama,
    "mistral": Llama,
    "bart": Bart,
}


def network(directory: Path) -> Any:
    weights = opened(directory)
    return NETWORKS[weights.config["model_type"]](weights.tensors, weights.config)


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def order(scores: Sequence[float] | Array) -> list[int]:
    """Ids by falling score, equal ones by rising id."""
    return sorted(range(len(scores)), key=lambda id: (-scores[id], id))


def best(scores: Sequence[float] | Array) -> int:
    """argmax; of equal ones the first."""
    return order(scores)[0]


def top_k(p: Array, k: int) -> Array:
    """Whether a token is among the k likeliest, or as likely as the k-th."""
    return np.asarray(p >= sorted(p, reverse=True)[min(k, len(p)) - 1])


def top_p(p: Array, share: float) -> Array:
    """The fewest of the likeliest tokens that have this share together (Holtzman et al. 2020)."""
    kept, together = np.full(len(p), False), 0.0
    for id in order(p):
        if together >= share:
            break
        kept[id] = True
        together += p[id]
    return kept


def min_p(p: Array, share: float) -> Array:
    """Those at least this share as likely as the likeliest (Nguyen et al. 2024)."""
    return np.asarray(p >= share * p.max())


def typical_p(p: Array, share: float) -> Array:
    """The fewest of the tokens with the most expected surprise that have this share together, and those that tie with
    the last of them (Meister et al. 2023)."""
    real = p > 0
    surprise = -np.log(np.where(real, p, 1))
    far = np.where(real, np.abs(surprise - (p * surprise).sum()), np.inf)
    together, last = 0.0, 0.0
    for id in np.argsort(far, kind="stable"):
        if together >= share:
            break
        together, last = together + p[id], far[id]
    return np.asarray(far <= last + 1e-9)


CUTS: dict[str, Callable[[Array, Any], Array]] = {
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
    "typical_p": typical_p,
}


def distribution(logits: Array, temperature: float, **cuts: float) -> Array:
    """softmax(logits / temperature), then the cuts in their order, each on what the former left."""
    p = softmax(logits.astype(np.float64) / temperature)
    for name, cut in CUTS.items():
        if name in cuts:
            p = np.where(cut(p, cuts[name]), p, 0.0)
            p = p / p.sum()
    return p


Next = Callable[[list[int]], Array]  # what is written so far → logits of what follows


def greedy(following: Next, length: int) -> list[int]:
    written: list[int] = []
    for _ in range(length):
        written.append(best(following(written)))
    return written


def beam_search(
    following: Next, k: int, length: int, ends: Sequence[int] = (), penalty: float = 1.0
) -> list[tuple[float, list[int]]]:
    """The k best finished texts and their scores, best first.

    A text's score is the sum of its tokens' log-probabilities, a finished one's divided by its length to the power of
    `penalty`. At each step all continuations of the k best unfinished texts are put in order. One that ends (with one of
    `ends`, or with `length` tokens) counts if it is among the first k; of the others k go on. The search is over when the
    best of these is not better than the worst of k finished ones.
    """
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    while running:
        longer = list[tuple[float, list[int]]]()
        for score, text in running:
            logits = following(text)
            own = logits - log_sum_exp(logits)
            longer += [(score + own[id], [*text, id]) for id in range(len(own))]
        longer.sort(key=lambda each: -each[0])
        going = list[tuple[float, list[int]]]()
        for rank, (score, text) in enumerate(longer):
            if text[-1] not in ends and len(text) < length:
                going.append((score, text))
            elif rank < k:
                finished.append((score / len(text) ** penalty, text))
        finished = sorted(finished, key=lambda each: -each[0])[:k]
        running = going[:k]
        if len(finished) == k and running and running[0][0] / len(running[0][1]) ** penalty <= finished[-1][0]:
            break
    return finished


def best_text(following: Next, length: int, n_vocab: int) -> tuple[float, list[int]]:
    """The likeliest of all texts of that length, each of which is looked at."""
    everything: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(length):
        longer = list[tuple[float, list[int]]]()
        for score, text in everything:
            logits = following(text)
            own = logits - log_sum_exp(logits)
            longer += [(score + own[id], [*text, id]) for id in range(n_vocab)]
        everything = longer
    return max(everything, key=lambda each: each[0])
