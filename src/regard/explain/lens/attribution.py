"""Which part of the model said it? A logit as the sum of what embeddings, heads and MLPs wrote for it.

The states are a sum: each part adds its vector to the residual stream. With every norm on the way held at the scale it had
in this run, the way from the stream to a logit is linear, so the logit splits into one number per part, exactly. The walk
goes backwards through the graph with a direction u: a node's share of the logit is its row times u.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import TaskError
from regard.explain.graph import Node
from regard.explain.lens.alone import alone
from regard.explain.outcome import answer_id, answer_row
from regard.explain.trace import Trace


@dataclass(frozen=True)
class Portion:
    label: str  # "decoder.0.head.3", "decoder.0.cross.head.1", "decoder.0.mlp", "embed.tokens"
    node: str  # the node that holds its numbers
    value: float


@dataclass(frozen=True)
class Attribution:
    """total = the sum of the parts + bias (what biases and β say whatever the text)."""

    id: int
    parts: list[Portion]
    bias: float
    total: float


def attribution(trace: Trace, token: int = -1, id: int | None = None) -> Attribution:
    """Direct contributions to the logit of `id` (by default the likeliest) at a token, in the order of the run.

    Direct: what a head changes through later heads is counted as theirs. An edited node counts as a part of its own.
    """
    row, id = answer_row(trace, token), answer_id(trace, token, id)
    walk = Walk(trace, row[0] if row else 0)
    walk.begin(id)
    order = {name: i for i, name in enumerate(trace.graph.nodes)}
    parts = sorted(walk.parts, key=lambda part: order[part.node])  # stable: heads stay in their order
    return Attribution(id, parts, walk.bias, float(trace["logits"][(*row, id)]))


class Walk:
    def __init__(self, trace: Trace, token: int) -> None:
        self.trace, self.token = trace, token
        self.parts, self.bias = list[Portion](), 0.0
        self.edited = trace.edited

    def begin(self, id: int) -> None:
        """logit = x · W[:, id] + b[id]."""
        node = self.trace.graph["logits"]
        X, W, *biases = node.inputs
        self.bias += sum(float(self.trace[b][id]) for b in biases)
        if node.facts.get("row") is not None:  # one token answers for the whole text
            self.token = node.facts["row"] % self.trace.shape(X)[0]
        if "logits" in self.edited:
            raise TaskError("The logits themselves were edited: no part of the model said them.")
        self.visit(X, self.trace[W][:, id].double().cpu())

    def visit(self, name: str, u: Tensor) -> None:
        node = self.trace.graph[name]
        if name in self.edited and node.op != "mix":
            self.part(f"{name} (edited)", name, u)
        elif node.op in ("add", "copy"):
            for summand in node.inputs:
                self.visit(summand, u)
        elif node.op == "affine":
            gamma, *beta = (self.weight(each) for each in node.inputs[1:])
            self.bias += float(sum(b @ u for b in beta))
            self.visit(node.inputs[0], u * gamma)
        elif node.op == "normalise":
            self.visit(node.inputs[0], self.unscaled(node, u))
        elif node.op == "concat":
            self.heads(node, u)
        elif node.op in ("linear", "lookup", "sine"):
            self.part(name.removesuffix(".out"), name, u)
        else:
            raise TaskError(
                f"The way from the states to this model's answer bends at {name} ({node.op}), so its logits are no sum of "
                "parts; ablation and gradient_times_input work for it."
            )

    def row(self, name: str) -> Tensor:
        x = self.rows[name] if name in self.rows else self.trace[name][..., self.token, :]
        return x.double().cpu()

    @cached_property
    def rows(self) -> Mapping[str, Tensor]:
        return alone(self.trace, self.token)

    def weight(self, name: str) -> Tensor:
        return self.trace[name].double().cpu()

    def part(self, label: str, name: str, u: Tensor) -> None:
        self.parts.append(Portion(label, name, float(self.row(name) @ u)))

    def unscaled(self, node: Node, u: Tensor) -> Tensor:
        """(x - μ)/σ with σ as it was: the mean is linear in x, and symmetric, so it is taken from u instead."""
        _, square, *mean = node.inputs
        scale = torch.sqrt(self.row(square) + node.facts["eps"])
        return (u - u.mean() if mean else u) / scale

    def heads(self, node: Node, u: Tensor) -> None:
        """M = Σ_h Z_h W_o[h] + b."""
        Z, W_o, *biases = node.inputs
        self.bias += float(sum(self.weight(b) @ u for b in biases))
        rows = self.row(Z)  # (h, d_k)
        values = (rows * (self.weight(W_o) @ u).view_as(rows)).sum(-1)
        site = Z.removesuffix(".Z").removesuffix(".attention")
        self.parts += [Portion(f"{site}.head.{h}", Z, float(value)) for h, value in enumerate(values)]
