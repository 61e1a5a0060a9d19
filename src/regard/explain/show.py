"""A listing of a network's forward: `regard.show(model)`, in the lectures' letters, with shapes.

In: the graph of a spec. Out: text, some forty lines for a GPT-2: every node with its formula, equal blocks once. It is made
from the recorded graph; nothing here depends on a part or a family.
"""

from collections.abc import Iterator
from typing import Any

from regard.explain.activation_cache import block_of
from regard.explain.letters import letters
from regard.model.graph import SOURCE, TARGET, Graph, Node, is_input
from regard.model.shapes import count_parameters
from regard.model.spec import Spec
from regard.nn.expression import to_json
from regard.nn.operation import Symbol

TOKENS = 3  # lengths of the sequences for recording; printed as N and M


def show(spec: Spec) -> str:
    graph = Graph(spec, TOKENS, TOKENS)
    both = spec.kind == "encoder-decoder"
    lines = [f"{spec.family}: {spec.kind}, {count_parameters(spec):,} parameters", legend(both), ""]
    for title, nodes, block in sections(graph):
        rows = [line(node, graph, block) for node in nodes]
        name, shape = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines += [title] * bool(title) + [f"  {a:<{name}}  {b:<{shape}}  {c}".rstrip() for a, b, c in rows]
    return "\n".join(lines)


def legend(both: bool) -> str:
    read = "N source tokens, M target tokens" if both else "N tokens"
    return f"{read}; (h, N, N) is heads × queries × keys; W weights, b biases, γ β of norms, ⊙ number by number"


def sections(graph: Graph) -> Iterator[tuple[str, list[Node], str | None]]:
    """Title, nodes and block of each section: a block (of equal ones the first), or the nodes between blocks."""
    spans = list[tuple[str | None, list[Node]]]()
    for node in graph:
        block = block_of(node.name)
        if not spans or spans[-1][0] != block:
            spans.append((block, []))
        spans[-1][1].append(node)
    i = 0
    while i < len(spans):
        block, nodes = spans[i]
        last = i
        while block and last + 1 < len(spans) and alike(graph, spans[i], spans[last + 1]):
            last += 1
        times = f" … {spans[last][0]}  ×{last - i + 1}" if last > i else ""
        yield f"{block}{times}" if block else "", nodes, block
        i = last + 1


Span = tuple[str | None, list[Node]]


def alike(graph: Graph, a: Span, b: Span) -> bool:
    """Whether two blocks compute the same, apart from their inputs and weights."""
    return b[0] is not None and signature(graph, a) == signature(graph, b)


def signature(graph: Graph, span: Span) -> list[Any]:
    block, nodes = span
    return [(*line(node, graph, block), node.op, str(node.facts)) for node in nodes]


def line(node: Node, graph: Graph, block: str | None) -> tuple[str, str, str]:
    """A node's name, shape and formula."""
    sizes = [{SOURCE: "N", TARGET: "M"}.get(axis, str(n)) for axis, n in node.symbol.axes]
    short = node.name.removeprefix(f"{block}.") if block else node.name
    return short, f"({', '.join(sizes)})", written(node.symbol, graph, block, top=True)


STEP = 1  # the time step of a recurrent network that is printed: it has a step before and after it


def written(x: Symbol, graph: Graph, block: str | None, *, top: bool = False, step: bool = False) -> str:
    """A symbol's name, or its operation's notation. step: it belongs to one time step of many."""
    if x.name and not top:
        return name_in(x, graph, block)
    if x.row_of is not None and not top:
        return f"{name_in(x.row_of[0], graph, block)}⟨{time_index(x.row_of[1][-1])}⟩"
    assert x.op is not None
    if x.op.name == "stack":
        row = x.inputs[STEP]
        return "" if row is None else written(row, graph, block, top=True, step=True)
    if step and x.op.name == "pick" and x.inputs[0] is not None:
        return f"{written(x.inputs[0], graph, block)}⟨{time_index(x.facts['row'])}⟩"
    operands = [
        None if each is None else bracketed(written(each, graph, block, step=step), x, each) for each in x.inputs
    ]
    text = x.op.written(operands, {key: value for key, value in x.facts.items() if value != ""})
    mask = x.facts.get("by") if x.op.name == "mask" else None
    return text if mask is None else f"{text}: {mask.description}"


def time_index(row: int) -> str:
    """A time step relative to the printed one: t, t - 1, t + 1."""
    return "t" if row == STEP else f"t {'-' if row < STEP else '+'} {abs(row - STEP)}"


def bracketed(text: str, outer: Symbol, inner: Symbol) -> str:
    """A sum inside a product in brackets."""
    assert outer.op is not None
    loose = not inner.name and inner.op is not None and inner.op.name in ("add", "linear", "blend") and " + " in text
    return f"({text})" if loose and outer.op.name not in ("add", "split", "softmax", "activation") else text


def name_in(x: Symbol, graph: Graph, block: str | None) -> str:
    """What a formula in `block` calls a named symbol: its letter, X for the block's input, or its full name."""
    if x.op is None:
        return x.name if is_input(x) else letters(graph)[x.name]
    if block_of(x.name) == block:
        return letters(graph)[x.name]
    carried = x.name.endswith("embed.out") or x.name == f"{block_of(x.name)}.out"
    return "X" if carried and block is not None else x.name


def as_json(spec: Spec) -> dict[str, Any]:
    """The graph as JSON; the lengths of sequences are those it was recorded with."""
    graph = Graph(spec, TOKENS, TOKENS)
    return {
        "family": spec.family,
        "kind": spec.kind,
        "parameters": count_parameters(spec),
        "tokens": TOKENS,
        "nodes": [
            {"name": node.name, "op": node.op, "axes": node.axes, "shape": node.shape, "inputs": node.inputs}
            | {"formula": to_json(node.general_formula)}
            for node in graph
        ],
    }
