"""Sums: of products (a linear map, heads side by side times W_o), of what is added, of nothing (a learned weight).

The rounding of a sum is the size of all its terms times a little more than half the root of their number, which is what a
blocked sum does in practice.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked, Index, at, letter, subscript
from regard.explain.why import Reason, Term, Terms, number


def sum_of(
    values: Tensor, make: Callable[[int], Term], symbols: str, latex: str, python: str, note: str = ""
) -> Reason:
    """A sum of products."""
    terms, total = Terms(values, make), float(values.sum())
    shown = [f"{term}" for term in terms[:3]]
    left = len(terms) - len(shown)
    if left:
        rest = float(values[terms.order[3:]].sum())
        shown.append(f"… ({left:,} more: {number(rest)})")
    rounding = float(values.abs().sum()) * rounds(len(values))
    return Reason(total, terms, rounding, symbols, " + ".join(shown), f"{latex} = {number(total)}", python, note)


def rounds(n: int) -> float:
    """How many roundings of the sum's size n additions amount to."""
    return 4 + math.sqrt(n) / 2


def leaf(asked: Asked, value: float) -> Reason:
    name = asked.left
    none = Terms(torch.zeros(0), lambda k: Term(0.0, ()))
    python = at(asked.name, asked.index)
    return Reason(value, none, 0.0, "", "", f"{name} = {number(value)}", python, "A learned weight: training set it.")


def product(
    asked: Asked, rows: Sequence[tuple[str, Index, Tensor]], weights: tuple[str, Tensor], column: int, bias: str | None
) -> Reason:
    """x W + b for one column of W. rows: the parts of x side by side, each a name, an index before the last, and values."""
    name, W = weights
    w = W[:, column].double()
    x = torch.cat([values.double() for _, _, values in rows])
    values = x * w
    places = [(part, index, k) for part, index, part_values in rows for k in range(len(part_values))]
    b = float(asked.numbers(bias)[column]) if bias else 0.0
    values = torch.cat([values, torch.tensor([b], dtype=torch.float64)]) if bias else values

    def make(k: int) -> Term:
        if k == len(x):
            assert bias is not None
            return Term(b, (asked.operand(bias, (column,), b),))
        part, index, i = places[k]
        return Term(float(values[k]), (asked.operand(part, (*index, i), x[k]), asked.operand(name, (k, column), w[k])))

    first, before, _ = rows[0]
    many = len(rows) > 1
    left = " ⊕ ".join(letter(part) for part, _, _ in rows) if many else letter(first)
    left = f"({left})" if many else left
    head = ", ".join(map(str, before))
    symbols = f"Σ_k {left}[{head + ', ' if head else ''}k] · {letter(name)}[k, {column}]"
    latex = f"{asked.left} = \\sum_k {subscript(first, (*before, 'k'))} {subscript(name, ('k', column))}"
    joined = ", ".join(at(part, index) if index else f'trace["{part}"].double()' for part, index, _ in rows)
    python = f"({f'torch.cat([{joined}])' if many else joined} @ {at(name, (':', column))}"
    if bias:
        symbols, latex, python = (
            f"{symbols} + {letter(bias)}[{column}]",
            f"{latex} + {subscript(bias, (column,))}",
            f"{python} + {at(bias, (column,))}",
        )
    return sum_of(values, make, symbols, latex, f"{python})")


def linear(asked: Asked, node: Node) -> Reason:
    name, W = node.inputs[0], node.inputs[1]
    X, split, row = asked.numbers(name), node.facts["split"], node.facts["row"]
    column = asked.index[0] * split + asked.index[-1] if split else asked.index[-1]
    before: Index = () if X.dim() == 1 else (row % len(X) if row is not None else asked.index[-2],)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return product(asked, [(name, before, X[before])], (W, asked.numbers(W)), column, bias)


def concat(asked: Asked, node: Node) -> Reason:
    """Heads side by side, times W_o."""
    (Z, W, *bias), (i, column) = node.inputs, asked.index
    rows = [(Z, (head, i), z) for head, z in enumerate(asked.numbers(Z)[:, i])]
    found = product(asked, rows, (W, asked.numbers(W)), column, bias[0] if bias else None)
    symbols = found.symbols.replace(f"({' ⊕ '.join(['Z'] * len(rows))})[0, {i}, k]", f"Z[all heads, {i}][k]")
    python = f'(trace["{Z}"][:, {i}].flatten().double() @ {at(W, (":", column))}'
    python += f" + {at(bias[0], (column,))})" if bias else ")"
    return Reason(found.recomputed, found.terms, found.rounding, symbols, found.numbers, found.latex, python)


def added(asked: Asked, node: Node) -> Reason:
    operands = [asked.operand(name, asked.index, asked.numbers(name)[asked.index]) for name in node.inputs]
    values = torch.tensor([o.value for o in operands], dtype=torch.float64)
    symbols = " + ".join(o.label for o in operands)
    latex = f"{asked.left} = " + " + ".join(subscript(o.node, o.index) for o in operands)
    python = " + ".join(at(o.node, o.index) for o in operands)
    return sum_of(values, lambda k: Term(operands[k].value, (operands[k],)), symbols, latex, f"({python})")


def copied(asked: Asked, node: Node) -> Reason:
    return added(asked, Node(node.name, "add", node.axes, node.inputs[:1]))
