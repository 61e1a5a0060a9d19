"""Embeddings: a row of a table, or a sine of the position."""

import math

import torch

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked, at, subscript
from regard.explain.why import Operand, Reason, Term, Terms, number


def lookup(asked: Asked, node: Node) -> Reason:
    (table,), (i, c) = node.inputs, asked.index
    ids = asked.trace.target_ids if node.facts.get("of") == "target" else asked.trace.ids
    row = {"ids": (ids or [])[i], "positions": i + node.facts.get("offset", 0), "types": 0}[node.facts["rows"]]
    factor = float(node.facts.get("scale", 1.0))
    x = float(asked.numbers(table)[row, c])
    operand = asked.operand(table, (row, c), x)
    factors = (operand,) if factor == 1.0 else (operand, Operand("", (), factor, "scale"))
    what = {"ids": f"token {i} has the id {row}", "positions": f"position {i}", "types": "all tokens are of type 0"}
    scaled = "" if factor == 1.0 else f" · {number(factor)}"
    return Reason(
        x * factor,
        Terms(torch.tensor([x * factor]), lambda k: Term(x * factor, factors)),
        4 * abs(x * factor),
        f"{operand.label}{scaled}",
        f"{number(x)}{scaled}" if scaled else "",
        f"{asked.left} = {subscript(table, (row, c))}{scaled.replace('·', chr(92) + 'cdot')} = {number(x * factor)}",
        f"({at(table, (row, c))} * {factor!r})",
        f"A row of the table {table}: {what[node.facts['rows']]}.",
    )


def sine(asked: Asked, node: Node) -> Reason:
    (i, c), module = asked.index, node.facts["module"]
    p, half = i + module.offset, module.d // 2
    steps = max(half - 1, 1) if module.stretch else module.d / 2
    first = (module.d + 1) // 2  # sines, when they all stand first
    k, function = (
        (c % first if c >= first else c, "cos" if c >= first else "sin")
        if module.halves
        else (c // 2, "cos" if c % 2 else "sin")
    )
    exponent = k / steps
    angle = p / 10000.0**exponent
    value = math.sin(angle) if function == "sin" else math.cos(angle)
    symbols, terms = (
        f"{function}(p / 10000^{number(exponent)}) with p = {p}",
        Terms(torch.tensor([value]), lambda k: Term(value, (Operand("", (), value, symbols),))),
    )
    latex = f"{asked.left} = \\{function}({p}/10000^{{{number(exponent)}}}) = {number(value)}"
    python = f"math.{function}({p} / 10000 ** {exponent!r})"
    return Reason(
        value,
        terms,
        4.0,
        symbols,
        f"{function}({number(angle)})",
        latex,
        python,
        "Computed from the position, not learned.",
    )
