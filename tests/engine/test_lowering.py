"""The native engine computes a network from its graph, or names the operation that it does not support."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowered
import regard
from lowered import ParallelInTwoSums, copied, with_blocks
from regard.engine import lowering
from regard.engine.buffers import assign_buffers
from regard.engine.native import build
from regard.engine.native.library import library, open_library
from regard.engine.program import Attend, Norm, Pick, Product
from regard.engine.record_graph import Unsupported
from regard.model import transformer
from regard.model.spec import AttentionSpec, MLPSpec, PositionSpec, Spec
from regard.nn import operations as o
from regard.nn.attention import MultiHead, attend
from regard.nn.block import PreNorm
from regard.nn.linear import Linear
from regard.nn.mlp import MLP
from regard.nn.norm import LayerNorm, RMSNorm, layer_norm
from regard.nn.operation import OPERATIONS, Operation
from regard.nn.part import Part
from regard.nn.position import Rotary
from regard.nn.see import see

needs_native = pytest.mark.skipif(library() is None, reason="the native engine is not built here")


def with_part(name: str, attribute: str, change: Callable[[Any], Any]) -> Any:
    """The network with a part changed, in every block if it is a block's."""
    path, _, last = attribute.rpartition(".")

    def put(part: Any) -> Any:
        inner = getattr(part, path) if path else part
        setattr(inner, last, change(getattr(inner, last)))
        return part

    return put(lowered.made(name)) if hasattr(lowered.made(name), attribute) else with_blocks(name, put)


def with_stack(name: str, **changes: Any) -> Any:
    spec = lowered.SPECS[name]
    assert spec.decoder is not None
    return transformer.network(replace(spec, decoder=replace(spec.decoder, **changes)))


# ── what it computes, though nobody told it about these networks ─────────────────────────────────────────────────────


class Parallel(PreNorm):
    """Attention and MLP in parallel, each with a norm of its own (GPT-NeoX)."""

    def forward(self, X: Any, **where: Any) -> Any:
        return see("out", o.add(X, self.attention(self.norm_1(X), **where), self.mlp(self.norm_2(X))))


class ParallelOneNorm(PreNorm):
    """… and one norm for both (GPT-J)."""

    def forward(self, X: Any, **where: Any) -> Any:
        normed = self.norm_1(X)
        return see("out", o.add(self.attention(normed, **where), self.mlp(normed), X))


class GemmaNorm(RMSNorm):
    def forward(self, X: Any) -> Any:
        return see("out", o.affine(o.normalise(X, o.mean_square(X), eps=self.eps), self.weight, plus=1.0))


class Weightless(LayerNorm):
    def forward(self, X: Any) -> Any:
        return see("out", layer_norm(X, None, None, self.eps))


class Bilinear(Part):
    """Two maps multiplied, without an activation; the operands of the sum after it are swapped."""

    def __init__(self, mlp: MLP) -> None:
        self.a, self.b, self.down = (Linear(m.fan_in, m.fan_out, bias) for m, bias in
                                     ((mlp.up, True), (mlp.up, False), (mlp.down, True)))  # fmt: skip

    def forward(self, X: Any) -> Any:
        return self.down(o.copy(o.gate(self.a(X), self.b(X))))


class GateLast(Bilinear):
    def forward(self, X: Any) -> Any:
        return self.down(o.gate(self.a(X), o.activation(self.b(X), function="gelu")))


class Bent(PreNorm):
    """An activation between the MLP and the sum."""

    def forward(self, X: Any, **where: Any) -> Any:
        H = o.add(self.attention(self.norm_1(X), **where), X)
        return o.add(o.activation(self.mlp(self.norm_2(H)), function="tanh"), H)


def some_biases(attention: MultiHead) -> MultiHead:
    attention.W_k.bias = None
    return attention


LOWERED: dict[str, Callable[[], Any]] = {
    **{name: partial(lowered.made, name) for name in lowered.SPECS},
    "a parallel block": lambda: with_blocks("llama", lambda b: copied(b, Parallel)),
    "a parallel block with biases": lambda: with_blocks("gpt", lambda b: copied(b, Parallel)),
    "a parallel block with one norm": lambda: with_blocks("gpt", lambda b: copied(b, ParallelOneNorm)),
    "a parallel block in two sums": lambda: with_blocks("llama", lambda b: copied(b, ParallelInTwoSums)),
    "partial rotary": lambda: with_part("llama", "rotary", lambda r: Rotary(4)),
    "one pair turned": lambda: with_part("llama", "rotary", lambda r: Rotary(2, 100.0)),
    "γ + 1": lambda: with_part("llama", "norm_1", lambda n: copied(n, GemmaNorm)),
    "γ + 1 at the end": lambda: with_part("llama", "final_norm", lambda n: copied(n, GemmaNorm)),
    "a norm without weights": lambda: with_part(
        "gpt", "norm_2", lambda n: copied(n, Weightless, weight=None, bias=None)
    ),
    "a layer norm without β": lambda: with_part("gpt", "norm_1", lambda n: copied(n, LayerNorm, bias=None)),
    "no final norm": lambda: with_part("gpt", "final_norm", lambda n: None),
    "a gate without activation": lambda: with_part("gpt", "mlp", Bilinear),
    "the gate last": lambda: with_part("gpt", "mlp", GateLast),
    "an activation before the sum": lambda: with_blocks("gpt", lambda b: copied(b, Bent)),
    "a bias for queries and values only": lambda: with_part("llama", "attention", some_biases),
    "unscaled": lambda: with_stack("gpt", attention=AttentionSpec(3, 1, 8, scaled=False)),
    "rotary behind types": lambda: with_stack("llama", n_types=2, embed_norm=True),
    "sinusoids": lambda: with_stack("gpt", positions=PositionSpec("sinusoidal", 32, offset=1, stretch=True)),
    "norms last": lambda: with_stack("llama", wiring="post"),
    "one layer": lambda: with_stack("pre", n_layers=1),
}


@needs_native
@pytest.mark.parametrize("name", LOWERED)
def test_lowered_equals_the_definition(name: str) -> None:
    assert lowered.difference(LOWERED[name]()) < lowered.CLOSE


@needs_native
def test_fusion_of_parallel_and_serial_blocks() -> None:
    """A parallel block takes no more steps than a serial one; its norms are fused into the products."""
    serial, parallel = (
        lowering.lower(net, 32, 32).decoder for net in (lowered.made("llama"), LOWERED["a parallel block"]())
    )
    assert serial is not None
    assert parallel is not None
    kinds = [type(step) for step in serial.steps]
    assert sorted(kinds, key=str) == sorted((type(step) for step in parallel.steps), key=str)
    assert Norm not in kinds
    assert kinds.count(Product) == 4 * 2 + 1
    assert kinds[-6:] == [Attend, Pick, Pick, Product, Product, Product, Product][-6:]
    assert len(assign_buffers(serial.steps, None).widths) == 4
    assert len(assign_buffers(parallel.steps, None).widths) <= 5


@pytest.mark.parametrize("name", LOWERED)
def test_no_buffer_is_overwritten_before_its_last_reader(name: str) -> None:
    """Buffers are reused; no value is overwritten before its last reader, by steps or by C's temporary."""
    net = LOWERED[name]()
    both = lowering.lower(net, net.spec.source_context, net.spec.context)
    for program in (both.encoder, both.decoder):
        if program is None:
            continue
        buffers, there = assign_buffers(program.steps, program.result), dict[int, Any]()
        for step in program.steps:
            assert all(there[buffers.of[value]] is value for value in step.reads)
            if isinstance(step, Product) and step.temporary:
                there[0] = None
                assert step.temporary <= buffers.widths[0]
                assert 0 not in {buffers.of[value] for value in (*step.reads, step.out) if value is not None}
            if step.out is not None:
                onto = step.onto if isinstance(step, Product) else step.X if isinstance(step, Norm) else None
                free = [value for value in step.reads if value is not onto]
                assert buffers.of[step.out] not in {buffers.of[value] for value in free}
                assert step.out.width <= buffers.widths[buffers.of[step.out]]
                there[buffers.of[step.out]] = step.out
        assert program.result is None or there[buffers.of[program.result]] is program.result


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────────


class Capped(MultiHead):
    def attend(self, Q: Any, K: Any, V: Any, by: Any) -> Any:
        S = see("capped", o.cap(o.scale(o.dot(Q, K), by=self.scale), most=30.0))
        return o.mix(o.softmax(o.mask(S, by=by)), V)


class NormedQueries(MultiHead):
    """A norm on Q (Qwen3)."""

    def attend(self, Q: Any, K: Any, V: Any, by: Any) -> Any:
        return super().attend(see("Q_normed", o.normalise(Q, o.mean_square(Q), eps=1e-6)), K, V, by)


class Everywhere(MultiHead):
    """Attention without a causal mask."""

    def attend(self, Q: Any, K: Any, V: Any, by: Any) -> Any:
        return see("Z", attend(Q, K, V))


class Backwards(MultiHead):
    """Scores with the values, and mixes the keys."""

    def attend(self, Q: Any, K: Any, V: Any, by: Any) -> Any:
        return super().attend(Q, V, K, by)


class Sandwich(PreNorm):
    """A norm before the sum (Gemma 2)."""

    def forward(self, X: Any, **where: Any) -> Any:
        H = see("H", o.add(X, self.norm_2(self.attention(self.norm_1(X), **where))))
        return see("out", o.add(H, self.mlp(H)))


class Twice(PreNorm):
    """The MLP's hidden state is also read outside of it."""

    def forward(self, X: Any, **where: Any) -> Any:
        mlp: Any = self.mlp
        up = see("up", mlp.up(self.attention(self.norm_1(X), **where)))
        return see("out", o.add(X, mlp.down(o.gate(o.activation(up, function="relu"), up))))


class KeptX(PreNorm):
    """X is added to, and needed afterwards for something that needs the sum."""

    def forward(self, X: Any, **where: Any) -> Any:
        H = see("H", o.add(X, self.attention(self.norm_1(X), **where)))
        return see("out", o.add(X, self.mlp(self.norm_2(H))))


class Measured(PreNorm):
    """A norm by the spread of another tensor."""

    def forward(self, X: Any, **where: Any) -> Any:
        H = o.add(X, self.attention(self.norm_1(X), **where))
        return o.add(H, self.mlp(see("odd", o.normalise(H, o.mean_square(X), eps=1e-6))))


class ComputedBias(MLP):
    def forward(self, X: Any) -> Any:
        up = see("up", o.linear(X, self.up.weight, o.scale(self.up.bias, by=2.0)))
        return self.down(o.activation(up, function="relu"))


class CappedLogits(transformer.DecoderOnly):
    def logits(self, states: Any) -> Any:
        return see("logits", o.cap(self.unembed(states), most=30.0))


def last_layer(change: Callable[[Any], Any], name: str = "llama") -> Any:
    net = lowered.made(name)
    net.decoder[-1] = change(net.decoder[-1])
    return net


def own_rotary(block: Any) -> Any:
    """Other angles in one layer (Gemma 3)."""

    class Turned(PreNorm):
        def forward(self, X: Any, **where: Any) -> Any:
            rotary: Any = self.rotary
            angles = where.pop("angles")
            return super().forward(X, angles=rotary(o.positions(angles[0].inputs[0].inputs[0])), **where)

    return copied(block, Turned, rotary=Rotary(6, 100.0))


def smaller_heads(block: Any) -> Any:
    block.attention = MultiHead(24, 2, 1, 6, causal=True)
    return block


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a cap on the scores": (
        lambda: with_part("llama", "attention", lambda a: copied(a, Capped)),
        "does not know how to compute `cap` at decoder.0.attention.capped",
    ),
    "a cap on the logits": (
        lambda: copied(lowered.made("gpt"), CappedLogits),
        "does not know how to compute `cap` at logits",
    ),
    "a norm on Q": (
        lambda: with_part("gpt", "attention", lambda a: copied(a, NormedQueries)),
        "does not know how to compute `normalise` at decoder.1.attention.Q_normed",
    ),
    "a norm before the sum": (
        lambda: with_blocks("gpt", lambda b: copied(b, Sandwich)),
        "does not know how to compute `add` at decoder.1.H",
    ),
    "attention that looks ahead": (
        lambda: with_part("gpt", "attention", lambda a: copied(a, Everywhere)),
        "does not know how to compute `softmax` at decoder.1.attention.weights without a causal mask",
    ),
    "values that are turned, and keys that are not": (
        lambda: with_part("llama", "attention", lambda a: copied(a, Backwards)),
        "does not know how to compute `mix` at decoder.1.attention.Z",
    ),
    "another activation": (
        lambda: with_stack("gpt", mlp=MLPSpec(21, "sigmoid")),
        "does not know how to compute `activation` at decoder.1.mlp.act with the function sigmoid",
    ),
    "a number for two steps": (
        lambda: with_blocks("gpt", lambda b: copied(b, Twice)),
        "does not know how to compute `linear` at decoder.1.up for two steps",
    ),
    "what is added to is needed again": (
        lambda: with_blocks("gpt", lambda b: copied(b, KeptX)),
        "does not know how to compute `add` at decoder.0.H to a value that is read again",
    ),
    "a norm by another spread": (
        lambda: with_blocks("gpt", lambda b: copied(b, Measured)),
        "does not know how to compute `normalise` at decoder.1.odd",
    ),
    "a computed weight": (
        lambda: with_part("gpt", "mlp", lambda m: copied(m, ComputedBias)),
        "does not know how to compute `linear` at decoder.1.mlp.up with `scale` of (21,) as a weight",
    ),
    "angles of its own for one layer": (
        lambda: last_layer(own_rotary),
        "does not know how to compute `cosine` at decoder.0.attention.Q_rotated with other angles than in other layers",
    ),
    "heads of two sizes": (
        lambda: last_layer(smaller_heads, "gpt"),
        "needs a KV cache of one size in all layers, not of 2",
    ),
    "very wide heads": (
        lambda: with_stack("gpt", attention=AttentionSpec(1, 1, 520)),
        "supports heads of at most 512 dimensions, not 520 as at decoder.1.attention.Z",
    ),
    "very many positions": (
        lambda: with_stack("gpt", positions=PositionSpec("learned", 70_000)),
        "supports at most 65,536 positions, not 70,000",
    ),
    "a window of nothing": (
        lambda: with_stack("gpt", windows=(None, 0)),
        "does not know how to compute `softmax` at decoder.1.attention.weights "
        "with Mask(causal=True, window=0, real=None)",
    ),
    "no logits": (
        lambda: with_part("gpt", "unembed", lambda u: lambda X: X),
        "does not know how to compute `affine` at final_norm.out as the last step",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_operations_are_refused_by_name(name: str) -> None:
    make, clause = REFUSED[name]
    net = make()
    with pytest.raises(Unsupported) as refused:
        lowering.lower(net, net.spec.source_context, net.spec.context)
    assert refused.value.clause == clause
    assert str(refused.value) == f"The native engine {clause}; the reference computes instead."


@pytest.fixture
def novel(monkeypatch: pytest.MonkeyPatch) -> Operation:
    """An operation that no rule knows."""
    monkeypatch.setattr("regard.nn.operation.OPERATIONS", dict(OPERATIONS))

    class Doubled(Operation):
        """Twice the number."""

        notation = "2 {X}"

        def run(self, X: Any, *, by: float = 2.0) -> Any:
            return by * X

        def axes(self, X: Any, *, by: float = 2.0) -> Any:
            return X.axes

        def formula(self, at: Any, X: Any, *, by: float = 2.0) -> Any:
            return by * X(*at)

    return Doubled()


PLACES = (
    "embed",
    "norm_1",
    "attention.W_q",
    "attention.W_v",
    "attention",
    "norm_2",
    "mlp.up",
    "mlp.down",
    "mlp",
    "final_norm",
    "unembed",
)


@pytest.mark.parametrize("stack", ["gpt", "llama"])
@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_operation_is_refused_anywhere_in_the_network(novel: Any, stack: str, place: str) -> None:
    class Then(Part):
        def __init__(self, part: Part) -> None:
            self.part = part

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return novel(self.part(*args, **kwargs))

    with pytest.raises(Unsupported, match="does not know how to compute `doubled` at "):
        lowering.lower(with_part(stack, place, Then), 32, 32)


def facts_of(net: Any) -> list[tuple[str, str]]:
    """Every fact of every operation that is recorded, and one that is not there."""
    order = lowering.record(net).order
    found = {x.op.name: {*x.facts, "novel"} for x in order if x.op is not None}
    return [(name, fact) for name in found for fact in sorted(found[name])]


LABELS = {("scale", "label"), ("split", "name")}  # how people write it
EVERY = [(stack, *fact) for stack in lowered.SPECS for fact in facts_of(lowered.made(stack))]


@needs_native
@pytest.mark.parametrize(("stack", "name", "fact"), EVERY)
def test_every_fact_is_read(stack: str, name: str, fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed in the graph, and not in the definition, it is refused or changes what is computed; one that no rule has
    heard of is always refused."""
    op = OPERATIONS[name]
    ours = {"function": "relu", "by": 0.4, "eps": 0.3, "offset": 1, "halves": False, "steps": 7.5, "heads": 1}
    ours |= {"real": "padding", "past": 3, "d": 23, "label": "?", "name": "?", "novel": 1}
    recorded = lowering.record

    def changed(net: Any) -> Any:
        recording = recorded(net)
        for x in recording.order:
            if x.op is op:
                window = (name, fact) == ("mask", "by")
                x.facts = {**x.facts, fact: replace(x.facts["by"], window=2) if window else ours[fact]}
        return recording

    net, arrays = lowered.made(stack), lowered.Arrays(lowered.made(stack))
    expected = lowered.defined(net, arrays)
    monkeypatch.setattr(lowering, "record", changed)
    if fact == "novel":
        with pytest.raises(Unsupported, match=f"`{name}` at .* with novel = 1"):
            lowered.native(net, arrays)
        return
    try:
        same = np.abs(lowered.native(net, arrays) - expected).max() < lowered.CLOSE
    except (Unsupported, ValueError):  # numpy's, of a table with other axes
        same = False
    assert same == ((name, fact) in LABELS)


@needs_native
def test_a_refusal_is_logged_once_and_the_reference_computes(
    saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def capped(spec: Spec) -> Any:
        net = transformer.network(spec)
        for block in net.blocks:  # type: ignore[union-attr]
            block.attention = copied(block.attention, Capped)
        return net

    monkeypatch.setattr(lowering, "network", capped)
    lowering.lowered.cache_clear()
    clause = "does not know how to compute `cap` at decoder.0.attention.capped"
    with caplog.at_level(logging.INFO, "regard"):
        assert regard.load(saved("gpt2")).engine is None
    lowering.lowered.cache_clear()
    assert [r.message for r in caplog.records] == [f"The native engine {clause}; the reference computes instead."]


@pytest.mark.skipif(library() is None, reason="the native engine is not built here")
def test_a_library_built_from_other_sources_is_refused(tmp_path: Path) -> None:
    """Structs of the same size do not make it the same engine: each library carries a hash of its sources."""
    built, old = Path(build.HERE, build.NAME).read_bytes(), tmp_path / build.NAME
    assert built.count(build.sources().encode()) == 1
    old.write_bytes(built.replace(build.sources().encode(), b"0" * 64))
    with pytest.raises(OSError, match=r"was built from other sources: run python -m regard\.engine\.native\.build"):
        open_library(old)


def test_every_source_file_is_in_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, here = build.sources(), build.HERE
    for file in [*here.glob("*.[ch]")]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.sources() == before
    for file in sorted(tmp_path.glob("*.[ch]")):
        text = file.read_bytes()
        file.write_bytes(text + b" ")
        assert build.sources() != before, file.name
        file.write_bytes(text)
