"""Two runs side by side: before and after an edit, two prompts, two checkpoints.

In: two traces. Out: a `Comparison`: which token of one stands for which of the other, and what changed between them, node
by node. The same tokens stand for each other; otherwise what the texts share does, and so does a stretch that was exchanged
for another of the same length ("cat" for "dog"). Source and target are aligned each on their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from torch import Tensor

from regard.errors import NotFound, TaskError
from regard.explain.graph import SOURCE, TARGET
from regard.explain.outcome import deciding, names
from regard.explain.trace import Trace

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Change:
    """How far a node moved: ‖b - a‖ / ‖a‖ over the aligned tokens."""

    name: str
    change: float


@dataclass(frozen=True)
class Shift:
    """An outcome's probability in one run and in the other."""

    piece: str
    id: int
    a: float
    b: float


class Comparison:
    def __init__(self, a: Trace, b: Trace, pairs: Pairs, target_pairs: Pairs | None) -> None:
        self.a, self.b, self.pairs, self.target_pairs = a, b, pairs, target_pairs

    def __contains__(self, name: object) -> bool:
        return name in self.a and name in self.b and self._shape(self.a, str(name)) == self._shape(self.b, str(name))

    def _axes(self, trace: Trace, name: str) -> tuple[str, ...]:
        """For each axis of a node whose tokens it counts, or what else."""
        return tuple(axis.removesuffix(" key") for axis in trace.graph[name].axes)

    def _pairs(self, axis: str) -> Pairs:
        return self.pairs if axis == SOURCE else self.target_pairs or []

    def _shape(self, trace: Trace, name: str) -> tuple[int, ...]:
        sizes = zip(self._axes(trace, name), trace.shape(name), strict=True)
        return tuple(len(self._pairs(axis)) if axis in (SOURCE, TARGET) else n for axis, n in sizes)

    def both(self, name: str) -> tuple[Tensor, Tensor]:
        """A node in both runs, its token axes reduced to the aligned tokens."""
        if name not in self:
            for trace, which in ((self.a, "first"), (self.b, "second")):
                if name not in trace:
                    raise NotFound(f"The {which} run has no node {name!r}.")
            raise TaskError(f"{name} is {self.a.shape(name)} in one run and {self.b.shape(name)} in the other.")
        return self._reduced(self.a, name, 0), self._reduced(self.b, name, 1)

    def _reduced(self, trace: Trace, name: str, which: int) -> Tensor:
        x = trace[name].float()
        for dim, axis in enumerate(self._axes(trace, name)):
            if axis in (SOURCE, TARGET):
                kept = [pair[which] for pair in self._pairs(axis)]
                if kept != list(range(x.shape[dim])):
                    x = x.index_select(dim, torch.tensor(kept, device=x.device))
        return x.cpu()

    def __getitem__(self, name: str) -> Tensor:
        """b - a on the aligned tokens; where both are hidden (-∞) nothing changed."""
        a, b = self.both(name)
        return torch.where(a == b, 0.0, b - a)

    def nodes(self) -> list[Change]:
        """Every node that both runs have, largest change first."""
        found = [Change(name, relative(*self.both(name))) for name in self.a.nodes() if name in self]
        return sorted(found, key=lambda each: -each.change)

    def output(self, position: int | None = None, most: int = 10) -> list[Shift]:
        """The outcomes whose probability changed most.

        position: which aligned pair of tokens answers; by default the last where text is continued, and otherwise the
        one whose answer changed most.
        """
        if "probabilities" not in self:
            raise TaskError(
                "The two runs do not end in probabilities of the same outcomes: their outputs do not compare."
            )
        a, b = self.both("probabilities")
        if a.dim() == 2:
            if position is None:
                position = -1 if self.a.net.spec.head.kind == "lm" else self._most_changed((b - a).abs().sum(-1))
            if not -len(a) <= position < len(a):
                raise NotFound(f"There is no aligned pair {position}; there are {len(a)}.")
            a, b = a[position], b[position]
        ids = (b - a).abs().topk(min(most, len(a))).indices.tolist()
        return [Shift(name, i, float(a[i]), float(b[i])) for name, i in zip(names(self.a, ids), ids, strict=True)]

    def _most_changed(self, moved: Tensor) -> int:
        """Of a tagged text only words are asked: what stands at [CLS] is no answer."""
        if (first := deciding(self.b)) is not None:
            moved = moved.masked_fill(torch.tensor([first[j] != j for _, j in self.pairs]), -1.0)
        return int(moved.argmax())

    def __str__(self) -> str:
        single = self.target_pairs is None
        lines = [alignment("tokens" if single else "source tokens", self.a.tokens, self.b.tokens, self.pairs)]
        if self.target_pairs is not None:
            written = (self.a.target_tokens or [], self.b.target_tokens or [])
            lines.append(alignment("target tokens", *written, self.target_pairs))
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
    if list(a) == list(b):
        return [(i, i) for i in range(len(a))]
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return [
        (i + k, j + k)
        for tag, i, i_end, j, j_end in matcher.get_opcodes()
        if tag == "equal" or (tag == "replace" and i_end - i == j_end - j)
        for k in range(i_end - i)
    ]


def relative(a: Tensor, b: Tensor) -> float:
    """‖b - a‖ / ‖a‖, where what is hidden (-∞) counts as nothing; 1 when all of it is new."""
    moved, size = float((b - a).norm()), float(a.norm())
    if not math.isfinite(moved + size):
        a, b = (x.double().nan_to_num(0.0, 0.0, 0.0) for x in (a, b))
        moved, size = float((b - a).norm()), float(a.norm())
    return moved / size if size else float(moved > 0)


def alignment(tokens: str, a: Sequence[str], b: Sequence[str], pairs: Pairs) -> str:
    if list(a) == list(b):
        return f"The same {len(a)} {tokens}."
    words = " ".join(repr(a[i]) if a[i] == b[j] else f"{a[i]!r}→{b[j]!r}" for i, j in pairs)
    return f"{len(pairs)} aligned {tokens} of {len(a)} and {len(b)}: {words}"
