"""Attention: Q and K turned by their positions, dot products, scaled, masked, weights, and what they mix."""

import math

import torch

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked, Index, at, letter, place, subscript
from regard.explain.rule.sums import sum_of
from regard.explain.why import Operand, Reason, Term, Terms, number


def rotate(asked: Asked, node: Node) -> Reason:
    (name,), (head, i, c) = node.inputs, asked.index
    X, rotary = asked.numbers(name), node.facts["module"]
    half = X.shape[-1] // 2
    other = c + half if c < half else c - half
    cos, sin = (float(a[0, 0, i, c]) for a in rotary(torch.tensor([[*range(i + 1)]], device=X.device)))
    x, y = float(X[head, i, c]), float(X[head, i, other])
    values = torch.tensor([x * cos, y * sin], dtype=torch.float64)
    angle = f"{i}·θ_{c % half}"
    sign = "-" if c < half else "+"
    made = [(c, x, cos, f"cos({angle})"), (other, y, sin, f"{'-' if c < half else ''}sin({angle})")]

    def make(k: int) -> Term:
        index, value, constant, label = made[k]
        return Term(float(values[k]), (asked.operand(name, (head, i, index), value), Operand("", (), constant, label)))

    Q = letter(name)
    symbols = f"{Q}[{head}, {i}, {c}] · cos({angle}) {sign} {Q}[{head}, {i}, {other}] · sin({angle})"
    latex = (
        f"{asked.left} = {subscript(name, (head, i, c))}\\cos({i}\\theta_{{{c % half}}}) {sign} "
        f"{subscript(name, (head, i, other))}\\sin({i}\\theta_{{{c % half}}})"
    )
    python = f"({at(name, (head, i, c))} * {cos!r} + {at(name, (head, i, other))} * {sin!r})"
    note = f"The pair ({c % half}, {c % half + half}) is turned by position {i} times its frequency θ_{c % half}."
    return sum_of(values, make, symbols, latex, python, note)


def dot(asked: Asked, node: Node) -> Reason:
    (Q, K), (head, i, j) = node.inputs, asked.index
    keys = asked.numbers(K)
    group = head // (asked.numbers(Q).shape[0] // keys.shape[0])
    q, k = asked.numbers(Q)[head, i].double(), keys[group, j].double()
    values = q * k

    def make(c: int) -> Term:
        return Term(float(values[c]), (asked.operand(Q, (head, i, c), q[c]), asked.operand(K, (group, j, c), k[c])))

    symbols = f"Σ_c {letter(Q)}[{head}, {i}, c] · {letter(K)}[{group}, {j}, c]"
    latex = f"{asked.left} = \\sum_c {subscript(Q, (head, i, 'c'))} {subscript(K, (group, j, 'c'))}"
    return sum_of(values, make, symbols, latex, f"({at(Q, (head, i))} @ {at(K, (group, j))})")


def scale(asked: Asked, node: Node) -> Reason:
    (name,), factor, d_k = node.inputs, float(node.facts["scale"]), node.facts["d_k"]
    x = float(asked.numbers(name)[asked.index])
    rooted = math.isclose(factor, d_k**-0.5)
    shown = f"1/√{d_k}" if rooted else number(factor)
    constant = Operand("", (), factor, shown)
    symbols = f"{place(name, asked.index)} · {shown}"
    right = f"\\frac{{{number(x)}}}{{\\sqrt{{{d_k}}}}}" if rooted else f"{number(factor)} \\cdot {number(x)}"
    terms = Terms(
        torch.tensor([x * factor]), lambda k: Term(x * factor, (asked.operand(name, asked.index, x), constant))
    )
    latex = f"{asked.left} = {right} = {number(x * factor)}"
    return Reason(
        x * factor,
        terms,
        4 * abs(x * factor),
        symbols,
        f"{number(x)} · {shown}",
        latex,
        f"({at(name, asked.index)} * {factor!r})",
    )


def mask(asked: Asked, node: Node) -> Reason:
    (name,), (_, i, j), window = node.inputs, asked.index, node.facts["window"]
    visible = j <= i and (window is None or j > i - window)
    x = float(asked.numbers(name)[asked.index])
    value = x if visible else -math.inf
    reason = "it comes later" if j > i else f"it is {i - j} back, and the last {window} are seen, itself included"
    note = "" if visible else f"Token {i} may not look at token {j}: {reason}. e^-∞ is 0, so its weight will be 0."
    symbols = place(name, asked.index) if visible else "-∞"
    terms = Terms(torch.tensor([x] if visible else []), lambda k: Term(x, (asked.operand(name, asked.index, x),)))
    latex = f"{asked.left} = {number(value) if visible else '-' + chr(92) + 'infty'}"
    python = at(name, asked.index) if visible else "-math.inf"
    return Reason(value, terms, 0.0, symbols, number(x) if visible else "", latex, python, note)


def softmax(asked: Asked, node: Node) -> Reason:
    (name,), (*before, j) = node.inputs, asked.index
    s = asked.numbers(name)[tuple(before)].double()
    top = float(s.max())
    e = (s - top).exp()
    total = float(e.sum())
    shares, value = e / total, float(e[j]) / total

    def make(k: int) -> Term:
        operand = asked.operand(name, (*before, k), s[k], 2 if len(before) == 2 else None)
        return Term(float(shares[k]), (operand,), ("e^", " / Σ"))

    # Taken from every exponent, the largest cancels; without that e^… might not fit.
    shift, unit = ("", math.exp(top)) if abs(top) < 30 else (f" - {number(top)}", 1.0)
    S, own, row = letter(name), ", ".join(map(str, asked.index)), ", ".join([*map(str, before), "k"])
    symbols = f"e^{S}[{own}] / Σ_k e^{S}[{row}]"
    exponent = f"{number(float(s[j]))}{shift}"
    numbers = f"e^({exponent}) / Σ_k e^(…{shift}) = {number(float(e[j]) * unit)} / {number(total * unit)}"
    below = f"\\sum_k e^{{{subscript(name, (*before, 'k'))}{shift}}}"
    latex = f"{asked.left} = \\frac{{e^{{{exponent}}}}}{{{below}}} = {number(value)}"
    far = top - float(s[j]) if value else 0.0  # the exponent is rounded in proportion to its size
    rounding = value * (16 + math.sqrt(len(s)) + 2 * far) + 1e-30
    hidden = "; hidden keys have a share of 0" if bool((s == -math.inf).any()) else ""
    note = f"The terms are the shares of the sum below the line{hidden}."
    return Reason(
        value, Terms(shares, make), rounding, symbols, numbers, latex, f"{at(name, before)}.softmax(-1)[{j}]", note
    )


def mix(asked: Asked, node: Node) -> Reason:
    (A, V), (head, i, c) = node.inputs, asked.index
    weights, values = asked.numbers(A), asked.numbers(V)
    a = weights[head, i].double()
    group = head // (weights.shape[0] // values.shape[0]) if values.dim() == 3 else None
    before: Index = () if group is None else (group,)
    v = values[before][:, c].double()
    products = torch.where(a == 0, 0.0, a * v)  # a key of weight 0 counts for nothing, whatever its value

    def make(j: int) -> Term:
        where = (*before, j, c)
        share = asked.operand(A, (head, i, j), a[j])
        return Term(float(products[j]), (share, asked.operand(V, where, v[j], len(before))))

    inner = ", ".join([*map(str, before), "j", str(c)])
    symbols = f"Σ_j A[{head}, {i}, j] · {letter(V)}[{inner}]"
    latex = f"{asked.left} = \\sum_j {subscript(A, (head, i, 'j'))} {subscript(V, (*before, 'j', c))}"
    return sum_of(products, make, symbols, latex, f"({at(A, (head, i))} @ {at(V, (*before, ':', c))})")
