"""The computation graph of a network, recorded by running its forward on symbols.

In: a spec and the lengths of its sequences. Out: a `Graph` of `Node`s, in execution order: the operation, operands and axes
of every array that `see` names. No arrays and no PyTorch; nothing here knows a part or a model by name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regard.errors import NotFound
from regard.model.registry import network
from regard.model.spec import Spec
from regard.nn.expression import Expr, Var
from regard.nn.mask import Mask
from regard.nn.operation import Symbol
from regard.nn.operations import copy, one_head, softmax, stack
from regard.nn.part import with_symbols
from regard.nn.see import watching

SOURCE, TARGET = "source", "target"  # whose tokens an axis counts


class Node:
    """A node of the graph: a symbol that `see` has named."""

    def __init__(self, symbol: Symbol) -> None:
        self.symbol, self.name = symbol, symbol.name

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.symbol.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.symbol.shape

    @property
    def main(self) -> Symbol:
        """The symbol whose operation computes the node's numbers: views (reshapes, slices) on top of it are skipped."""
        x = self.symbol
        while x.op is not None and x.op.view and x.inputs[-1] is not None and not x.inputs[-1].name:
            x = x.inputs[-1]
        return x

    @property
    def op(self) -> str:
        assert self.main.op is not None
        return self.main.op.name

    @property
    def facts(self) -> dict[str, Any]:
        return self.main.facts

    @property
    def operands(self) -> list[Symbol]:
        """Its named inputs, in order of use: nodes, weights, ids, constants."""
        return list(dict.fromkeys(named(self.symbol)))

    @property
    def own(self) -> Iterator[Symbol]:
        """The operations that make it of its operands: its symbol, and what has no name of its own within."""
        return unnamed(self.symbol)

    @property
    def single(self) -> bool:
        """Whether one operation makes it of what has a name, so that what is said of the operation is true of the node."""
        return all(x is None or laid_bare(x).op is None or node_name(laid_bare(x)) for x in self.main.inputs)

    @property
    def looks_up_ids(self) -> bool:
        """Whether it is a token embedding: a table's row for each id, perhaps scaled."""
        return any(
            x.op is not None and x.op.name == "lookup" and is_named_input(x.inputs[1]) for x in unnamed(self.symbol)
        )

    @property
    def counts_positions(self) -> bool:
        """Whether it is computed from token positions alone."""
        made = [x.op.name for x in unnamed(self.symbol) if x.op is not None]
        return "positions" in made and not any(x.op is not None for x in self.operands)

    @property
    def width(self) -> int:
        """Of attention scores, scaled or not: the length of the dot products (d_k)."""
        x = self.main
        while x.op is not None and x.op.name != "dot" and x.inputs[0] is not None:
            x = x.inputs[0]
        assert x.inputs[0] is not None
        return x.inputs[0].shape[-1]

    def viewed_by(self, op: str) -> Symbol | None:
        """Its first operand, if that is an unnamed view made by this operation: heads joined ("join"), a token picked."""
        x = self.main.inputs[0]
        return x if x is not None and not x.name and x.op is not None and x.op.name == op else None

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the nodes and weights it is computed from."""
        return tuple(x.name for x in self.operands if x.data is None and not is_input(x))

    def formula(self, index: tuple[int, ...]) -> Expr:
        """The expression tree for its element at `index`."""
        return self.symbol.formula(index)

    @property
    def general_formula(self) -> Expr:
        """The expression tree for any index: i0, i1, …"""
        return self.symbol.formula(tuple(Var(f"i{axis}") for axis in range(self.symbol.ndim)))

    def __repr__(self) -> str:
        return f"<{self.name} {self.op} {self.shape}>"


def unnamed(symbol: Symbol) -> Iterator[Symbol]:
    """A symbol and the unnamed symbols that it is computed from, each once (a recurrent state is used several times)."""
    path, seen = [symbol], {id(symbol)}
    while path:
        found = path.pop()
        yield found
        for x in found.inputs:
            if x is not None and not x.name and id(x) not in seen:
                seen.add(id(x))
                path.append(x)


def node_name(x: Symbol | None) -> str | None:
    """The node that holds its numbers, whole or as one of its rows; None where it has none."""
    if x is None or x.name:
        return None if x is None else x.name
    return None if x.row_of is None else x.row_of[0].name


def laid_bare(x: Symbol) -> Symbol:
    """What it lays out, if that is all it does: the heads of what is joined."""
    while not node_name(x) and x.op is not None and x.op.view and x.inputs[-1] is not None:
        x = x.inputs[-1]
    return x


def mask_in(nodes: Iterable[Node]) -> Mask:
    found = (x.facts["by"] for node in nodes for x in node.own if x.op is not None and x.op.name == "mask")
    mask = next(found, Mask())
    assert isinstance(mask, Mask)
    return mask


def stack_and_layer(place: str) -> tuple[str, int]:
    """Of a part's place in the network: "decoder.3.cross" is in the decoder's block 3."""
    stack, _, rest = place.partition(".")
    number = rest.partition(".")[0]
    return stack, int(number) if number.isdigit() else 0


def is_named_input(x: Symbol | None) -> bool:
    return x is not None and bool(x.name) and is_input(x)


def is_input(x: Symbol) -> bool:
    """Whether it is an input of the network: ids."""
    return x.op is None and x.axes[0][0] in (SOURCE, TARGET)


def named(symbol: Symbol, top: Symbol | None = None) -> Iterator[Symbol]:
    """The nearest named symbols that a symbol is computed from."""
    for x in symbol.inputs:
        if x is None:
            continue
        if x.name:
            yield x
        elif x.row_of is not None and x.row_of[0] is not (top or symbol):
            yield x.row_of[0]
        else:
            yield from named(x, top or symbol)


def reached(symbol: Symbol) -> Iterator[Symbol]:
    """As `named`, without nodes that only stack a step afterwards."""
    for part in unnamed(symbol):
        yield from (x for x in part.inputs if x is not None and x.name)


def is_stepwise(symbol: Symbol) -> bool:
    """Whether it stacks the steps of a recurrent network."""
    while symbol.op is one_head and symbol.inputs[0] is not None:
        symbol = symbol.inputs[0]
    return symbol.op is stack


@dataclass(frozen=True)
class Site:
    """An attention site: one self- or cross-attention of one layer."""

    site: str  # "decoder.0.cross"
    kind: str  # "self" (bidirectional), "causal" or "cross"
    stack: str
    layer: int
    heads: int
    queries: str  # whose tokens ask
    keys: str  # whose are looked at
    # its nodes, by the graph's edges; None where a step has no name or is not taken
    steps: tuple[str, ...]  # (head, query, key), in the order of the run: from Q Kᵀ (or a bias) to the weights
    weights: str  # shares of keys: the last step
    Q: str | None  # what is compared, as the dot products read it: turned, normalised, or as projected
    K: str | None
    V: str | None  # what the weights mix,
    Z: str  # what comes of it,
    M: str | None  # and what the heads together hand on, through the output projection


class Graph:
    """The nodes by name, in execution order."""

    def __init__(self, spec: Spec, source: int, target: int | None = None) -> None:
        """source, target: numbers of input tokens and, in an encoder-decoder, of target tokens."""
        self.spec, self.nodes = spec, dict[str, Node]()
        net: Any = with_symbols(network(spec))
        ids = Symbol(((SOURCE, source),), name="ids")
        with watching(self._record):
            if spec.kind != "encoder-decoder":
                net(ids)
            else:
                assert target is not None
                target_ids = Symbol(((TARGET, target),), name="target_ids")
                if spec.head.kind == "classify":
                    net.classify(ids, target_ids, target - 1)
                else:
                    net(ids, target_ids)
        if "logits" in self.nodes:
            self._record("probabilities", softmax(self.nodes["logits"].symbol))

    def _record(self, name: str, x: Symbol) -> Symbol:
        if x.name:  # already recorded under another name
            x = copy(x)
        x.name = name
        self.nodes[name] = Node(x)
        rows, before = x, tuple[int, ...]()
        while rows.op is one_head and rows.inputs[0] is not None:
            rows, before = rows.inputs[0], (*before, 0)
        if rows.op is stack:
            for t, row in enumerate(rows.inputs):
                if row is not None and not row.name:
                    row.row_of = x, (*before, t)
        return x

    @cached_property
    def sites(self) -> list[Site]:
        """Wherever shares of keys, (head, query, key), mix something."""
        return [self._site(node) for node in self if node.op == "mix" and self._weights_of(node) is not None]

    def _weights_of(self, Z: Node) -> Node | None:
        A = node_name(Z.main.inputs[0])
        return self.nodes[A] if A in self.nodes and len(self.nodes[A].axes) == 3 else None

    def _site(self, Z: Node) -> Site:
        weights = self._weights_of(Z)
        assert weights is not None
        (_, heads), (queries, _), (keys, _) = weights.symbol.axes
        place = weights.name.rpartition(".")[0]
        steps = self.way_to(weights.name)
        dot = next((x for step in steps for x in self[step].own if x.op is not None and x.op.name == "dot"), None)
        Q, K = (None, None) if dot is None else map(node_name, dot.inputs)
        M = self.user(Z.name, "linear")
        M = None if M is None or M.viewed_by("join") is None else M
        causal = mask_in(self[step] for step in steps).causal
        kind = "cross" if queries != keys else "causal" if causal else "self"
        return Site(
            *(place, kind, *stack_and_layer(place), heads, queries, keys, steps, weights.name),
            *(Q, K, node_name(Z.main.inputs[1]), Z.name, None if M is None else M.name),
        )

    def way_to(self, name: str) -> tuple[str, ...]:
        """What a node was before, in the order of the run: the nodes with the same axes that it is made of, itself last."""
        found, path = {name}, [name]
        while path:
            path += [x for x in self[path.pop()].inputs if x in self.nodes and self[x].axes == self[name].axes]
            found.update(path)
        return tuple(node.name for node in self if node.name in found)

    def mask_of(self, site: Site) -> Mask:
        """What hides keys from the queries of a site."""
        return mask_in(self[step] for step in site.steps)

    def hidden_at(self, site: Site) -> tuple[str, str | None] | None:
        """The scores that a mask hides some of, and the node where it does; that is None where there is no mask.

        Nothing where the mask has no node of its own.
        """
        for step in site.steps:
            if self[step].op == "mask" and self[step].single:
                return self[step].inputs[0], step
        last = next((name for name in self[site.weights].inputs if name in site.steps), None)
        return None if last is None or self.mask_of(site).hides else (last, None)

    def __getitem__(self, name: str) -> Node:
        if name not in self.nodes:
            raise NotFound(f"The network has no node {name!r}.")
        return self.nodes[name]

    @cached_property
    def users(self) -> dict[str, list[Node]]:
        """Name → the nodes that have it as an input."""
        found: dict[str, list[Node]] = {}
        for node in self:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def user(self, name: str, op: str) -> Node | None:
        """The first node that applies this operation to it."""
        return next((node for node in self.users.get(name, ()) if node.op == op), None)

    def mix_of(self, site: Site) -> Node:
        """What a site's weights make of its values: Z."""
        return self[site.Z]

    def output_of(self, site: Site) -> Node | None:
        """What a site's heads together hand on: M. None where there is no output projection."""
        return None if site.M is None else self[site.M]

    def following(self, names: Iterable[str]) -> set[str]:
        """All nodes downstream of these."""
        found = set(names)
        for node in self:
            if not found.isdisjoint(node.inputs):
                found.add(node.name)
        return found - set(names)

    def residual_into(self, node: Node) -> str | None:
        """Of a node's summands, the residual stream: the one that the others were computed from."""
        summands = [name for name in node.inputs if name in self.nodes]
        for name in summands:
            others = set(summands) - {name}
            if others and others <= self.following({name}):
                return name
        return None

    def last_common(self, tokens: str) -> str:
        """The last node before everything is computed token by token: no later node mixes these tokens."""
        nodes, needed = list(self), set[str]()
        found = nodes[-1].name
        for i in range(len(nodes) - 1, -1, -1):
            if needed <= {nodes[i].name}:  # all that later nodes need of these tokens
                found = nodes[i].name
            if any(axis == tokens for axis in nodes[i].axes[2:]):  # attention weights: tokens are mixed
                break
            needed.discard(nodes[i].name)
            needed |= {name for name in nodes[i].inputs if name in self.nodes and tokens in self[name].axes}
        return found

    @cached_property
    def observe_only(self) -> frozenset[str]:
        """Nodes that cannot be edited: stacked steps of a recurrent network, which `see` reports after the last step, when
        the steps themselves have already used the original values."""
        stepwise = [node for node in self if is_stepwise(node.symbol)]
        used = {x.name for node in self for x in reached(node.symbol)}
        within = {name for node in stepwise for name in node.inputs}
        return frozenset(node.name for node in stepwise if node.name not in used or node.name in within)

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Constants, neither learned nor computed from inputs: rotary frequencies."""
        return {x.name: x.data for node in self for x in node.operands if x.data is not None}

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())
