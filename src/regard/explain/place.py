"""Where an edit acts: a place in words becomes nodes and indices.

In: the graph of a run with the shapes it showed, and a place such as "decoder.2.attention.head.5", "token.4",
"decoder.*.attention.mask[3, 1]" or "decoder.0.norm_1". Out: `Value`s (numbers of a node), `Hiding`s (entries of a mask) and
`Switch`es (a step of the computation that can be left out). A place that does not exist is refused with its nearest names.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from regard.errors import NotFound, TaskError, quoted
from regard.explain.graph import Graph, Node, Site
from regard.model.recurrent import Recurrent

Index = tuple[int | slice, ...]
Shapes = Mapping[str, tuple[int, ...]]  # without the batch axis

RESIDUALS = {"H": "residual_1", "C": "residual_cross", "H_2": "residual_2", "out": "residual_2"}


@dataclass(frozen=True)
class Value:
    """Numbers of a node: all of them, or those at an index."""

    node: str
    index: Index = ()


@dataclass(frozen=True)
class Hiding:
    """Entries (query, key) of a site's mask."""

    site: Site
    index: Index = ()


@dataclass(frozen=True)
class Switch:
    """Off, the node is what `instead` was; without one, zero."""

    node: str
    instead: str | None


Target = Value | Hiding | Switch


class Places:
    """Every place of a network that an edit can name."""

    def __init__(self, graph: Graph, shapes: Shapes) -> None:
        self.graph, self.shapes = graph, shapes
        self.switches, self.counted = switches(graph), counted(graph)
        self.masks = {f"{site.site}.mask": site for site in graph.sites if f"{site.site}.M" in graph.nodes}

    def find(self, place: str) -> list[Target]:
        """All that a place means, with its wildcards and its index: at least one target."""
        parts = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", place.strip())
        if parts is None:
            raise NotFound(f"{quoted(place)} is not a place; one is written like decoder.0.attention.weights[3, 1, :].")
        path, index = parts[1].strip(), parts[2]
        return [*self._switches(path, index), *self._values(path, index)] or self._refuse(path)

    def _switches(self, path: str, index: str | None) -> Iterable[Target]:
        for name in matching(path, self.switches):
            if index is not None:
                raise TaskError(f"{quoted(name)} is on or off as a whole: it has no index.")
            yield from self.switches[name]
        for name in matching(path, self.masks):
            site = self.masks[name]
            yield Hiding(site, read_index(name, index, self.shapes[f"{site.site}.scores"][1:]))

    def _values(self, path: str, index: str | None) -> Iterable[Target]:
        for name in matching(path, self.graph.nodes):
            self._check_used(name)
            yield Value(name, read_index(name, index, self.shapes[name]))
        family, _, which = path.rpartition(".")
        for name in matching(family, self.counted) if re.fullmatch(r"\*|\d+", which) else ():
            node, axis = self.counted[name]
            self._check_used(node)
            shape = self.shapes[node]
            others = read_index(path, index, shape[:axis] + shape[axis + 1 :])
            others += (slice(None),) * (axis - len(others))
            at = read_index(name, which, shape[axis : axis + 1])
            yield Value(node, (*others[:axis], *at, *others[axis:]))

    def _check_used(self, node: str) -> None:
        if node == "probabilities":
            raise TaskError("probabilities are the softmax of the logits and nothing follows from them: edit logits.")
        if isinstance(self.graph.net, Recurrent) and node.startswith(("decoder.cross.", "decoder.states")):
            raise TaskError(
                f"{node} happens step by step inside a recurrent network: it can be looked at, but not edited."
            )

    def _refuse(self, path: str) -> NoReturn:
        if is_weight(self.graph, path):
            raise TaskError(f"{quoted(path)} is a learned weight; edit the numbers that it makes.")
        if path.endswith(".scaling") and f"{path.removesuffix('.scaling')}.scores" in self.graph.nodes:
            raise TaskError(f"{path} is off already: this model does not divide its scores by √d_k.")
        names = [*self.switches, *self.masks, *self.graph.nodes, *(f"{name}.0" for name in self.counted)]
        near = difflib.get_close_matches(path, names, 3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "trace.nodes() lists its nodes."
        raise NotFound(f"This model has no place {quoted(path)}; {hint}")


def switches(graph: Graph) -> dict[str, list[Switch]]:
    """What can be off, by name. The graph says which node stands for it and what would be there without it."""
    found: dict[str, list[Switch]] = {}

    def add(node: Node, instead: str | None, *names: str) -> None:
        for name in names:
            found.setdefault(name, []).append(Switch(node.name, instead))

    for node in graph:
        place, _, local = node.name.rpartition(".")
        everywhere = ["positions"]  # "decoder.positions" too, where there are two stacks
        everywhere += [f"{place.split('.')[0]}.positions"] if graph.net.spec.kind == "encoder-decoder" else []
        if node.op == "scale" and node.facts["scale"] != 1:
            add(node, node.inputs[0], f"{place}.scaling")
        elif node.op == "rotate":
            add(node, node.inputs[0], f"{place}.rotary", *everywhere)
        elif local == "positions":
            add(node, None, *everywhere)
        elif node.op == "add" and local in RESIDUALS and not place.endswith("embed"):
            add(node, node.inputs[1], f"{place}.{RESIDUALS[local]}")
        elif node.op == "affine":
            add(node, graph[f"{place}.normalised"].inputs[0], place)
    return found


def counted(graph: Graph) -> dict[str, tuple[str, int]]:
    """Places followed by a number: the node that they mean, and the axis that the number counts."""
    found = {f"{site.site}.head": (f"{site.site}.Z", 0) for site in graph.sites}
    for node in graph:
        place, _, local = node.name.rpartition(".")
        if local == "gated" or (local == "act" and place.endswith(".mlp") and f"{place}.gated" not in graph.nodes):
            found[f"{place}.neuron"] = (node.name, 1)
        elif node.op == "lookup" and local == "tokens":
            found[f"{place.removesuffix('embed')}token"] = (node.name, 0)
    return found


def matching(path: str, names: Iterable[str]) -> list[str]:
    """The names that a path means, where * stands for any one part between two dots."""
    if "*" not in path:
        return [path] if path in names else []
    pattern = re.compile(r"[^.]+".join(map(re.escape, path.split("*"))))
    return [name for name in names if pattern.fullmatch(name)]


def read_index(place: str, text: str | None, shape: tuple[int, ...]) -> Index:
    """ "3, 1, :" or "0:4" as an index into a tensor of that shape; nothing is all of it."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > len(shape):
        raise NotFound(f"{place} has {len(shape)} axes {shape}, but {quoted(text)} has {len(parts)}.")
    return tuple(read_entry(place, part, n, axis) for axis, (part, n) in enumerate(zip(parts, shape, strict=False)))


def read_entry(place: str, text: str, n: int, axis: int) -> int | slice:
    if text in (":", "*"):
        return slice(None)
    span = re.fullmatch(r"(-?\d{1,9})|(\d{0,9}):(\d{0,9})", text)
    if span is None:
        raise NotFound(f"{place}: {quoted(text)} is not an index; write a number, a:b or :.")
    if span[1] is not None and -n <= int(span[1]) < n:
        return int(span[1])
    if span[1] is None:
        first, last = int(span[2] or 0), int(span[3] or n)
        if first < last <= n:
            return slice(first, last)
    raise NotFound(f"{place}: {text} lies outside; axis {axis} has {n} entries, 0 to {n - 1}.")


def is_weight(graph: Graph, path: str) -> bool:
    """Whether a name is that of a parameter, or of a module that is little else (decoder.0.attention.W_q)."""
    parameters: dict[str, Any] = dict(graph.net.named_parameters(remove_duplicate=False))
    return any(isinstance(parameters.get(name), Tensor) for name in (path, f"{path}.weight"))
