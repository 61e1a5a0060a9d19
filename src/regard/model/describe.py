"""A spec → its parts as a tree, with shapes and parameter counts, without a single weight.

The network is built on PyTorch's "meta" device, where tensors have shapes and no numbers; what is described is therefore
what would be loaded, and not a second account of it.
"""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.model.spec import Spec, StackSpec
from regard.model.transformer import blueprint


@dataclass
class Branch:
    """A module: what it holds itself, what it contains, and how often it stands there in a row."""

    name: str
    about: str
    parameters: int  # of all `times` together; a tied parameter counts where it stands first
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
    return _branch(spec.family, blueprint(spec), set())


def summary(spec: Spec) -> dict[str, Any]:
    """The facts people ask for first."""
    tree = describe(spec)
    return {
        "family": spec.family,
        "kind": spec.kind,
        "parameters": tree.parameters,
        "width": spec.d,
        "vocabulary": spec.n_vocab,
        "context": spec.context,
        "head": spec.head.kind,
        "stacks": {name: stack_facts(stack) for name, stack in spec.stacks.items()},
        "tree": tree.as_dict(),
    }


def stack_facts(stack: StackSpec) -> dict[str, Any]:
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


def _branch(name: str, module: nn.Module, counted: set[int]) -> Branch:
    own = list(module.parameters(recurse=False))
    tied = [id(p) in counted for p in own]
    total = sum(p.numel() for p, old in zip(own, tied, strict=True) if not old)
    counted.update(id(p) for p in own)
    children = [_branch(n, m, counted) for n, m in module.named_children() if any(True for _ in m.parameters())]
    about = _about(module, own) + (" (tied to the embedding)" if any(tied) else "")
    return Branch(name, about, total + sum(c.parameters for c in children), 1, _folded(children))


def _about(module: nn.Module, own: list[nn.Parameter]) -> str:
    if isinstance(module, nn.Linear):
        return f"{module.in_features:,} → {module.out_features:,}" + (" + bias" if module.bias is not None else "")
    if own:
        return " × ".join(f"{n:,}" for n in own[0].shape)
    return "" if isinstance(module, nn.ModuleList) else type(module).__name__


def _folded(children: list[Branch]) -> list[Branch]:
    """Blocks that look alike in a row become one with a count."""
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
