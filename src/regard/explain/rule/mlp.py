"""The MLP's own: the activation, and the gate."""

import torch

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked, at
from regard.explain.rule.sums import sum_of
from regard.explain.why import Reason, Term, Terms, number
from regard.nn.mlp import ACTIVATIONS

FORMULAS = {
    "gelu": "x · Φ(x)",
    "gelu_tanh": "x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))",
    "relu": "max(0, x)",
    "silu": "x / (1 + e^-x)",
    "tanh": "tanh(x)",
}


def activation(asked: Asked, node: Node) -> Reason:
    (name,), function = node.inputs, node.facts["function"]
    kind = function if isinstance(function, str) else next(key for key, f in ACTIVATIONS.items() if f is function)
    x = float(asked.numbers(name)[asked.index])
    value = float(ACTIVATIONS[kind](torch.tensor(x, dtype=torch.float64)))
    operand = asked.operand(name, asked.index, x)
    python = f'regard.nn.mlp.ACTIVATIONS["{kind}"]({at(name, asked.index)})'
    shown = kind.replace("_", "\\_")
    return Reason(
        value,
        Terms(torch.tensor([value]), lambda k: Term(value, (operand,), (f"{kind}(", ")"))),
        16 * (abs(value) + min(abs(x), 1.0)),
        f"{kind}({operand.label})",
        f"{kind}({number(x)})",
        f"{asked.left} = \\mathrm{{{shown}}}({number(x)}) = {number(value)}",
        python,
        f"{kind}(x) = {FORMULAS[kind]}",
    )


def gate(asked: Asked, node: Node) -> Reason:
    operands = [asked.operand(name, asked.index, asked.numbers(name)[asked.index]) for name in node.inputs]
    value = operands[0].value * operands[1].value
    python = " * ".join(at(o.node, o.index) for o in operands)
    latex = f"{asked.left} = {number(operands[0].value)} \\cdot {number(operands[1].value)} = {number(value)}"
    return sum_of(
        torch.tensor([value], dtype=torch.float64),
        lambda k: Term(value, tuple(operands)),
        " · ".join(o.label for o in operands),
        latex.rpartition(" = ")[0],
        f"({python})",
    )
