"""The rules of why for the recurrent network of 2015: its additive score, its gates, what it says."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.explain.graph import Node
from regard.explain.rule.asked import Asked, at
from regard.explain.rule.sums import product, sum_of
from regard.explain.why import Operand, Reason, Term, number

if TYPE_CHECKING:
    from regard.explain.trace import Trace


def joined(asked: Asked, node: Node) -> Reason:
    """A recurrent decoder's state, what it read and the word before, side by side, times a matrix."""
    states, Z, Y, W, bias = node.inputs
    t, column = asked.index
    rows = [
        (states, (t,), asked.numbers(states)[t]),
        (Z, (0, t), asked.numbers(Z)[0, t]),
        (Y, (t,), asked.numbers(Y)[t]),
    ]
    return product(asked, rows, (W, asked.numbers(W)), column, bias)


def first_state(trace: "Trace") -> Tensor:
    """Before its first word a recurrent decoder's state comes from the first source token, read backwards."""
    W, b = trace["decoder.first.weight"].double(), trace["decoder.first.bias"].double()
    H = trace["encoder.reader.H"]
    return torch.tanh(H[0, H.shape[-1] // 2 :].double() @ W + b)


def state_before(trace: "Trace", t: int) -> Tensor:
    return trace["decoder.states"][t - 1].double() if t else first_state(trace)


def additive_hidden(trace: "Trace", t: int, j: int) -> Tensor:
    """tanh(W_s s + W_h h_j + b) before word t, for source token j."""
    W_s, W_h = trace["decoder.cross.W_s.weight"].double(), trace["decoder.cross.W_h.weight"].double()
    h, b = trace["encoder.reader.H"][j].double(), trace["decoder.cross.W_h.bias"].double()
    return torch.tanh(state_before(trace, t) @ W_s + h @ W_h + b)


def additive(asked: Asked, node: Node) -> Reason:
    """vᵀ tanh(W_s s + W_h h_j + b)."""
    _, t, j = asked.index
    v = asked.numbers("decoder.cross.v.weight")[:, 0].double()
    hidden = additive_hidden(asked.trace, t, j)
    values = hidden * v

    def make(k: int) -> Term:
        inner = Operand("", (), float(hidden[k]), f"tanh(W_s s + W_h h_{j} + b)[{k}]")
        return Term(float(values[k]), (asked.operand("decoder.cross.v.weight", (k, 0), v[k]), inner))

    symbols = f"Σ_k v[k] · tanh(W_s s_{t - 1} + W_h h_{j} + b)[k]"
    latex = f"{asked.left} = v^\\top \\tanh(W_s s_{{{t - 1}}} + W_h h_{{{j}}} + b)"
    python = f"(regard.explain.recurrent.additive_hidden(trace, {t}, {j}) @ {at('decoder.cross.v.weight', (':', 0))})"
    note = "The score of 2015: a small network instead of a dot product."
    found = sum_of(values, make, symbols, latex, python, note)
    return replace(found, rounding=8 * found.rounding)


@dataclass(frozen=True)
class Gates:
    """One unit of a GRU at one token: how much of the past a candidate sees (r), how much stays (z), the candidate (n)."""

    r: float
    z: float
    n: float
    old: float
    came_from: tuple[str, tuple[int, ...]] | None  # where the old state is found

    @property
    def value(self) -> float:
        return (1 - self.z) * self.n + self.z * self.old


def gates(trace: "Trace", name: str, i: int, c: int) -> Gates:
    if name == "decoder.states":
        x = torch.cat([trace["decoder.embed.out"][i], trace["decoder.cross.Z"][0, i]]).double()
        before, unit, prefix, suffix = state_before(trace, i), c, "decoder.cell.", ""
        came_from = (name, (i - 1, c)) if i else None
    else:
        H = trace[name]
        hidden = H.shape[-1] // 2
        back, unit = c >= hidden, c % hidden
        previous = i + 1 if back else i - 1
        inside = 0 <= previous < len(H)
        half = slice(hidden, None) if back else slice(0, hidden)
        before = H[previous, half].double() if inside else torch.zeros(hidden, dtype=torch.float64)
        x, prefix, suffix = (
            trace["encoder.embed.out"][i].double(),
            "encoder.reader.gru.",
            "_l0_reverse" if back else "_l0",
        )
        came_from = (name, (previous, c)) if inside else None
    W, U, b, e = (
        trace[f"{prefix}{kind}{suffix}"].double() for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    rows = [unit, unit + len(before), unit + 2 * len(before)]
    a, u = W[rows] @ x + b[rows], U[rows] @ before + e[rows]
    r, z = torch.sigmoid(a[0] + u[0]), torch.sigmoid(a[1] + u[1])
    n = torch.tanh(a[2] + r * u[2])
    return Gates(float(r), float(z), float(n), float(before[unit]), came_from)


def gru(asked: Asked, node: Node) -> Reason:
    """h = (1 - z) n + z h_before."""
    g = gates(asked.trace, node.name, *asked.index)
    unasked = Operand("", (), g.old, "the state before the first token")
    last = asked.operand(*g.came_from, g.old) if g.came_from else unasked
    parts = [
        (Operand("", (), 1 - g.z, "1 - z"), Operand("", (), g.n, "candidate n")),
        (Operand("", (), g.z, "update gate z"), last),
    ]
    values = torch.tensor([(1 - g.z) * g.n, g.z * g.old], dtype=torch.float64)
    symbols, latex = "(1 - z) · n + z · h_before", f"{asked.left} = (1 - z) n + z h'"
    python = f'regard.explain.recurrent.gates(trace, "{node.name}", {asked.index[0]}, {asked.index[1]}).value'
    note = f"Gates: r = {number(g.r)} (how much of the past the candidate sees), z = {number(g.z)} (how much stays)."
    found = sum_of(values, lambda k: Term(float(values[k]), parts[k]), symbols, latex, python, note)
    return replace(found, rounding=64.0)  # three sums inside, each through a sigmoid or tanh


RECURRENT: dict[str, Callable[[Asked, Node], Reason]] = {"joined": joined, "additive": additive, "gru": gru}
