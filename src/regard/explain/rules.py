"""One rule per operation: from a node and an index to the operands it was made of, recomputed in float64.

A rule is a function `(asked, node) -> Reason`. Its `rounding` bounds what float32 may have lost on the way: for a sum the
size of all its terms times a little more than half the root of their number, which is what a blocked sum does in practice.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.explain.graph import Node
from regard.explain.why import Operand, Reason, Term, Terms, number
from regard.nn.mlp import ACTIVATIONS

if TYPE_CHECKING:
    from regard.explain.trace import Trace

Index = tuple[int, ...]

# the lectures' letters for what a node's or a weight's last name says
LETTERS = {"scores": "S", "masked": "S", "weights": "A", "dots": "QKᵀ", "Q_rotated": "Q′", "K_rotated": "K′"}
LETTERS |= {"mean": "μ", "variance": "σ²", "mean_square": "ms", "normalised": "x̂", "probabilities": "p"}
LATEX = {"QKᵀ": "(QK^\\top)", "Q′": "Q'", "K′": "K'", "μ": "\\mu", "σ²": "\\sigma^2", "x̂": "\\hat{x}"}
LATEX |= {"ms": "\\overline{x^2}", "γ": "\\gamma", "β": "\\beta"}


def letter(name: str) -> str:
    """What a formula calls a node or a weight."""
    parts = name.split(".")
    own, last = parts[-2] if len(parts) > 1 else "", parts[-1]
    if last in ("weight", "bias"):
        if "norm" in own:
            return "γ" if last == "weight" else "β"
        if last == "bias":
            return "b"
        table = {"tokens": "E", "positions": "P", "types": "T"}
        return table.get(own) or (own if own.startswith("W_") else f"W_{own}")
    if last in LETTERS:
        return LETTERS[last]
    return f"{own}.{last}" if last == "out" and own else last


@dataclass(frozen=True)
class Asked:
    """What was asked for, and where its operands are found."""

    trace: "Trace"
    name: str
    index: Index

    def numbers(self, name: str) -> Tensor:
        return self.trace[name]

    def operand(self, name: str, index: Index, value: float | Tensor, whose: int | None = None) -> Operand:
        """`whose`: the axis of the token whose number it is, if the terms differ in it."""
        token = "" if whose is None else f" {self.trace.tokens_of(self.trace.graph[name].axes[whose])[index[whose]]!r}"
        return Operand(name, index, float(value), place(name, index) + token)

    @property
    def left(self) -> str:
        """The left side of an equation in LaTeX."""
        return subscript(self.name, self.index)

    @property
    def symbol(self) -> str:
        return place(self.name, self.index)

    @property
    def words(self) -> str:
        """The number's place in words."""
        if self.name not in self.trace:
            return f"{self.name}{list(self.index)}: a learned weight"
        said = [self.name]
        axes = self.trace.graph[self.name].axes
        for position, (axis, i) in enumerate(zip(axes, self.index, strict=True)):
            if axis in ("source", "target"):
                what = (
                    "token" if axes.count("source") + axes.count("target") == 1 else "query" if position == 1 else "key"
                )
                said.append(f"{what} {self.trace.tokens_of(axis)[i]!r}")
            elif axis == "vocabulary" and self.trace.tokenizer:
                said.append(f"token {self.trace.tokenizer.pieces([i])[0]!r}")
            elif axis == "class":
                labels = self.trace.net.spec.head.labels
                said.append(f"class {labels[i] if i < len(labels) else i}")
            elif axis != "one":
                said.append(f"{axis.replace('kv_head', 'key/value head')} {i}")
        return ", ".join(said)


def place(name: str, index: Index) -> str:
    return f"{letter(name)}[{', '.join(map(str, index))}]" if index else letter(name)


def subscript(name: str, index: Sequence[int | str]) -> str:
    symbol = letter(name)
    symbol = LATEX.get(symbol) or (f"W_{{{symbol[2:]}}}" if symbol.startswith("W_") else symbol)
    symbol = symbol if len(symbol) == 1 or symbol[0] in "\\(W" or symbol.endswith("'") else f"\\mathrm{{{symbol}}}"
    symbol = symbol.replace("_", "\\_") if "mathrm" in symbol else symbol
    return f"{{{symbol}}}_{{{','.join(map(str, index))}}}"


def at(name: str, index: Sequence[int | str]) -> str:
    """Python for some of a node's numbers, in float64."""
    return f'trace["{name}"][{", ".join(map(str, index)) or "..."}].double()'


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


def mix(asked: Asked, node: Node) -> Reason:
    (A, V), (head, i, c) = node.inputs, asked.index
    weights, values = asked.numbers(A), asked.numbers(V)
    a = weights[head, i].double()
    group = head // (weights.shape[0] // values.shape[0]) if values.dim() == 3 else None
    before: Index = () if group is None else (group,)
    v = values[before][:, c].double()
    products = a * v

    def make(j: int) -> Term:
        where = (*before, j, c)
        share = asked.operand(A, (head, i, j), a[j])
        return Term(float(products[j]), (share, asked.operand(V, where, v[j], len(before))))

    inner = ", ".join([*map(str, before), "j", str(c)])
    symbols = f"Σ_j A[{head}, {i}, j] · {letter(V)}[{inner}]"
    latex = f"{asked.left} = \\sum_j {subscript(A, (head, i, 'j'))} {subscript(V, (*before, 'j', c))}"
    return sum_of(products, make, symbols, latex, f"({at(A, (head, i))} @ {at(V, (*before, ':', c))})")


def softmax(asked: Asked, node: Node) -> Reason:
    (name,), (*before, j) = node.inputs, asked.index
    s = asked.numbers(name)[tuple(before)].double()
    top = float(s.max())
    e = (s - top).exp()
    total = float(e.sum())
    shares, value = e / total, float(e[j]) / total

    def make(k: int) -> Term:
        return Term(float(shares[k]), (asked.operand(name, (*before, k), s[k], 2 if len(before) == 2 else None),))

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
    note = "The terms are the shares of the sum below the line; hidden keys have a share of 0."
    return Reason(
        value, Terms(shares, make), rounding, symbols, numbers, latex, f"{at(name, before)}.softmax(-1)[{j}]", note
    )


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
    reason = "it comes later" if j > i else f"it is further back than {window} tokens"
    note = "" if visible else f"Token {i} may not look at token {j}: {reason}. e^-∞ is 0, so its weight will be 0."
    symbols = place(name, asked.index) if visible else "-∞"
    terms = Terms(torch.tensor([x] if visible else []), lambda k: Term(x, (asked.operand(name, asked.index, x),)))
    latex = f"{asked.left} = {number(value) if visible else '-' + chr(92) + 'infty'}"
    python = at(name, asked.index) if visible else "-math.inf"
    return Reason(value, terms, 0.0, symbols, number(x) if visible else "-∞", latex, python, note)


def added(asked: Asked, node: Node) -> Reason:
    operands = [asked.operand(name, asked.index, asked.numbers(name)[asked.index]) for name in node.inputs]
    values = torch.tensor([o.value for o in operands], dtype=torch.float64)
    symbols = " + ".join(o.label for o in operands)
    latex = f"{asked.left} = " + " + ".join(subscript(o.node, o.index) for o in operands)
    python = " + ".join(at(o.node, o.index) for o in operands)
    return sum_of(values, lambda k: Term(operands[k].value, (operands[k],)), symbols, latex, f"({python})")


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


def copied(asked: Asked, node: Node) -> Reason:
    return added(asked, Node(node.name, "add", node.axes, node.inputs[:1]))


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
        return Term(float(values[k]), factors)

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
    return Reason(
        value,
        Terms(torch.tensor([value]), lambda k: Term(value, factors)),
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
        Terms(torch.tensor([value]), lambda k: Term(value, (operand,))),
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


RULES: dict[str, Callable[[Asked, Node], Reason]] = {
    "lookup": lookup,
    "sine": sine,
    "add": added,
    "copy": copied,
    "linear": linear,
    "rotate": rotate,
    "dot": dot,
    "scale": scale,
    "mask": mask,
    "softmax": softmax,
    "mix": mix,
    "concat": concat,
    "mean": averaged(1),
    "mean_square": averaged(2),
    "variance": variance,
    "normalise": normalise,
    "affine": affine,
    "activation": activation,
    "gate": gate,
}
