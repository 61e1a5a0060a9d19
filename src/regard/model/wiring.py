"""How blocks are wired, read off a graph's edges: the steps of norms and MLPs, and what adds to the residual stream.

In: a `Graph`. Out: names of nodes in their roles. Panels, edits and lenses ask here (and of attention, `Graph.sites`)
instead of knowing what a family calls its nodes.
"""

from dataclasses import dataclass, replace

from regard.model.graph import Graph, Node, node_name, stack_and_layer


@dataclass(frozen=True)
class Norm:
    out: str  # what it hands on
    x: str  # what it reads
    normalised: str
    spread: str  # variance, or mean square
    mean: str | None  # None in an RMSNorm
    gamma: str | None
    beta: str | None


@dataclass(frozen=True)
class MLP:
    """Fan out, bend, fan in. gate and gated: only where a second projection is multiplied with what was bent."""

    up: str
    gate: str | None
    act: str
    gated: str | None
    out: str


@dataclass(frozen=True)
class Branch:
    """What goes around the stream and is added to it."""

    kind: str  # "attention", "cross attention", "MLP", or several
    node: str  # what it adds
    sites: tuple[str, ...]  # the attentions on the way,
    mlps: tuple[str, ...]  # what MLPs on the way hand on,
    norms: tuple[str, ...]  # and what norms of whole vectors do


@dataclass(frozen=True)
class Sum:
    """A residual connection: node = stream + what each branch adds, and each branch is made of the stream."""

    node: str
    stream: str
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Block:
    place: str  # "decoder.0"
    stack: str
    layer: int
    sums: tuple[Sum, ...]
    out: str


@dataclass(frozen=True)
class Wiring:
    norms: list[Norm]
    mlps: list[MLP]
    blocks: list[Block]
    embeddings: dict[str, tuple[str, ...]]  # by stack: what makes the input of its first block, which is the last


def wiring(graph: Graph) -> Wiring:
    parts = Wiring(norms(graph), mlps(graph), [], {})
    found = blocks(graph, parts)
    return replace(parts, blocks=found, embeddings=embeddings(graph, found))


def norms(graph: Graph) -> list[Norm]:
    found = []
    for node in graph:
        if node.op != "normalise" or not node.single:
            continue
        x, spread, *mean = map(node_name, node.main.inputs)
        stretched = graph.user(node.name, "affine")
        gamma, beta = (*(() if stretched is None else map(node_name, stretched.main.inputs[1:])), None, None)[:2]
        assert x is not None
        assert spread is not None
        out = node if stretched is None else stretched
        found.append(Norm(out.name, x, node.name, spread, next(iter(mean), None), gamma, beta))
    return found


def mlps(graph: Graph) -> list[MLP]:
    found = []
    for act in graph:
        if act.op != "activation" or act.axes[-1] != "neuron" or not act.single:
            continue
        bent, gated = act.inputs[0], graph.user(act.name, "gate")
        out = graph.user((gated or act).name, "linear")
        if out is None or (gated is not None and not gated.single):
            continue
        other = None if gated is None else next(name for name in gated.inputs if name != act.name)
        gate = None if other is None else bent
        found.append(MLP(other or bent, gate, act.name, None if gated is None else gated.name, out.name))
    return found


def blocks(graph: Graph, parts: Wiring) -> list[Block]:
    by_place: dict[str, list[Sum]] = {}
    for node in graph:
        if (made := residual(graph, node, parts)) is not None:
            by_place.setdefault(node.name.rpartition(".")[0], []).append(made)
    names = list(graph.nodes)
    return [
        Block(place, *stack_and_layer(place), tuple(sums), [x for x in names if x.startswith(f"{place}.")][-1])
        for place, sums in by_place.items()
    ]


def residual(graph: Graph, node: Node, parts: Wiring) -> Sum | None:
    """A plain sum of nodes, all but one of which are made of that one."""
    if node.op != "add" or not node.single or (stream := graph.residual_into(node)) is None:
        return None
    inside = graph.following({stream})
    return Sum(node.name, stream, tuple(branch(graph, x, inside, parts) for x in node.inputs if x != stream))


def branch(graph: Graph, name: str, inside: set[str], parts: Wiring) -> Branch:
    way = upstream(graph, name, inside)
    sites = [site for site in graph.sites if site.weights in way]
    kinds = ["cross attention" if site.kind == "cross" else "attention" for site in sites]
    inner = tuple(mlp.out for mlp in parts.mlps if mlp.act in way)
    kinds += ["MLP"] * bool(inner)
    whole = tuple(norm.out for norm in parts.norms if norm.out in way and len(graph[norm.out].axes) == 2)
    return Branch(" and ".join(dict.fromkeys(kinds)), name, tuple(site.site for site in sites), inner, whole)


def upstream(graph: Graph, name: str, inside: set[str]) -> set[str]:
    """The nodes of these that one is made of, and those in turn; and itself."""
    found, path = {name}, [name]
    while path:
        more = [x for x in graph[path.pop()].inputs if x in inside and x not in found]
        found.update(more)
        path += more
    return found


def embeddings(graph: Graph, found: list[Block]) -> dict[str, tuple[str, ...]]:
    """Of a recurrent network, which has no blocks: a row for each token, under each name that it has."""
    ends: dict[str, str] = {}
    for block in found:
        ends.setdefault(block.stack, block.sums[0].stream)
    for node in () if found else graph:
        if node.looks_up_ids:
            copied = graph.user(node.name, "copy")
            ends[node.name.partition(".")[0]] = (copied or node).name
    return {stack: tuple(x for x in graph.way_to(end)) for stack, end in ends.items()}
