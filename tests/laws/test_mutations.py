"""A mistake in the lowering or in choosing does not stay unseen: each of these is refused, or breaks a law."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import chosen
import lowered
from regard.engine import beam_search, lowering, native_engine, sampling, top_k
from regard.engine.buffers import Buffers
from regard.engine.lowering import Lowering
from regard.engine.native.library import library
from regard.engine.program import Attend, Embed, Norm, Product, Program, Step, Store
from regard.engine.record_graph import Recording, Unsupported
from regard.explain import logits
from regard.nn import operations as o

needs_native = pytest.mark.skipif(library() is None, reason="the native engine is not built here")
Patch = pytest.MonkeyPatch


def in_steps(change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """Every step goes wrong in the same way."""

    def mutate(patch: Patch) -> None:
        program = Lowering.program

        def changed(self: Lowering, *args: Any) -> Program | None:
            made = program(self, *args)
            return made and replace(made, steps=tuple(map(change, made.steps)))

        patch.setattr(Lowering, "program", changed)

    return mutate


def of(kind: type[Step], **changes: Any) -> Callable[[Patch], None]:
    """Fields of all steps of a kind become others; what is a function is asked."""

    def change(step: Any) -> Any:
        if not isinstance(step, kind):
            return step
        return replace(step, **{name: new(step) if callable(new) else new for name, new in changes.items()})

    return in_steps(change)


def unread(op: Any, operand: int) -> Callable[[Patch], None]:
    """A rule does not look at an operand."""

    def mutate(patch: Patch) -> None:
        take = Recording.take

        def forgetful(self: Recording, x: Any, most: int, **facts: Any) -> list[Any]:
            taken = take(self, x, most, **facts)
            if x.op is op:
                taken[operand] = None
            return taken

        patch.setattr(Recording, "take", forgetful)

    return mutate


def instead(where: Any, name: str, new: Callable[..., Any]) -> Callable[[Patch], None]:
    """Another function, which is given the one that stands there."""

    def mutate(patch: Patch) -> None:
        there = getattr(where, name)
        patch.setattr(where, name, lambda *args, **kwargs: new(there, *args, **kwargs))

    return mutate


def with_eps(step: Any) -> Any:
    return step.norm and replace(step.norm, eps=0.05)


def without(**fields: Any) -> Callable[[Any], Any]:
    return lambda step: step.norm and replace(step.norm, **fields)


def all_in_one(there: Any, *args: Any) -> Buffers:
    buffers: Buffers = there(*args)
    return Buffers([max(buffers.widths)] * 2, {value: min(n, 1) for value, n in buffers.of.items()})


def one_layer(step: Any) -> Any:
    return replace(step.keys, layer=0)


MUTATIONS: dict[str, Callable[[Patch], None]] = {
    "a norm is dropped before a product": of(Product, norm=None),
    "a norm of its own is another": of(Norm, norm=without(kind="rms")),
    "another eps": of(Product, norm=with_eps),
    "another eps after a sum": of(Norm, norm=with_eps),
    "β is forgotten": of(Product, norm=without(shift=None)),
    "γ is forgotten": of(Product, norm=without(gain=None)),
    "β is not read": unread(o.affine, 2),
    "rms is taken for a layer norm": of(Product, norm=without(kind="layer")),
    "the mean is not read": unread(o.normalise, 2),
    "a bias is forgotten": of(Product, maps=lambda s: tuple(replace(m, bias=None) for m in s.maps)),
    "a bias is not read": unread(o.linear, 2),
    "queries, keys and values are swapped": instead(
        Lowering, "concatenated", lambda there, self, x, *linears: there(self, x, *reversed(linears))
    ),
    "scores are not scaled": of(Attend, scale=1.0),
    "the window is ignored": of(Attend, window=0),
    "another window": of(Attend, window=3),
    "nothing is turned": of(Attend, pairs=0),
    "fewer are turned": of(Attend, pairs=lambda s: max(0, s.pairs - 1)),
    "later tokens are seen": of(Attend, causal=False),
    "the mask is not read": instead(Lowering, "mask_of", lambda there, self, mask, A: (True, 0)),
    "what is read is read causally": of(Attend, causal=True),
    "keys of all layers in one place": of(Attend, keys=one_layer),
    "keys of a source in one place": of(Store, keys=one_layer),
    "a residual is skipped": of(Product, onto=None),
    "an activation is skipped": of(Product, activation="none"),
    "another activation": of(Product, activation=lambda s: "gelu" if s.activation == "gelu_tanh" else s.activation),
    "a gate is skipped": of(Product, gate=None),
    "gate and map are swapped": of(
        Product, gate=lambda s: s.gate and s.maps[0], maps=lambda s: s.maps if s.gate is None else (s.gate,)
    ),
    "the embedding is not scaled": of(Embed, scale=1.0),
    "positions are not added": of(Embed, learned=None, waves=None),
    "positions from the first row on": of(Embed, offset=0),
    "other waves": of(Embed, waves=lambda s: s.waves and {**s.waves, "halves": False}),
    "types are not added": of(Embed, types=None),
    "another type": of(Embed, type=1),
    "steps in the order of the graph": instead(lowering, "ordered", lambda there, steps, result: steps),
    "a buffer is taken too early": instead(native_engine, "assign_buffers", all_in_one),
}


def networks() -> dict[str, Any]:
    """All that the rules speak of, and a block whose steps must stand in another order than its sums."""
    nets = {name: lowered.made(name) for name in lowered.SPECS}
    nets["in two sums"] = lowered.with_blocks("gpt", lambda block: lowered.copied(block, lowered.ParallelInTwoSums))
    return nets


@needs_native
def test_without_a_mistake_there_is_nothing_to_notice() -> None:
    assert all(lowered.difference(net) < lowered.CLOSE for net in networks().values())


@needs_native
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_noticed(name: str, monkeypatch: Patch) -> None:
    nets = networks()
    arrays = {name: lowered.Arrays(net) for name, net in nets.items()}
    expected = {name: lowered.defined(net, arrays[name]) for name, net in nets.items()}
    MUTATIONS[name](monkeypatch)
    noticed = list[str]()
    for each, net in nets.items():
        try:
            difference = np.abs(lowered.native(net, arrays[each]) - expected[each]).max()
        except (Unsupported, AssertionError):
            noticed.append(each)
        else:
            if not difference < lowered.CLOSE:
                noticed.append(each)
    assert noticed


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def everywhere(where: Any, name: str, new: Callable[..., Any]) -> Callable[[Patch], None]:
    """`instead`, in every module that has imported the function."""

    def mutate(patch: Patch) -> None:
        there = getattr(where, name)
        holders = [
            m for path, m in list(sys.modules.items()) if path.startswith("regard.") and vars(m).get(name) is there
        ]
        for module in holders:
            patch.setattr(module, name, lambda *args, **kwargs: new(there, *args, **kwargs))

    return mutate


def last_first(there: Any, x: Any, most: int) -> Any:
    """Of equal ones the last first."""
    values, ids = there(x[..., ::-1], most)
    return values, x.shape[-1] - 1 - ids


def from_the_second(there: Any, x: Any, most: int) -> Any:
    values, ids = there(x, min(most + 1, x.shape[-1]))
    return values[..., -most:], ids[..., -most:]


def without_ties(there: Any, x: Any, most: int) -> Any:
    """Found by parts, whatever of the equal ones comes: what stood there once."""
    found = np.argsort(x, -1)[..., ::-1][..., :most]
    return np.take_along_axis(x, found, -1), found


def one_less(there: Any, x: Any, most: int) -> Any:
    values, ids = there(x, most)
    ids = np.where(np.arange(ids.shape[-1]) == most - 1, 0, ids)
    return values, ids


CHOOSING: dict[str, Callable[[Patch], None]] = {
    "largest: of equal ones the last first": everywhere(logits, "largest", last_first),
    "largest: the best is left out": everywhere(logits, "largest", from_the_second),
    "largest: equal ones in any order": everywhere(logits, "largest", without_ties),
    "largest: the last of them is another": everywhere(logits, "largest", one_less),
    "largest: one too few": everywhere(logits, "largest", lambda there, x, most: there(x, max(1, most - 1))),
    "largest: sizes count, not signs": everywhere(logits, "largest", lambda there, x, most: there(np.abs(x), most)),
    "softmax over the first axis": everywhere(logits, "softmax", lambda there, x: there(x.T).T),
    "softmax to the base of 2": everywhere(logits, "softmax", lambda there, x: there(x * np.log(2))),
    "log Σ exp without the largest": everywhere(logits, "logsumexp", lambda there, x: there(x) - x.max(-1)),
    "ranked: of equal ones the last first": everywhere(top_k, "ranked", last_first),
    "ranked: the best is left out": everywhere(top_k, "ranked", from_the_second),
    "ranked: the last of them is another": everywhere(top_k, "ranked", one_less),
    "ranked: values in order, ids not": everywhere(
        top_k, "ranked", lambda there, x, width: (there(x, width)[0], np.sort(there(x, width)[1], -1))
    ),
    "sums without the largest": everywhere(top_k, "log_totals", lambda there, x: there(x) - x.max(-1, keepdims=True)),
    "weights of another temperature": instead(sampling, "_weights", lambda there, x: there(x * 1.01)),
    "too much is typical": instead(sampling, "_typical", lambda there, X, weights, mass: there(X, weights, mass * 1.2)),
    "beams are taken for each other": instead(
        beam_search, "best_continuations", lambda there, s, best, ids, own: there(s, best[::-1], ids[::-1], own[::-1])
    ),
    "a finished beam has another score": instead(
        beam_search, "Beam", lambda there, ids, own, score, finished: there(ids, own, 1.1 * score, finished)
    ),
    "a search is over with the first finished beam": instead(
        beam_search.Search, "_hopeless", lambda there, self: bool(self.finished)
    ),
}


def test_without_a_mistake_every_law_holds() -> None:
    assert chosen.broken() is None


@pytest.mark.parametrize("name", CHOOSING)
def test_a_mistake_in_choosing_breaks_a_law(name: str, monkeypatch: Patch) -> None:
    CHOOSING[name](monkeypatch)
    assert chosen.broken() is not None
