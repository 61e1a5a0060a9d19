"""What the path of an edit refers to: nodes and indices.

In: the graph of a run with the shapes of its nodes, and a path such as "decoder.2.attention.head.5", "token.4",
"decoder.*.attention.mask[3, 1]" or "decoder.0.norm_1". Out: targets: `Value` (values of a node), `MaskEntries` and `Switch`
(a step of the computation that can be left out). An unknown path is refused with the nearest known ones.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from regard.errors import NotFound, TaskError, quoted
from regard.model.graph import Graph, Node, Site
from regard.model.registry import network
from regard.model.wiring import Sum, wiring
from regard.nn.part import weights

Index = tuple[int | slice, ...]
Shapes = Mapping[str, tuple[int, ...]]  # without the batch axis

RESIDUALS = {
    "attention": "residual_1",
    "cross attention": "residual_cross",
    "MLP": "residual_2",
}  # by the branch they go around


@dataclass(frozen=True)
class Value:
    """Values of a node: all, or those at an index."""

    node: str
    index: Index = ()


@dataclass(frozen=True)
class MaskEntries:
    """Entries (query, key) of the mask of an attention site."""

    site: Site
    index: Index = ()


@dataclass(frozen=True)
class Switch:
    """A node that can be off: then it is the sum of the nodes `instead`, or zero if there are none."""

    node: str
    instead: tuple[str, ...]


Target = Value | MaskEntries | Switch


class EditTargets:
    """Everything in a network that an edit can refer to."""

    def __init__(self, graph: Graph, shapes: Shapes) -> None:
        self.graph, self.shapes = graph, shapes
        self.switches, self.indexed = switches(graph), indexed(graph)
        self.masks = {f"{site.site}.mask": site for site in graph.sites if site.M and graph.hidden_at(site)}

    def find(self, path: str) -> list[Target]:
        """The targets of a path with its wildcards and its index: at least one."""
        parts = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", path.strip())
        if parts is None:
            raise NotFound(f"{quoted(path)} is not a path; write one like decoder.0.attention.weights[3, 1, :].")
        pattern, index = parts[1].strip(), parts[2]
        return [*self._switches(pattern, index), *self._values(pattern, index)] or self._refuse(pattern)

    def _switches(self, pattern: str, index: str | None) -> Iterable[Target]:
        for name in matching(pattern, self.switches):
            if index is not None:
                raise TaskError(f"{quoted(name)} is on or off as a whole: it takes no index.")
            yield from self.switches[name]
        for name in matching(pattern, self.masks):
            site = self.masks[name]
            yield MaskEntries(site, read_index(name, index, self.shapes[site.weights][1:]))

    def _values(self, pattern: str, index: str | None) -> Iterable[Target]:
        for name in matching(pattern, self.graph.nodes):
            self._check_editable(name)
            yield Value(name, read_index(name, index, self.shapes[name]))
        prefix, _, which = pattern.rpartition(".")
        for name in matching(prefix, self.indexed) if re.fullmatch(r"\*|\d+", which) else ():
            node, axis = self.indexed[name]
            self._check_editable(node)
            shape = self.shapes[node]
            others = read_index(pattern, index, shape[:axis] + shape[axis + 1 :])
            others += (slice(None),) * (axis - len(others))
            at = read_index(name, which, shape[axis : axis + 1])
            yield Value(node, (*others[:axis], *at, *others[axis:]))

    def _check_editable(self, node: str) -> None:
        if node == "probabilities":
            raise TaskError(
                "probabilities are the softmax of the logits and nothing is computed from them: edit logits."
            )
        if node in self.graph.observe_only:
            raise TaskError(
                f"{node} is computed step by step inside a recurrent network: it can be read, but not edited."
            )

    def _refuse(self, path: str) -> NoReturn:
        if is_weight(self.graph, path):
            raise TaskError(f"{quoted(path)} is a learned weight; edit the nodes that are computed with it.")
        if path in [f"{site.site}.scaling" for site in self.graph.sites if site.Q is not None]:
            raise TaskError(f"{path} is off already: this model does not divide its scores by √d_k.")
        names = [*self.switches, *self.masks, *self.graph.nodes, *(f"{name}.0" for name in self.indexed)]
        near = difflib.get_close_matches(path, names, 3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "trace.nodes() lists its nodes."
        raise NotFound(f"This model has no edit target {quoted(path)}; {hint}")


def switches(graph: Graph) -> dict[str, list[Switch]]:
    """Name → what is switched off under it: which node changes, and to what, follows from the graph."""
    found: dict[str, list[Switch]] = {}

    def add(node: Node, instead: tuple[str, ...], *names: str) -> None:
        for name in names:
            found.setdefault(name, []).append(Switch(node.name, instead))

    parts = wiring(graph)
    sums = {each.node: each for block in parts.blocks for each in block.sums}
    normed = {norm.out: norm.x for norm in parts.norms}
    steps = {name: (before, site) for site in graph.sites for name, before in steps_of(graph, site).items()}
    for node in graph:
        place = node.name.rpartition(".")[0]
        everywhere = ["positions"]  # "decoder.positions" too, where there are two stacks
        everywhere += [f"{place.split('.')[0]}.positions"] if graph.spec.kind == "encoder-decoder" else []
        if node.name in steps and node.facts.get("by") != 1:
            before, site = steps[node.name]
            add(node, (before,), f"{site.site}.{step_name(graph, node)}")
        elif node.op == "rotate":
            add(node, node.inputs[:1], f"{place}.rotary", *everywhere)
        elif node.counts_positions:
            add(node, (), *everywhere)
        elif node.name in sums:
            rest = tuple(branch.node for branch in sums[node.name].branches)
            add(node, rest, f"{place}.{residual_name(sums[node.name])}")
        elif node.name in normed:
            add(node, (normed[node.name],), place)
    return found


def residual_name(total: Sum) -> str:
    """A residual connection around one part is named after it; around several at once, just "residual"."""
    return RESIDUALS.get(total.branches[0].kind, "residual") if len(total.branches) == 1 else "residual"


def steps_of(graph: Graph, site: Site) -> dict[str, str]:
    """Steps between dot products and attention weights that can be left out → the scores before each.

    The mask is not among them (it has its own path), nor what is only added to scores (a bias)."""
    dots = {step for step in site.steps if any(x.op is not None and x.op.name == "dot" for x in graph[step].own)}
    scores = dots | graph.following(dots)
    found = {}
    for step in site.steps[:-1]:
        before = [x for x in graph[step].inputs if x in site.steps and x in scores]
        if graph[step].op != "mask" and len(before) == 1:
            found[step] = before[0]
    return {x: y for x, y in found.items() if sum(y in graph[step].inputs for step in site.steps) == 1}


STEPS = {"scale": "scaling", "add": "bias"}  # the usual names of operations on scores


def step_name(graph: Graph, node: Node) -> str:
    """The name of a step between dot products and weights: scaling, cap, … Different from all names of nodes."""
    ops = [x.op.name for x in node.own if x.op is not None and not x.op.view]
    name = "_".join(STEPS.get(op, op) for op in reversed(ops))
    return name if f"{node.name.rpartition('.')[0]}.{name}" not in graph.nodes else f"{name}_step"


def indexed(graph: Graph) -> dict[str, tuple[str, int]]:
    """Paths that take a number (…head.5, …neuron.7, token.4) → the node, and the axis that the number indexes."""
    found = {f"{site.site}.head": (graph.mix_of(site).name, 0) for site in graph.sites}
    for node in graph:
        place = node.name.rpartition(".")[0]
        if (
            node.axes[-1] == "neuron" and graph.user(node.name, "linear") is not None
        ):  # after the activation or the gate
            found[f"{place}.neuron"] = (node.name, 1)
        elif node.looks_up_ids:
            found[f"{place.removesuffix('embed')}token"] = (node.name, 0)
    return found


def matching(path: str, names: Iterable[str]) -> list[str]:
    """The names that match a path, in which * stands for any one part between dots."""
    if "*" not in path:
        return [path] if path in names else []
    pattern = re.compile(r"[^.]+".join(map(re.escape, path.split("*"))))
    return [name for name in names if pattern.fullmatch(name)]


def read_index(path: str, text: str | None, shape: tuple[int, ...]) -> Index:
    """ "3, 1, :" or "0:4" as an index into an array of this shape; None is all of it."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > len(shape):
        raise NotFound(f"{path} has {len(shape)} axes {shape}, but {quoted(text)} has {len(parts)}.")
    return tuple(read_entry(path, part, n, axis) for axis, (part, n) in enumerate(zip(parts, shape, strict=False)))


def read_entry(path: str, text: str, n: int, axis: int) -> int | slice:
    if text in (":", "*"):
        return slice(None)
    span = re.fullmatch(r"(-?\d{1,9})|(\d{0,9}):(\d{0,9})", text)
    if span is None:
        raise NotFound(f"{path}: {quoted(text)} is not an index; write a number, a:b or :.")
    if span[1] is not None and -n <= int(span[1]) < n:
        return int(span[1])
    if span[1] is None:
        first, last = int(span[2] or 0), int(span[3] or n)
        if first < last <= n:
            return slice(first, last)
    raise NotFound(f"{path}: {text} is out of range; axis {axis} has {n} entries, 0 to {n - 1}.")


def is_weight(graph: Graph, path: str) -> bool:
    """Whether a path is that of a weight, or of a part with one (decoder.0.attention.W_q)."""
    return any(name in (path, f"{path}.weight") for name, _ in weights(network(graph.spec)))
