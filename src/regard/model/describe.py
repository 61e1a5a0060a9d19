"""A spec → its modules as a tree, with shapes and parameter counts (`regard inspect`). No weights are loaded.

The tree is read from the network's parts, whose weights are declared and not filled.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from regard.model.registry import network
from regard.model.spec import Spec, StackSpec
from regard.nn.linear import Linear
from regard.nn.part import Part, Weight, weights


@dataclass
class Branch:
    """A module of the tree: its parameters, its children, and how many equal ones it represents."""

    name: str
    about: str
    parameters: int  # of all `times` together; a tied parameter counts where it occurs first
    times: int = 1
    children: list["Branch"] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"name": self.name, "about": self.about, "parameters": self.parameters}
        if self.times > 1:
            plain["times"] = self.times
        if self.children:
            plain["children"] = [child.as_dict() for child in self.children]
        return plain


def describe(spec: Spec) -> Branch:
    tied = {name: group[0] for group in spec.tied for name in group}
    return _branch(spec.family, network(spec), "", tied, set())


def summary(spec: Spec) -> dict[str, Any]:
    """The main figures of a model, for `regard inspect`."""
    tree = describe(spec)
    return {
        "family": spec.family,
        "kind": spec.kind,
        "parameters": tree.parameters,
        "width": spec.d,
        "vocabulary": spec.n_vocab,
        "context": spec.context,
        "head": spec.head.kind,
        "stacks": {name: stack_summary(stack) for name, stack in spec.stacks.items()},
        "tree": tree.as_dict(),
    }


def stack_summary(stack: StackSpec) -> dict[str, Any]:
    a, m, p = stack.attention, stack.mlp, stack.positions
    positions = (
        p.kind if p.kind != "rotary" else f"rotary (θ = {p.theta:g}{', ' + p.scaling.kind if p.scaling else ''})"
    )
    facts = {
        "layers": stack.n_layers,
        "heads": a.heads,
        "key/value heads": a.kv_heads,
        "d_k": a.d_k,
        "d_ff": m.d_ff,
        "wiring": f"{stack.wiring}-norm",
        "norm": "LayerNorm" if stack.norm == "layer" else "RMSNorm",
        "activation": m.activation + (", gated" if m.gated else ""),
        "positions": positions,
    }
    if any(stack.windows):
        facts["window"] = max(w or 0 for w in stack.windows)
    return facts


def _branch(name: str, part: Part | list[Part], place: str, tied: dict[str, str], counted: set[str]) -> Branch:
    """tied: weight name → the name its group is counted under. counted: names counted so far."""
    below = f"{place}." if place else ""
    held: dict[Any, Any] = dict(enumerate(part)) if isinstance(part, list) else vars(part)
    own = {key: x for key, x in held.items() if isinstance(x, Weight)}
    names = {key: tied.get(f"{below}{key}", f"{below}{key}") for key in own}
    again = any(each in counted for each in names.values())
    total = sum(math.prod(x.shape) for key, x in own.items() if names[key] not in counted)
    counted.update(names.values())
    children = [
        _branch(str(key), x, f"{below}{key}", tied, counted)
        for key, x in held.items()
        if (isinstance(x, Part) and any(weights(x))) or (isinstance(x, list) and x)
    ]
    about = _about(part, list(own.values())) + (" (tied to the embedding)" if again else "")
    return Branch(name, about, total + sum(c.parameters for c in children), 1, _folded(children))


def _about(part: Part | list[Part], own: list[Weight]) -> str:
    if isinstance(part, Linear):
        return f"{part.fan_in:,} → {part.fan_out:,}" + (" + bias" if part.bias is not None else "")
    if own:
        return " × ".join(f"{n:,}" for n in own[0].shape)
    return "" if isinstance(part, list) else type(part).__name__


def _folded(children: list[Branch]) -> list[Branch]:
    """Consecutive equal blocks collapsed into one, with a count."""
    folded: list[Branch] = []
    for child in children:
        last = folded[-1] if folded else None
        if last and child.name.isdigit() and last.name[:1].isdigit() and _same(last, child):
            first = last.name.split("…")[0]
            last.name, last.times = f"{first}…{child.name}", last.times + 1
            last.parameters += child.parameters
        else:
            folded.append(child)
    return folded


def _same(a: Branch, b: Branch) -> bool:
    shapes = [(c.name, c.about, c.parameters) for c in a.children] == [
        (c.name, c.about, c.parameters) for c in b.children
    ]
    return a.about == b.about and shapes and a.parameters == a.times * b.parameters
