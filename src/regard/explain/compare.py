"""Comparison of two runs: before and after an edit, two prompts, two checkpoints.

In: two traces. Out: a `Comparison`: the tokens aligned, and what changed, node by node. Equal tokens are aligned, and so
are replaced spans of the same length ("cat" for "dog"). Source and target are aligned separately.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from regard.errors import NotFound, TaskError
from regard.explain.logits import largest
from regard.explain.predictions import first_pieces, names
from regard.explain.trace import Array, Trace
from regard.model.graph import SOURCE, TARGET

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Change:
    """How much a node changed: ‖b - a‖ / ‖a‖ over the aligned tokens."""

    name: str
    change: float


@dataclass(frozen=True)
class Shift:
    """The probability of an outcome (token, class or tag) in both runs."""

    piece: str
    id: int
    a: float
    b: float


class Comparison:
    """Two runs aligned by token; `trace.compare(other)` returns one, `print(comparison)` summarises it.

    `pairs` are the positions that correspond, in the first run `a` and in the second `b`.
    """

    def __init__(self, a: Trace, b: Trace, pairs: Pairs, target_pairs: Pairs | None) -> None:
        self.a, self.b, self.pairs, self.target_pairs = a, b, pairs, target_pairs

    def __contains__(self, name: object) -> bool:
        return name in self.a and name in self.b and self._shape(self.a, str(name)) == self._shape(self.b, str(name))

    def _axes(self, trace: Trace, name: str) -> tuple[str, ...]:
        """The axes of a node, token axes as SOURCE or TARGET."""
        return tuple(axis.removesuffix(" key") for axis in trace.graph[name].axes)

    def _pairs(self, axis: str) -> Pairs:
        return self.pairs if axis == SOURCE else self.target_pairs or []

    def _shape(self, trace: Trace, name: str) -> tuple[int, ...]:
        sizes = zip(self._axes(trace, name), trace.shape(name), strict=True)
        return tuple(len(self._pairs(axis)) if axis in (SOURCE, TARGET) else n for axis, n in sizes)

    def both(self, name: str) -> tuple[Array, Array]:
        """A node in both runs, its token axes reduced to the aligned tokens."""
        if name not in self:
            for trace, which in ((self.a, "first"), (self.b, "second")):
                if name not in trace:
                    raise NotFound(f"The {which} run has no node {name!r}.")
            raise TaskError(f"{name} is {self.a.shape(name)} in one run and {self.b.shape(name)} in the other.")
        return self._reduced(self.a, name, 0), self._reduced(self.b, name, 1)

    def _reduced(self, trace: Trace, name: str, which: int) -> Array:
        x = trace[name]
        for dim, axis in enumerate(self._axes(trace, name)):
            if axis in (SOURCE, TARGET):
                aligned = [pair[which] for pair in self._pairs(axis)]
                if aligned != list(range(x.shape[dim])):
                    x = np.take(x, aligned, dim)
        return x

    def __getitem__(self, name: str) -> Array:
        """b - a on the aligned tokens; 0 where both are masked (-∞)."""
        a, b = self.both(name)
        with np.errstate(invalid="ignore"):  # -∞ minus -∞
            return np.where(a == b, np.float32(0), b - a)

    def nodes(self) -> list[Change]:
        """Every node that both runs have, largest change first."""
        found = [Change(name, relative(*self.both(name))) for name in self.a.nodes() if name in self]
        return sorted(found, key=lambda each: -each.change)

    def output(self, position: int | None = None, most: int = 10) -> list[Shift]:
        """The outcomes whose probability changed most.

        position: which aligned pair of tokens; by default the last for language models, otherwise the one whose
        prediction changed most.
        """
        if "probabilities" not in self:
            raise TaskError(
                "The two runs do not end in probabilities of the same outcomes: their outputs cannot be compared."
            )
        a, b = self.both("probabilities")
        if a.ndim == 2:
            if position is None:
                position = -1 if self.a.spec.head.kind == "lm" else self._most_changed(np.abs(b - a).sum(-1))
            if not -len(a) <= position < len(a):
                raise NotFound(f"There is no aligned pair {position}; there are {len(a)}.")
            a, b = a[position], b[position]
        ids = largest(np.abs(b - a), most)[1].tolist()
        return [Shift(name, i, float(a[i]), float(b[i])) for name, i in zip(names(self.a, ids), ids, strict=True)]

    def _most_changed(self, moved: Array) -> int:
        """The position that changed most; in a tagged text, among first pieces of words only."""
        if (first := first_pieces(self.b)) is not None:
            moved = np.where([first[j] != j for _, j in self.pairs], -1.0, moved)
        return int(moved.argmax())

    def __str__(self) -> str:
        single = self.target_pairs is None
        lines = [alignment("tokens" if single else "source tokens", self.a.tokens, self.b.tokens, self.pairs)]
        if self.target_pairs is not None:
            targets = (self.a.target_tokens or [], self.b.target_tokens or [])
            lines.append(alignment("target tokens", *targets, self.target_pairs))
        changed = [each for each in self.nodes() if each.change > 0]
        lines.append(f"{len(changed)} nodes changed{', most:' if changed else '.'}")
        lines += [f"  {each.change:>10.4g}  {each.name}" for each in changed[:8]]
        if "probabilities" in self and changed:
            lines.append("Probabilities that changed most:")
            lines += [f"  {each.a:>8.4f} → {each.b:.4f}  {each.piece!r}" for each in self.output(most=5)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<regard.Comparison of {len(self.pairs)} aligned tokens>"


def compare(a: Trace, b: Trace) -> Comparison:
    """Two runs aligned by token."""
    if not isinstance(b, Trace):
        raise TaskError(f"A run is compared with another run, not with {type(b).__name__}.")
    if not set(a.nodes()) & set(b.nodes()):
        raise TaskError("The two runs have no node in common: they cannot be compared.")
    pairs, target = align(a.tokens, b.tokens), None
    if a.target_tokens is not None and b.target_tokens is not None:
        target = align(a.target_tokens, b.target_tokens)
    if not pairs or target == []:
        raise TaskError("The two texts have no token in common: their runs cannot be compared.")
    return Comparison(a, b, pairs, target)


def align(a: Sequence[str], b: Sequence[str]) -> Pairs:
    """Positions of a and b that correspond."""
    if list(a) == list(b):
        return [(i, i) for i in range(len(a))]
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return [
        (i + k, j + k)
        for tag, i, i_end, j, j_end in matcher.get_opcodes()
        if tag == "equal" or (tag == "replace" and i_end - i == j_end - j)
        for k in range(i_end - i)
    ]


def relative(a: Array, b: Array) -> float:
    """‖b - a‖ / ‖a‖, with masked entries (-∞) as 0; 1 if a is zero and b is not."""
    with np.errstate(invalid="ignore"):
        moved, size = float(np.linalg.norm(b - a)), float(np.linalg.norm(a))
    if not math.isfinite(moved + size):
        a, b = (np.where(np.isfinite(x), x, 0.0).astype(np.float64) for x in (a, b))
        moved, size = float(np.linalg.norm(b - a)), float(np.linalg.norm(a))
    return moved / size if size else float(moved > 0)


def alignment(tokens: str, a: Sequence[str], b: Sequence[str], pairs: Pairs) -> str:
    if list(a) == list(b):
        return f"The same {len(a)} {tokens}."
    words = " ".join(repr(a[i]) if a[i] == b[j] else f"{a[i]!r}→{b[j]!r}" for i, j in pairs)
    return f"{len(pairs)} aligned {tokens} of {len(a)} and {len(b)}: {words}"
