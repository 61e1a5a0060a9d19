"""Norms: a token's mean, its variance or mean square, the vector brought to one scale, and γ and β."""

import math
from collections.abc import Callable

import torch

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked, at, letter, subscript
from regard.explain.rule.sums import rounds, sum_of
from regard.explain.why import Operand, Reason, Term, Terms, number


def averaged(power: int) -> Callable[[Asked, Node], Reason]:
    def rule(asked: Asked, node: Node) -> Reason:
        """The mean of a token's features, or of their squares."""
        name, i = node.inputs[0], asked.index[0]
        x = asked.numbers(name)[i].double()
        values = x**power / len(x)

        def make(k: int) -> Term:
            operand = asked.operand(name, (i, k), x[k])
            return Term(float(values[k]), (operand,) * power + (Operand("", (), 1 / len(x), f"1/{len(x)}"),))

        square = "²" if power == 2 else ""
        symbols = f"1/{len(x)} Σ_k {letter(name)}[{i}, k]{square}"
        raised = "^2" if power == 2 else ""
        latex = f"{asked.left} = \\frac{{1}}{{{len(x)}}}\\sum_k {subscript(name, (i, 'k'))}{raised}"
        return sum_of(values, make, symbols, latex, f"({at(name, (i,))} ** {power}).mean()")

    return rule


def variance(asked: Asked, node: Node) -> Reason:
    (name, mean), i = node.inputs, asked.index[0]
    x, mu = asked.numbers(name)[i].double(), float(asked.numbers(mean)[i, 0])
    away = x - mu
    values = away**2 / len(x)

    def make(k: int) -> Term:
        factors = (asked.operand(name, (i, k), x[k]), asked.operand(mean, (i, 0), mu))
        return Term(float(values[k]), factors, ("(", " - ", f")² / {len(x)}"))

    terms, total = Terms(values, make), float(values.sum())
    rounding = float((away.abs() * (x.abs() + abs(mu) + away.abs())).mean()) * 2 * rounds(len(x))
    shown = " + ".join(f"({number(float(x[k]))} - {number(mu)})²" for k in terms.order[:3])
    return Reason(
        total,
        terms,
        rounding,
        f"1/{len(x)} Σ_k ({letter(name)}[{i}, k] - μ[{i}])²",
        f"1/{len(x)} · ({shown} + …)",
        f"{asked.left} = \\frac{{1}}{{{len(x)}}}\\sum_k ({subscript(name, (i, 'k'))} - \\mu)^2 = {number(total)}",
        f"(({at(name, (i,))} - {at(mean, (i, 0))}) ** 2).mean()",
        "The mean of the squared distances from the mean (divided by d, not d - 1).",
    )


def normalise(asked: Asked, node: Node) -> Reason:
    (name, spread, *mean), (i, c), eps = node.inputs, asked.index, float(node.facts["eps"])
    x, square = float(asked.numbers(name)[i, c]), float(asked.numbers(spread)[i, 0])
    mu = float(asked.numbers(mean[0])[i, 0]) if mean else 0.0
    root = math.sqrt(square + eps)
    value = (x - mu) / root
    factors = (
        asked.operand(name, (i, c), x),
        *([asked.operand(mean[0], (i, 0), mu)] if mean else []),
        asked.operand(spread, (i, 0), square),
        Operand("", (), eps, "ε"),
    )
    above, below = (f"({letter(name)}[{i}, {c}] - μ[{i}])", "σ²") if mean else (f"{letter(name)}[{i}, {c}]", "ms")
    shown = f"({number(x)} - {number(mu)})" if mean else number(x)
    top = f"{number(x)} - {number(mu)}" if mean else number(x)
    signs = ("(", " - ", ") / √(", " + ", ")") if mean else ("", " / √(", " + ", ")")
    return Reason(
        value,
        Terms(torch.tensor([value]), lambda k: Term(value, factors, signs)),
        8 * (abs(x) + abs(mu) + abs(x - mu)) / root,
        f"{above} / √({below}[{i}] + ε)",
        f"{shown} / √({number(square)} + {eps:g})",
        f"{asked.left} = \\frac{{{top}}}{{\\sqrt{{{number(square)} + {eps:g}}}}} = {number(value)}",
        f"(({at(name, (i, c))}{f' - {at(mean[0], (i, 0))}' if mean else ''}) / ({at(spread, (i, 0))} + {eps!r}).sqrt())",
    )


def affine(asked: Asked, node: Node) -> Reason:
    (name, gamma, *beta), (i, c) = node.inputs, asked.index
    x, g = float(asked.numbers(name)[i, c]), float(asked.numbers(gamma)[c])
    b = float(asked.numbers(beta[0])[c]) if beta else 0.0
    stretched = Term(x * g, (asked.operand(name, (i, c), x), asked.operand(gamma, (c,), g)))
    terms = [stretched, *([Term(b, (asked.operand(beta[0], (c,), b),))] if beta else [])]
    values = torch.tensor([term.value for term in terms], dtype=torch.float64)
    symbols = f"x̂[{i}, {c}] · γ[{c}]" + (f" + β[{c}]" if beta else "")
    latex = f"{asked.left} = \\hat{{x}}_{{{i},{c}}} \\gamma_{{{c}}}" + (f" + \\beta_{{{c}}}" if beta else "")
    python = f"({at(name, (i, c))} * {at(gamma, (c,))}" + (f" + {at(beta[0], (c,))})" if beta else ")")
    return sum_of(values, lambda k: terms[k], symbols, latex, python)
