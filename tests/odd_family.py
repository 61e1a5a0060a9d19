"""A family with steps that no other has, under names that no other uses: what asks about a network must follow its edges.

Q and K are normed and turned, dot products scaled, sloped by distance (ALiBi), capped, masked; the weights may share their
row with a sink; attention and MLP stand side by side. One file, as docs/add-an-architecture.md says.
"""

import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.model.build import build, parameters_of
from regard.model.config import Config
from regard.model.registry import FAMILIES, Family, spec_of
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec, head_size
from regard.model.transformer import DecoderOnly
from regard.model.weight_map import Rule, Table
from regard.nn.expression import Expr, call, total
from regard.nn.linear import Linear, Projection
from regard.nn.mask import Mask
from regard.nn.norm import LayerNorm, RMSNorm
from regard.nn.operation import OPERATIONS, Axes, Index, Operand, Operation, Symbol, arange, cast, library_of
from regard.nn.operations import activation, add, cap, dot, join, k, mask, mix, rotate, scale, softmax, split
from regard.nn.part import Part, Weight, weights
from regard.nn.see import see
from regard.store.hub import bundled
from regard.store.save_model import ModelFiles, save_directory

MOST = 3.0  # of scores


class Slope(Operation):
    """Less, the further back a key lies: ALiBi (Press et al., 2022)."""

    notation = "{S} - {m} · (i - j)"

    def run(self, S: Any, m: Any) -> Any:
        N, T = S.shape[-2:]
        far = arange(T - N, T, S)[:, None] - arange(0, T, S)
        return S - m[:, None, None] * cast(far, S)

    def axes(self, S: Symbol, m: Symbol) -> Axes:
        return S.axes

    def formula(self, at: Index, S: Operand, m: Operand) -> Expr:
        h, i, j = at
        return S(h, i, j) - m(h) * (i - j)


class Distance(Operation):
    """The same as numbers of their own, which follow from where queries and keys stand."""

    notation = "-{m} · (i - j)"

    def run(self, Q: Any, K: Any, m: Any) -> Any:
        N, T = Q.shape[-2], K.shape[-2]
        far = arange(T - N, T, Q)[:, None] - arange(0, T, Q)
        return -m[:, None, None] * cast(far, Q)

    def axes(self, Q: Symbol, K: Symbol, m: Symbol) -> Axes:
        return (*Q.axes[:-1], K.axes[-2])

    def formula(self, at: Index, Q: Operand, K: Operand, m: Operand) -> Expr:
        h, i, j = at
        return -m(h) * (i - j)


class Sink(Operation):
    """A softmax in which something that is no key takes its share: rows sum to less than 1."""

    notation = "softmax({S}), {sink} beside"

    def run(self, S: Any, sink: Any) -> Any:
        xp = library_of(S)
        e = xp.exp(S)
        return e / (e.sum(-1) + xp.exp(sink)[:, None])[..., None]

    def axes(self, S: Symbol, sink: Symbol) -> Axes:
        return S.axes

    def formula(self, at: Index, S: Operand, sink: Operand) -> Expr:
        h, i, j = at
        return call("exp", S(h, i, j)) / (total("k", S.sizes[-1], call("exp", S(h, i, k))) + call("exp", sink(h)))


slope, distance, sink = (OPERATIONS.pop(name) for name in ("slope", "distance", "sink"))  # of this family alone


class Looking(Part):
    def __init__(self, d: int, a: AttentionSpec) -> None:
        self.heads, self.d_k = a.heads, a.d_k
        self.W_q, self.W_k, self.W_v = (Projection(d, d, False) for _ in "qkv")
        self.norm_q, self.norm_k = RMSNorm(a.d_k), RMSNorm(a.d_k)
        self.slopes: Any = Weight((("head", a.heads),))
        self.W_o = Linear(d, d, False)

    def lean(self, S: Any, Q: Any, K: Any) -> Any:
        return slope(S, self.slopes)

    def weigh(self, S: Any) -> Any:
        return softmax(S)

    def forward(self, X: Any, real: Any = None, angles: Any = None, cache: Any = None) -> Any:
        Q, K, V = (split(W(X), heads=self.heads) for W in (self.W_q, self.W_k, self.W_v))
        Q, K, V = see("asked", Q), see("offered", K), see("told", V)
        Q, K = see("asks", rotate(self.norm_q(Q), *angles)), see("offers", rotate(self.norm_k(K), *angles))
        if cache is not None:
            K, V = cache.extend(K, V)
        S = see("shrunk", scale(see("products", dot(Q, K)), by=self.d_k**-0.5, label=f"1/√{self.d_k}"))
        S = see("capped", cap(see("sloped", self.lean(S, Q, K)), most=MOST))
        A = see("looks", self.weigh(see("hidden", mask(S, by=Mask(True, None, real)))))
        return see("said", self.W_o(join(see("found", mix(A, V)))))


class LookingBeside(Looking):
    """With a sink, and with slopes that are a bias: numbers that are added."""

    def __init__(self, d: int, a: AttentionSpec) -> None:
        super().__init__(d, a)
        self.sink: Any = Weight((("head", a.heads),))

    def lean(self, S: Any, Q: Any, K: Any) -> Any:
        return add(S, see("distance", distance(Q, K, self.slopes)))

    def weigh(self, S: Any) -> Any:
        return sink(S, self.sink)


class Thinking(Part):
    def __init__(self, d: int, m: MLPSpec) -> None:
        self.fan_out, self.fan_in, self.activation = Linear(d, m.d_ff, True, "neuron"), Linear(m.d_ff, d), m.activation

    def forward(self, X: Any) -> Any:
        return see(
            "thought", self.fan_in(see("bent", activation(see("wide", self.fan_out(X)), function=self.activation)))
        )


class SideBySide(Part):
    """X + attention(norm(X)) + mlp(norm(X)): one norm for both."""

    def __init__(self, looking: Part, thinking: Part, norm: Part) -> None:
        self.before, self.looking, self.thinking = norm, looking, thinking

    def forward(self, X: Any, **where: Any) -> Any:
        Y = self.before(X)
        return see("out", add(X, self.looking(Y, **where), self.thinking(Y)))


def network(spec: Spec) -> DecoderOnly:
    stack = spec.stacks["decoder"]
    looking = LookingBeside if dict(spec.own)["sink"] else Looking
    blocks: list[Part] = [
        SideBySide(looking(spec.d, stack.attention), Thinking(spec.d, stack.mlp), LayerNorm(spec.d))
        for _ in range(stack.n_layers)
    ]
    return DecoderOnly(spec, stack, blocks)


def spec(c: Config, names: Collection[str]) -> Spec:
    d, heads = c.size("hidden_size"), c.size("num_attention_heads")
    limit = c.size("max_position_embeddings")
    stack = StackSpec(
        n_layers=c.layers("num_hidden_layers"),
        n_vocab=c.size("vocab_size"),
        wiring="pre",
        norm="layer",
        eps=1e-5,
        attention=AttentionSpec(heads, heads, head_size(d, heads)),
        mlp=MLPSpec(c.size("intermediate_size"), "gelu"),
        positions=PositionSpec("rotary", limit),
        final_norm=True,
    )
    own = (("sink", c.flag("sink", default=False)),)
    return Spec(
        family="odd",
        d=d,
        encoder=None,
        decoder=stack,
        head=HeadSpec("lm"),
        eos_ids=c.ids("eos_token_id", (0,)),
        own=own,
    )


def table(config: Mapping[str, Any], spec: Spec) -> Table:
    return Table(rules=tuple(Rule(name, name) for name, _ in weights(network(spec))))


FAMILY = Family("odd", spec, table, network=network)

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 37}
CONFIG: dict[str, Any] = {"model_type": "odd", "vocab_size": 800, "max_position_embeddings": 40, **SIZES}


def make(directory: Path, seed: int = 0, **settings: Any) -> Path:
    """A random model of the family, with the tokenizer of toy-gpt. The family must be known."""
    config = CONFIG | settings
    made = spec_of(config)
    net = build(made)
    torch.manual_seed(seed)
    with torch.no_grad():
        for path, p in net.named_parameters():
            p.copy_(
                torch.randn_like(p) * (0.2 if "slopes" in path else 0.4)
                + (1.0 if "norm" in path or "before" in path else 0.0)
            )
    save_directory(directory, ModelFiles(parameters_of(net), made, FAMILY, config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled()["toy-gpt"] / file, directory / file)
    return directory


def known(patch: pytest.MonkeyPatch) -> None:
    """Register the family, as a line in registry.py would."""
    patch.setitem(sys.modules, "regard.model.family.odd", sys.modules[__name__])
    patch.setitem(FAMILIES, "odd", "odd")
