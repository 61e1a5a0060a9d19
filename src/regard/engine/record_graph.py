"""A network's graph: its forward run on symbols, so that every operation that the engine must compute is recorded in order.

Rules (lowering.py) take symbols out of it. A symbol that no rule takes, or a fact of it (an argument of its operation) that
no rule reads, is refused by name: then the reference computes instead.
"""

from collections import deque
from typing import Any, NoReturn

from regard.errors import ConfigError
from regard.nn.operation import Operation, Symbol
from regard.nn.operations import copy
from regard.nn.part import Part, with_symbols
from regard.nn.see import watching

SOURCE, TARGET = ("source", 3), ("target", 2)  # token axes of encoder and decoder; the lengths are arbitrary


class Unsupported(ConfigError):
    """The engine cannot run this network. `clause`: what it does not support, as a clause after "The native engine …"."""

    def __init__(self, clause: str) -> None:
        super().__init__(f"The native engine {clause}; the reference computes instead.")
        self.clause = clause


def record(net: Part) -> "Recording":
    """Record the forward of a network: to the states of an encoder, else to the logits."""
    recorded: Any = with_symbols(net)
    kind: str = recorded.spec.kind
    source, target = Symbol((SOURCE,), name="ids"), Symbol((TARGET,), name="target_ids")
    with watching(keep_first_name):
        if kind == "encoder":
            last = recorded.states(source)
        elif kind == "decoder":
            last = recorded(target)
        else:
            last = recorded(source, target)
    return Recording(last, {source, target})


def keep_first_name(name: str, x: Symbol) -> Symbol:
    """An observer for `watching`: names symbols, so that a refusal can say where."""
    x.name = x.name or name
    return x


class Recording:
    """The recorded graph: symbols in the order of the forward, and the readers of each. `ids`: the network's inputs."""

    def __init__(self, last: Symbol, ids: set[Symbol]) -> None:
        self.last, self.ids = without_copies(last), ids
        self.readers: dict[Symbol, list[Symbol | None]] = {self.last: [None]}  # None: the caller of the network
        self.order = list[Symbol]()
        self.taken = set[Symbol]()
        self.inside = list[Symbol]()  # taken for the current step
        self._walk()

    def _walk(self) -> None:
        """Fill `order` and `readers`: depth first, operands in their order; not recursive, because networks are deep."""
        left: list[tuple[Symbol, bool]] = [(self.last, False)]
        found = set[Symbol]()
        while left:
            x, ready = left.pop()
            if ready:
                self.order.append(x)
            elif x not in found:
                found.add(x)
                operands = [without_copies(y) for y in x.inputs if y is not None]
                for y in operands:
                    self.readers.setdefault(y, []).append(x)
                left += [(x, True), *((y, False) for y in reversed(operands))]

    # ── taking ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, x: Symbol, most: int, **facts: Any) -> list[Any]:
        """Take an operation for the current step: returns its operands, padded with None to `most`, then the values of the
        facts named here, each with its default. An operation with more operands or other facts is refused."""
        if x in self.taken:
            self.refuse(x, "for two steps")
        for fact in x.facts.keys() - facts.keys():
            self.refuse(x, f"with {fact} = {x.facts[fact]!r}")
        if len(x.inputs) > most:
            self.refuse(x, f"of {len(x.inputs)} operands")
        self.taken.add(x)
        self.inside.append(x)
        operands = [None if y is None else without_copies(y) for y in x.inputs]
        return [*operands, *[None] * (most - len(operands)), *(x.facts.get(fact, facts[fact]) for fact in facts)]

    def take_shared(self, x: Symbol, most: int, **facts: Any) -> list[Any]:
        """`take` for symbols that several steps may read: positions, angles."""
        self.taken.discard(x)
        taken = self.take(x, most, **facts)
        self.inside.pop()
        return taken

    def weight(self, x: Symbol, reader: Symbol, shape: tuple[int, ...] | None = None) -> Symbol:
        """Take x as a weight; refused if it is computed or has another shape."""
        if x.op is not None or x.data is not None or x in self.ids or shape not in (None, x.shape):
            self.refuse(reader, f"with {described(x)} of {x.shape} as a weight")
        self.taken.add(x)
        return x

    def close(self, *roots: Symbol) -> None:
        """Complete the current step: what it fused, apart from its roots, must have no reader outside the step."""
        inside = set(self.inside)
        for x in self.inside:
            if x not in roots and any(reader not in inside for reader in self.readers[x]):
                self.refuse(x, "for two steps")
        self.inside.clear()

    def complete(self) -> None:
        """Check that every recorded symbol was taken by a step."""
        for x in self.order:
            if x not in self.taken and x not in self.ids:
                self.refuse(x)

    # ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def refuse(self, x: Symbol, how: str = "") -> NoReturn:
        raise Unsupported(f"does not know how to compute {described(x)} at {self.place(x)}{how and ' ' + how}")

    def place(self, x: Symbol) -> str:
        """The symbol's node name, or the nearest name among what is computed from it."""
        left, seen = deque([x]), {x}
        while left:
            y = left.popleft()
            if y.name:
                return y.name
            readers = [z for z in self.readers[y] if z is not None and z not in seen]
            seen.update(readers)
            left += readers
        return "its end"


def described(x: Symbol) -> str:
    return x.name if x.op is None else f"`{x.op.name}`"


def without_copies(x: Symbol) -> Symbol:
    """The symbol itself, where `copy` operations only gave it further names."""
    while x.op is copy and x.inputs[0] is not None:
        x = x.inputs[0]
    return x


def made_by(x: Symbol | None, *ops: Operation) -> bool:
    return x is not None and x.op in ops
