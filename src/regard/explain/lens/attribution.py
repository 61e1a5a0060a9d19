"""Direct logit attribution: a logit as the sum of what embeddings, heads and MLPs contribute to it.

Each part adds its vector to the residual stream. With every norm held at the scale it had in this run, the path from the
stream to a logit is linear, so the logit splits exactly into one number per part. The graph is walked backwards with a
direction u: a node's contribution is its row times u.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.errors import TaskError
from regard.explain.lens.single_token import rows_of_token
from regard.explain.predictions import answer_id, answer_row
from regard.explain.trace import Array, Trace
from regard.model.graph import Node


@dataclass(frozen=True)
class Portion:
    """What one head, MLP or embedding added to the logit."""

    label: str  # "decoder.0.head.3", "decoder.0.cross.head.1", "decoder.0.mlp", "embed.tokens"
    node: str  # the node that holds its numbers
    value: float


@dataclass(frozen=True)
class Attribution:
    """total = the sum of the parts + bias (the contribution of biases and β, the same for every text)."""

    id: int
    parts: list[Portion]
    bias: float
    total: float


def attribution(trace: Trace, token: int = -1, id: int | None = None) -> Attribution:
    """Direct contributions to the logit of `id` (by default the likeliest) at a token, in the order of the run.

    Direct: what a head changes in later heads counts as theirs. An edited node is a part of its own.
    """
    row, id = answer_row(trace, token), answer_id(trace, token, id)
    walk = Walk(trace, row[0] if row else 0)
    walk.start(id)
    order = {name: i for i, name in enumerate(trace.graph.nodes)}
    parts = sorted(walk.parts, key=lambda part: order[part.node])  # stable: heads stay in their order
    return Attribution(id, parts, walk.bias, float(trace["logits"][(*row, id)]))


class Walk:
    """The backward walk from one logit: collects parts and bias."""

    def __init__(self, trace: Trace, token: int) -> None:
        self.trace, self.token = trace, token
        self.parts, self.bias = list[Portion](), 0.0
        self.edited = trace.edited

    def start(self, id: int) -> None:
        """logit = x · W[:, id] + b[id]."""
        node = self.trace.graph["logits"]
        X, W, *biases = node.inputs
        self.bias += sum(float(self.trace[b][id]) for b in biases)
        if (one := node.viewed_by("pick")) is not None:  # the answer is computed from one token, as [CLS]
            self.token = one.facts["row"] % self.trace.shape(X)[0]
        if "logits" in self.edited:
            raise TaskError("The logits themselves were edited: they are no sum of contributions.")
        self.visit(X, self.trace[W][:, id].astype(np.float64))

    def visit(self, name: str, u: Array) -> None:
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
        elif node.viewed_by("join") is not None:
            self.heads(node, u)
        elif node.op in ("linear", "lookup", "scale", "sinusoid"):
            self.part(name.removesuffix(".out"), name, u)
        else:
            raise TaskError(
                f"The path from the states to the logits is not linear at {name} ({node.op}), so the logits are no sum of "
                "contributions; use ablation or gradient_times_input."
            )

    def row(self, name: str) -> Array:
        x = self.rows[name] if name in self.rows else self.trace[name][..., self.token, :]
        return x.astype(np.float64)

    @cached_property
    def rows(self) -> Mapping[str, Array]:
        """Rows of this token inside blocks, computed without those of other tokens."""
        return rows_of_token(self.trace, self.token)

    def weight(self, name: str) -> Array:
        return self.trace[name].astype(np.float64)

    def part(self, label: str, name: str, u: Array) -> None:
        self.parts.append(Portion(label, name, float(self.row(name) @ u)))

    def unscaled(self, node: Node, u: Array) -> Array:
        """u before a norm (x - μ)/σ with σ fixed: the mean is linear in x and symmetric, so it is subtracted from u."""
        _, square, *mean = node.inputs
        scale = np.sqrt(self.row(square) + node.facts["eps"])
        return (u - u.mean() if mean else u) / scale

    def heads(self, node: Node, u: Array) -> None:
        """M = Σ_h Z_h W_o[h] + b."""
        Z, W_o, *biases = node.inputs
        self.bias += float(sum(self.weight(b) @ u for b in biases))
        rows = self.row(Z)  # (h, d_k)
        values = (rows * (self.weight(W_o) @ u).reshape(rows.shape)).sum(-1)
        site = next(each.site for each in self.trace.graph.sites if each.Z == Z).removesuffix(".attention")
        self.parts += [Portion(f"{site}.head.{h}", Z, float(value)) for h, value in enumerate(values)]
