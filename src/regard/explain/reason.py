"""The derivation of one number: its formula evaluated in float64, split into terms, and written out.

In: a trace, a node and an index. Out: a `Reason`. The formula is the expression tree of the node's operation
(nn/operations.py); apart from the notes, nothing here depends on which operation it is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.explain.letters import letters
from regard.explain.render import Writer, fragments, join, number, python
from regard.explain.why import Operand, Reason, Term, Terms
from regard.model.graph import SOURCE, TARGET, Graph, Node
from regard.nn.expression import At, Call, Expr, Num, Over, Var, folded, rounding, substitute, summands, value

if TYPE_CHECKING:
    from regard.explain.trace import Trace

SHOWN = 3  # terms written out in a formula with numbers


@dataclass(frozen=True)
class Addend:
    """One summand, or the body of a sum (`over`), which stands for a summand per value of its variable."""

    body: Expr
    over: Over | None = None


def addends(e: Expr) -> list[Addend]:
    """A formula's summands. Of Σ/n they are the fractions; of a quotient by a sum (softmax), the shares of that sum."""
    match e:
        case Call("+", (a, b)):
            return [*addends(a), *addends(b)]
        case Call("-", (a, b)):
            return [*addends(a), *(Addend(negative(x.body), x.over) for x in addends(b))]
        case Over("Σ"):
            return [Addend(e.body, e)]
        case Call("/", (Over("Σ") as over, Num() as n)):
            return [Addend(over.body / n, over)]
        case Call("/", (_, Over("Σ") as over)):
            return [Addend(over.body / over, over)]
    return [Addend(e)]


def negative(e: Expr) -> Expr:
    return Call("neg", (e,))


@np.errstate(all="ignore")  # where the run overflowed, recomputing overflows too
def reason(trace: "Trace", node: Node, index: tuple[int, ...]) -> Reason:
    """Why the node's number at `index` is what it is."""
    e, writer = with_ids(node.formula(index), trace), writer_of(trace)
    recomputed, off = rounding(e, trace.read)
    parts = addends(e)
    shares = isinstance(e, Call) and e.f == "/" and isinstance(e.args[1], Over)
    values = np.concatenate([values_of(part, trace) for part in parts])
    ends = np.cumsum([1 if part.over is None else part.over.n for part in parts])

    def make(k: int) -> Term:
        which = int(np.searchsorted(ends, k, side="right"))
        part = parts[which]
        first = 0 if which == 0 else int(ends[which - 1])
        return term(trace, part, k - first, float(values[k]), shares)

    terms = Terms(values, make)
    if isinstance(e, Num):  # hidden by a mask
        terms = Terms(np.zeros(0), make)
    left = writer.latex_element(node.name, index)
    return Reason(
        float(recomputed),
        terms,
        float(off),
        writer.symbols(e),
        in_numbers(e, terms, trace, shares),
        f"{left} = {writer.latex(e)} = {number(float(recomputed))}".replace("∞", "\\infty"),
        python(e),
        note(trace, node, index, e),
    )


def writer_of(trace: "Trace") -> Writer:
    return Writer(letters(trace.graph))


def with_ids(e: Expr, trace: "Trace") -> Expr:
    """The expression with references to ids replaced by the ids themselves."""
    match e:
        case At("ids" | "target_ids"):
            return Num(int(value(e, trace.read)))
        case At():
            return At(e.node, tuple(with_ids(i, trace) for i in e.index))
        case Call():
            return folded(Call(e.f, tuple(with_ids(a, trace) for a in e.args)))
        case Over():
            return Over(e.how, e.var, e.n, with_ids(e.body, trace))
    return e


def values_of(part: Addend, trace: "Trace") -> NDArray[np.float64]:
    """(1,), or a value for each index of the sum."""
    if part.over is None:
        return np.array([value(part.body, trace.read)], np.float64)
    body = Over("Σ", part.over.var, part.over.n, part.body)
    return np.asarray(summands(body, trace.read), np.float64)


def term(trace: "Trace", part: Addend, k: int, x: float, shares: bool) -> Term:
    """One summand: its factors, and the text between them."""
    body, along = part.body, set[tuple[str, int]]()
    if part.over is not None:
        along = {
            (a.node, i) for a in references(body) for i, entry in enumerate(a.index) if entry == Var(part.over.var)
        }
        body = folded(substitute(body, {part.over.var: Num(k)}))
    if shares:
        assert isinstance(body, Call)
        listed = [*fragments(body.args[0], " × "), " / Σ"]
    else:
        listed = fragments(condensed(body, trace), " × ")
    factors, signs = list[Operand](), [""]
    for fragment in listed:
        if isinstance(fragment, str):
            signs[-1] += fragment
            continue
        factors.append(operand(trace, fragment, along))
        signs.append("")
    return Term(x, tuple(factors), tuple(signs))


def condensed(e: Expr, trace: "Trace") -> Expr:
    """The expression with each sum in it replaced by its value, labelled with its formula."""
    match e:
        case Over():
            return Num(float(value(e, trace.read)), writer_of(trace).symbols(e))
        case Call("shift", (x, _)):
            return condensed(x, trace)
        case Call():
            return Call(e.f, tuple(condensed(a, trace) for a in e.args))
    return e


def references(e: Expr) -> list[At]:
    """The array elements that an expression refers to."""
    match e:
        case At():
            return [e]
        case Call():
            return [a for x in e.args for a in references(x)]
    return []


def operand(trace: "Trace", x: At | Num, along: set[tuple[str, int]]) -> Operand:
    """along: the axes, by node, that the sum runs over; on a token axis the label has the token."""
    if isinstance(x, Num):
        return Operand("", (), x.value, x.label)
    index = tuple(int(value(i, trace.read)) for i in x.index)
    label = writer_of(trace).element(x.node, index)
    for name, axis in sorted(along):
        if name == x.node and name in trace.graph.nodes and trace.graph[name].axes[axis] in (SOURCE, TARGET):
            label += f" {trace.tokens_of(trace.graph[name].axes[axis])[index[axis]]!r}"
    return Operand(x.node, index, float(trace.read(x.node)[index]), label)


def in_numbers(e: Expr, terms: Terms, trace: "Trace", shares: bool) -> str:
    """The right side with this run's numbers: the largest terms, and the sum of the others."""
    if isinstance(e, Num):
        return ""
    if shares:
        assert isinstance(e, Call)
        above, below = (value(x, trace.read) for x in e.args)
        return f"{join(fragments(e.args[0]), lambda x: with_number(trace, x))} / Σ = {number(above)} / {number(below)}"
    if len(terms) == 1:
        return join(fragments(condensed(e, trace)), lambda x: with_number(trace, x))
    shown = [str(one) for one in terms[:SHOWN]]
    if more := len(terms) - len(shown):
        rest = float(terms.values[terms.order[SHOWN:]].sum())
        shown.append(f"… ({more:,} more: {number(rest)})")
    return " + ".join(shown)


def with_number(trace: "Trace", x: At | Num) -> str:
    return (
        (number(x.value) if "Σ" in x.label else x.label) if isinstance(x, Num) else number(float(value(x, trace.read)))
    )


def leaf(trace: "Trace", name: str, index: tuple[int, ...], x: float, learned: bool) -> Reason:
    """Of a weight or a constant, which no operation computes: its value alone."""
    none = Terms(np.zeros(0), lambda k: Term(0.0, ()))
    where = python(At(name, tuple(map(Num, index))))
    note = "A learned weight: training set it." if learned else "A constant of the model: it was not learned."
    return Reason(x, none, 0.0, "", "", f"{writer_of(trace).latex_element(name, index)} = {number(x)}", where, note)


def note(trace: "Trace", node: Node, index: tuple[int, ...], e: Expr) -> str:
    """A sentence about the operation, and for masked scores and softmax about this number."""
    op = node.op
    if op == "mask":
        if not isinstance(e, Num):
            return ""
        (_, i, j), window = index, node.facts["by"].window
        far = f"it is {i - j} back, and the last {window} are seen, itself included"
        cause = "it comes later" if j > i else far
        return f"Token {i} may not look at token {j}: {cause}. e^-∞ is 0, so its weight will be 0."
    if op == "softmax":
        hidden = bool(np.isneginf(trace.read(node.operands[0].name)[index[:-1]]).any())
        return (
            f"The terms are the shares of the sum below the line{'; hidden keys have a share of 0' if hidden else ''}."
        )
    return operation_note(trace.graph, node)


def operation_note(graph: Graph, node: Node) -> str:
    """A sentence about a node's operation: what it does, or of a lookup, the table's name."""
    table = next((x.name for x in node.operands if x.op is None and x.axes[0][0] == "id"), None)
    if table is not None and node.op in ("lookup", "scale"):
        return f"A row of the table {letters(graph)[table]}, {table}."
    assert node.main.op is not None
    return (node.main.op.__doc__ or "").partition("\n")[0]
