"""Every operation: numpy, PyTorch, its faster PyTorch swap, its axes and its formula agree."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from regard.model import module  # noqa: F401 (its faster ways are held to the definitions here)
from regard.nn.expression import At, Call, Num, Over, Var, call, folded, rounding, substitute, to_json, total, value
from regard.nn.mask import Mask
from regard.nn.operation import OPERATIONS, Operation, Symbol

N, T, D, H, G, K = 5, 5, 6, 4, 2, 3


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


X, ids, spread = normal(N, D), np.array([3, 1, 4, 1, 0]), np.abs(normal(N, 1)) + 0.5
Q, keys, S, A = normal(H, N, K), normal(G, T, K), 3 * normal(H, N, T), np.abs(normal(H, N, T))
theta = np.array([1.0, 0.1], np.float32)
CASES: dict[str, list[tuple[tuple, dict]]] = {  # operands and facts
    "lookup": [((normal(7, D), ids), {}), ((normal(7, D), ids), {"offset": 2})],
    "add": [((X, 2 * X, X[0]), {})],
    "copy": [((X,), {})],
    "scale": [((X,), {"by": 0.3}), ((X,), {"by": 0.5, "label": "1/√4"})],
    "linear": [((X, normal(8, D)), {}), ((X, normal(8, D), normal(8)), {}), ((X[0], normal(8, D)), {})],
    "pick": [((X,), {"row": 2}), ((X,), {"row": -1})],
    "some": [((X,), {"first": 2, "last": 5})],
    "beside": [((X, 2 * X[:, :3]), {})],
    "stack": [((X[0], X[1], X[2]), {"tokens": "source"})],
    "one_head": [((X,), {})],
    "only": [((X[:, :1],), {})],
    "blend": [((A[0], S[0], S[1]), {})],
    "positions": [((ids,), {}), ((ids,), {"past": 3})],
    "zeros": [((X,), {})],
    "sinusoid": [
        ((np.arange(N),), {"d": D, "steps": 3.0}),
        ((np.arange(N),), {"d": 7, "steps": 2.0, "halves": True, "offset": 2}),
    ],
    "cosine": [((np.arange(N), theta), {})],
    "sine": [((np.arange(N), theta), {})],
    "rotate": [
        ((normal(H, N, 4), np.cos(normal(N, 2)), np.sin(normal(N, 2))), {}),
        ((normal(H, N, 7), np.cos(normal(N, 2)), np.sin(normal(N, 2))), {}),  # a part of each head
    ],
    "split": [((normal(N, H * K),), {"heads": H}), ((normal(N, H * K),), {"heads": H, "name": "kv_head"})],
    "join": [((Q,), {})],
    "dot": [((Q, keys), {}), ((Q, normal(H, T, K)), {})],
    "cap": [((S,), {"most": 2.0})],
    "mask": [((S,), {"by": Mask()}), ((S,), {"by": Mask(causal=True)}), ((S,), {"by": Mask(causal=True, window=2)})],
    "softmax": [((S,), {}), ((X,), {})],
    "mix": [((A, keys), {}), ((A[0, 0], normal(T, K)), {})],
    "mean": [((X,), {})],
    "mean_square": [((X,), {})],
    "variance": [((X, X.mean(-1)[:, None]), {})],
    "normalise": [((X, spread), {"eps": 1e-5}), ((X, spread, normal(N, 1)), {"eps": 1e-5})],
    "affine": [((X, normal(D)), {}), ((X, normal(D), normal(D)), {}), ((X, normal(D)), {"plus": 1.0})],
    "activation": [((3 * X,), {"function": name}) for name in ("gelu", "gelu_tanh", "relu", "silu", "tanh", "sigmoid")],
    "gate": [((X, 2 * X), {})],
}
EVERY = [(name, *case) for name, cases in CASES.items() for case in cases]


def symbol(name: str, x: np.ndarray, turned: bool) -> Symbol:
    return Symbol(tuple((f"axis {i}", n) for i, n in enumerate(x.shape[::-1] if turned else x.shape)), name=name)


def test_every_operation_has_a_case():
    assert CASES.keys() == OPERATIONS.keys()


@pytest.mark.parametrize(("name", "operands", "facts"), EVERY)
def test_numpy_is_pytorch_and_the_formula_is_what_is_computed(name, operands, facts):
    op = OPERATIONS[name]
    made = op(*operands, **facts)
    tensors = [torch.from_numpy(x) for x in operands]
    tolerance: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}
    if name != "activation":  # whose tree is evaluated by numpy
        np.testing.assert_allclose(op.run(*tensors, **facts).numpy(), made, **tolerance)
    np.testing.assert_allclose(op(*tensors, **facts).numpy(), made, **tolerance)  # by the faster way, if there is one
    names = [f"x{i}" for i in range(len(operands))]
    turned = [name == "linear" and i == 1 for i in range(len(operands))]  # people see W as (in, out)
    node = op(*(symbol(n, x, t) for n, x, t in zip(names, operands, turned, strict=True)), **facts)
    assert node.shape == made.shape
    shown = {n: x.T if t else x for n, x, t in zip(names, operands, turned, strict=True)}
    general = node.formula(tuple(Var(f"i{axis}") for axis in range(node.ndim)))
    eps = np.finfo(np.float32).eps
    for index in np.ndindex(made.shape):
        expected, off = rounding(node.formula(index), shown.__getitem__)
        assert expected == made[index] or abs(expected - made[index]) <= eps * off, (index, expected, made[index])
        filled = folded(substitute(general, {f"i{axis}": Num(i) for axis, i in enumerate(index)}))
        assert value(filled, shown.__getitem__) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "operands", "facts"), [case for case in EVERY if case[0] not in ("lookup", "pick")])
def test_a_batch_equals_its_sequences(name, operands, facts):
    """Where texts are read together, each gets what it gets alone."""
    op, weights = OPERATIONS[name], {"linear": (1, 2), "affine": (1, 2), "cosine": (1,), "sine": (1,)}.get(name, ())
    if name == "add":
        operands = operands[:2]
    texts = [[x if i in weights else (k + 1) * x for i, x in enumerate(operands)] for k in range(2)]
    together = [x if i in weights else np.stack([text[i] for text in texts]) for i, x in enumerate(operands)]
    made = op(*together, **facts)
    for k, text in enumerate(texts):
        alone = op(*text, **facts)
        one = made[k % len(made)] if made.ndim > alone.ndim else made
        np.testing.assert_allclose(one, alone, rtol=1e-5, atol=1e-6)


def test_an_incomplete_operation_fails_when_it_is_imported():
    with pytest.raises(TypeError, match="doubled lacks axes, formula, notation"):

        class Doubled(Operation):
            """Twice."""

            def run(self, X):
                return 2 * X

    with pytest.raises(TypeError, match="the same operands and facts"):

        class Halved(Operation):
            """Half."""

            notation = "{X} / 2"

            def run(self, X, *, by):
                return X / by

            def axes(self, X):
                return X.axes

            def formula(self, at, X, *, by):
                return X(*at) / by


def test_a_formula_inside_a_formula_keeps_its_own_variables():
    """Σ_k of something that is itself a Σ_k."""
    linear = OPERATIONS["linear"]
    W, U = normal(4, D), normal(3, 4)
    X_, W_, U_ = symbol("X", X, False), symbol("W", W, True), symbol("U", U, True)
    twice = linear(linear(X_, W_), U_)
    read = {"X": X, "W": W.T, "U": U.T}.__getitem__
    assert value(twice.formula((2, 1)), read) == pytest.approx(float((X @ W.T @ U.T)[2, 1]), rel=1e-5)


def test_trees_as_json():
    k = Var("k")
    e = total("k", 3, At("X", (Num(1), k)) * At("W", (k, Num(0)))) + Num(0.5, "½")
    assert to_json(e) == ["+", ["Σ", "k", 3, ["·", ["at", "X", 1, "k"], ["at", "W", "k", 0]]], ["num", 0.5, "½"]]
    assert to_json(Num(-math.inf)) == ["-∞"]
    assert isinstance(folded(call("if", Num(1), k, Num(0))), Var)
    assert folded(Call("//", (Num(7), Num(2)))) == Num(3)
    assert isinstance(Over("max", "k", 2, k), Over)
