"""What formulas call the nodes, weights and constants of a graph: the lectures' letters, by role.

In: a `Graph`. Out: name → letter. The role of a node follows from the graph's edges (`Graph.sites`, `wiring`), that of a
weight from the operation that takes it, so a family may name its nodes as it likes. What has no role goes by its own name.
"""

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from regard.model.graph import Graph, Node, Site, is_input, is_named_input, unnamed
from regard.model.wiring import Norm, wiring
from regard.nn.operation import Symbol

RESIDUALS = {"attention": "H", "cross attention": "C", "MLP": "H_2"}  # sums within a block, by the branch that is added
SPREADS = {"variance": "σ²", "mean_square": "ms"}  # by operation
PARAMETERS = {"b": "b", "gamma": "γ", "beta": "β", "theta": "θ"}  # by what an operation's definition calls them


class Letters(dict[str, str]):
    """Name → letter; names without a role in the graph have the letter that `own_name` gives."""

    def __missing__(self, name: str) -> str:
        return own_name(name)


_made: WeakKeyDictionary[Graph, Letters] = WeakKeyDictionary()


def letters(graph: Graph) -> Letters:
    """The letters of a graph, computed once."""
    if graph not in _made:
        _made[graph] = Letters(roles(graph))
    return _made[graph]


def own_name(name: str) -> str:
    """A letter from the name itself: "W_dense" for head.dense.weight, "up" for decoder.0.mlp.up, "mlp.out" for its out."""
    parent, _, last = name.rpartition(".")
    parent = parent.rpartition(".")[2]
    if last == "weight":
        return parent if parent.startswith("W_") else f"W_{parent}"
    if last == "bias":
        return "b"
    return f"{parent}.out" if last == "out" and parent else last


def roles(graph: Graph) -> Iterator[tuple[str, str]]:
    yield "probabilities", "p"
    for node in graph:
        yield from parameters(node)
    for site in graph.sites:
        yield from attention(graph, site)
    parts = wiring(graph)
    for norm in parts.norms:
        yield from statistics(graph, norm)
    for block in parts.blocks:
        for each in block.sums:
            if each.node != block.out and len(each.branches) == 1 and each.branches[0].kind in RESIDUALS:
                yield each.node, RESIDUALS[each.branches[0].kind]


def parameters(node: Node) -> Iterator[tuple[str, str]]:
    """Weights and constants that the node's operations take directly. Several with one letter keep their own names."""
    found: dict[str, set[str]] = {}
    for x in node.own:
        for parameter, given in zip(() if x.op is None else x.op.operand_names, x.inputs, strict=False):
            if given is None or given.op is not None or not given.name or is_input(given):
                continue
            letter = table(x) if parameter == "E" else PARAMETERS.get(parameter)
            if letter is not None:
                found.setdefault(letter, set()).add(given.name)
    yield from ((name, letter) for letter, names in found.items() if len(names) == 1 for name in names)


def table(lookup: Symbol) -> str:
    """The letter of an embedding table, by what its rows are looked up with: tokens, positions or token types."""
    row = lookup.inputs[1]
    if is_named_input(row):
        return "E"
    assert row is not None
    return "P" if any(x.op is not None and x.op.name == "positions" for x in unnamed(row)) else "T"


def attention(graph: Graph, site: Site) -> Iterator[tuple[str, str]]:
    for letter, name in (("Q", site.Q), ("K", site.K), ("V", site.V)):
        if name is not None and len(graph[name].axes) == 3:  # (head, token, feature)
            projected, *after = graph.way_to(name)
            yield projected, letter
            yield from ((x, f"{letter}′") for x in after if graph[x].op == "rotate")
            yield from matrix(graph[projected], f"W_{letter.lower()}")
    computed = set[str]()  # from Q Kᵀ, where there is one: a bias that is only added has its own name
    for step in site.steps:
        node = graph[step]
        compares = any(x.op is not None and x.op.name == "dot" for x in node.own)
        if compares or site.Q is None or not computed.isdisjoint(node.inputs):
            computed.add(step)
            yield step, "QKᵀ" if node.op == "dot" and node.single else "S"
    yield site.weights, "A"
    yield site.Z, "Z"
    if site.M is not None:
        yield site.M, "M"
        yield from matrix(graph[site.M], "W_o")


def matrix(node: Node, letter: str) -> Iterator[tuple[str, str]]:
    """The weight matrix of a projection."""
    if node.op == "linear" and (W := node.main.inputs[1]) is not None and W.op is None and W.name:
        yield W.name, letter


def statistics(graph: Graph, norm: Norm) -> Iterator[tuple[str, str]]:
    yield norm.normalised, "x̂"
    if (op := graph[norm.spread].op) in SPREADS:
        yield norm.spread, SPREADS[op]
    if norm.mean is not None:
        yield norm.mean, "μ"
