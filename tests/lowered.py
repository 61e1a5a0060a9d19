"""Networks put together from parts, on the native engine and in numpy, which is the definition."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from regard.engine.lowering import lower
from regard.engine.native_engine import NativeDecoder, NativeEngine, NativeTranslator
from regard.engine.weights import Stored
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec
from regard.model.transformer import network
from regard.nn.block import PreNorm
from regard.nn.operations import add
from regard.nn.part import Part, weights, with_arrays
from regard.nn.see import see

TEXTS = [[7, 9, 12, 3, 18, 8, 2], [8, 14, 9]]  # what is read, or a prompt
THEN = [[4, 11], [5, 1], [6, 6]]  # what is written behind each of them, a token at a time
START = [[2, 5], [2, 5]]
CLOSE = 1e-4  # float32

GPT = StackSpec(
    n_layers=2,
    n_vocab=20,
    wiring="pre",
    norm="layer",
    eps=1e-5,
    attention=AttentionSpec(heads=3, kv_heads=3, d_k=8),
    mlp=MLPSpec(d_ff=21, activation="gelu_tanh"),
    positions=PositionSpec("learned", 32, offset=2),
    embed_scale=1.7,
    final_norm=True,
)
LLAMA = replace(
    GPT,
    norm="rms",
    attention=AttentionSpec(heads=4, kv_heads=2, d_k=6, bias=True, out_bias=False),
    mlp=MLPSpec(d_ff=21, activation="silu", gated=True, bias=False),
    positions=PositionSpec("rotary", 32),
    windows=(None, 4),
    embed_scale=1.0,
)
BERT = replace(GPT, wiring="post", embed_norm=True, n_types=2, final_norm=False, embed_scale=1.0)
MARIAN = replace(GPT, wiring="post", positions=PositionSpec("sinusoidal", 32, halves=True), final_norm=False)
PRE = replace(GPT, n_layers=3, attention=AttentionSpec(heads=2, kv_heads=2, d_k=8))

SPECS = {
    "gpt": Spec("gpt2", 24, None, GPT, HeadSpec("lm")),
    "llama": Spec("llama", 24, None, LLAMA, HeadSpec("lm")),
    "bert": Spec("bert", 24, BERT, None, HeadSpec("none")),
    "marian": Spec("marian", 24, MARIAN, MARIAN, HeadSpec("lm", bias=True)),
    "pre": Spec("bart", 24, GPT, PRE, HeadSpec("lm")),
}


class Arrays(dict[str, np.ndarray]):
    """A network's weights, made up, as the engine asks for them."""

    def __init__(self, net: Part, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        for name, weight in weights(net):
            x = random.standard_normal(weight.shape) * 0.3 + (weight.start == 1.0)
            self[name] = x.astype(np.float32)

    def canonical_name(self, name: str) -> str:
        return name

    def form(self, name: str) -> tuple[str, int, int]:
        return "F32", *self[name].shape

    def matrix(self, name: str, format: str) -> Stored:
        return Stored(format, self[name].view(np.uint8), self[name].shape[1])

    def vector(self, name: str) -> np.ndarray | None:
        return self.get(name)


def defined(net: Any, arrays: Arrays) -> np.ndarray:
    """In numpy: states, or the logits of what follows each text, and each token that is written behind it."""
    computed: Any = with_arrays(net, arrays)
    if net.spec.kind == "encoder":
        return np.concatenate([computed.states(np.array([text]))[0] for text in TEXTS])
    rows = []
    for i, (text, start) in enumerate(zip(TEXTS, START, strict=True)):
        whole = [*(text if net.spec.kind == "decoder" else start), *(new[i] for new in THEN)]
        ids = np.array([whole])
        logits = computed(ids) if net.spec.kind == "decoder" else computed(np.array([text]), ids)
        rows.append(logits[0, -len(THEN) - 1 :])
    return np.concatenate(rows)


def native(net: Any, arrays: Arrays) -> np.ndarray:
    """The same on the engine. `Refused` if it does not know the network."""
    spec = net.spec
    engine = NativeEngine(spec, arrays, lowered=lower(net, spec.source_context, spec.context), max_rows=16, threads=2)
    if spec.kind == "encoder":
        return np.concatenate(list(engine.states(TEXTS)))
    stepper = NativeDecoder(engine, TEXTS, 8) if spec.kind == "decoder" else NativeTranslator(engine, TEXTS, START, 8)
    steps = [stepper.prefill(), *(stepper.step(new) for new in THEN)]
    return np.stack(steps, 1).reshape(-1, engine.decoder.width)  # type: ignore[union-attr]


def difference(net: Part) -> float:
    """Between the two; NaN if anything is not a number."""
    arrays = Arrays(net)
    return float(np.abs(native(net, arrays) - defined(net, arrays)).max())


def made(name: str) -> Any:
    return network(SPECS[name])


def with_blocks(name: str, change: Callable[[Any], Any]) -> Any:
    """The network with other blocks made of the parts of its own."""
    net = made(name)
    net.decoder = [change(block) for block in net.decoder]
    return net


def copied(part: Any, kind: type, **more: Any) -> Any:
    """The part as one of another class."""
    new: Any = object.__new__(kind)
    vars(new).update(vars(part), **more)
    return new


class ParallelInTwoSums(PreNorm):
    """The first sum stands before X is read for the second."""

    def forward(self, X: Any, **where: Any) -> Any:
        H = see("H", add(X, self.attention(self.norm_1(X), **where)))
        return see("out", add(H, self.mlp(self.norm_2(X))))
