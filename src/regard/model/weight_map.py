"""Weight maps: one table of rules per file format, tensor names of checkpoints (theirs) ⇄ parameter names (ours).

Loading and saving use the same rules. Every name in a file must match exactly one rule and every parameter must be filled,
or loading fails; no missing weight is silently initialised at random.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from regard.errors import CheckpointError, quoted
from regard.nn.operation import library_of

Shape = Sequence[int]


@dataclass(frozen=True)
class Form:
    """How their tensor is made of ours (`save`), ours of theirs (`load`, given our shapes), and their shape of ours.

    Tensors are PyTorch's or numpy's: only operations that both have are used.
    """

    save: Callable[[list[Any]], Any]
    load: Callable[[Any, Sequence[Shape]], list[Any]]
    shape: Callable[[Sequence[Shape]], Shape]


def _concatenate(ours: list[Any]) -> Any:
    return library_of(ours[0]).concatenate(ours)


def _split(theirs: Any, shapes: Sequence[Shape]) -> list[Any]:
    return [theirs[first:last] for first, last in pairwise(accumulate((s[0] for s in shapes), initial=0))]


def _stacked_shape(shapes: Sequence[Shape]) -> Shape:
    return sum(s[0] for s in shapes), *shapes[0][1:]


SAME = Form(lambda ours: ours[0], lambda theirs, _: [theirs], lambda shapes: shapes[0])
TRANSPOSE = Form(lambda ours: ours[0].T, lambda theirs, _: [theirs.T], lambda shapes: shapes[0][::-1])
STACK = Form(_concatenate, _split, _stacked_shape)
TRANSPOSE_STACK = Form(
    lambda ours: _concatenate(ours).T, lambda theirs, s: _split(theirs.T, s), lambda s: _stacked_shape(s)[::-1]
)
ROW = Form(lambda ours: ours[0][None], lambda theirs, _: [theirs[0]], lambda shapes: (1, *shapes[0]))


def pair_up(heads: int) -> Form:
    """GGUF stores the two rows of W_q (or W_k) that RoPE rotates together adjacently; here they are half a head apart."""

    def save(ours: list[Any]) -> Any:
        return _swap_axes(ours[0], (heads, 2, -1))

    def load(theirs: Any, _: Sequence[Shape]) -> list[Any]:
        return [_swap_axes(theirs, (heads, -1, 2))]

    return Form(save, load, lambda shapes: shapes[0])


def _swap_axes(X: Any, split: Shape) -> Any:
    return X.reshape((*split, *X.shape[1:])).swapaxes(1, 2).reshape(X.shape)


@dataclass(frozen=True)
class Rule:
    """Tensor `theirs` of a file is parameter `ours` (or several). `{i}` is a layer's number, `{p}` weight or bias.

    extra: files may contain this tensor although the network has no such parameter, or has it from another tensor already;
    it is then ignored. unused: … and may differ from the tensor that is loaded; otherwise the two must be equal.
    """

    theirs: str
    ours: tuple[str, ...] | str
    form: Form = SAME
    extra: bool = False
    unused: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    escaped = re.escape(text).replace(r"\{i\}", r"(?P<i>\d+)").replace(r"\{p\}", "(?P<p>weight|bias)")
    return re.compile(escaped)


def _fill(text: str, found: re.Match[str]) -> str:
    for key, value in found.groupdict().items():
        text = text.replace("{" + key + "}", value)
    return text


@dataclass(frozen=True)
class Table:
    """The rules of one file format for one family."""

    rules: tuple[Rule, ...]
    prefix: str = ""  # of the names in the rules; files may have it or not
    ignore: tuple[str, ...] = ()  # patterns of buffers that older writers left in files
    bare: bool = False  # write names without the prefix
    renamed: tuple[tuple[str, str], ...] = ()  # (old, new) parts of names in early files
    zero: tuple[str, ...] = ()  # parameters that are zero when missing in the file
    unsaved: tuple[str, ...] = ()  # parameters that the format cannot store and its readers do not need
    # tensors that are not parameters, and the values they must have where a file contains them
    constants: Mapping[str, Callable[[], Any]] = field(default_factory=dict)

    def _rule_for(self, name: str) -> tuple[Rule, re.Match[str]] | None:
        for old, new in self.renamed:
            name = name.replace(old, new)
        for candidate in (name, self.prefix + name):
            for rule in self.rules:
                if found := _pattern(rule.theirs).fullmatch(candidate):
                    return rule, found
        return None

    def ignores(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.ignore)


@dataclass
class Move:
    """One tensor of a file and the parameters it fills."""

    theirs: str
    ours: tuple[str, ...]
    form: Form


@dataclass
class Plan:
    """How a particular file fills a particular network."""

    moves: list[Move]
    passed_over: list[str] = field(default_factory=list)
    # pairs that must be equal: the tensor that is loaded, and the one that is ignored
    twins: list[tuple[str, str]] = field(default_factory=list)


def plan_loading(
    table: Table,
    file: str,
    names: Iterable[str],
    shape_of: Callable[[str], Shape],
    parameters: Mapping[str, Shape],
    tied: Sequence[Sequence[str]] = (),
) -> Plan:
    """Match every name of the file with a rule and every parameter with a name; check shapes before loading."""
    plan, source = Plan([]), dict[str, str]()
    matched: list[tuple[str, Rule, re.Match[str]]] = []
    for name in names:
        if table.ignores(name):
            plan.passed_over.append(name)
        elif rule_and_match := table._rule_for(name):
            matched.append((name, *rule_and_match))
        else:
            raise CheckpointError(f"{file}: tensor {quoted(name)} does not belong to this architecture.")
    for name, rule, found in sorted(matched, key=lambda m: m[1].extra):  # extras last: other tensors have precedence
        targets = tuple(_fill(target, found) for target in rule.targets)
        placed = [target in parameters for target in targets]
        if not all(placed):
            if rule.extra and not any(placed):
                plan.passed_over.append(name)
                continue
            raise CheckpointError(
                f"{file}: tensor {quoted(name)} has no place in the model that the configuration describes "
                "(check the number of layers, the biases and the architecture named there)."
            )
        if rule.extra and targets[0] in source:
            plan.passed_over.append(name)
            if not rule.unused:
                plan.twins.append((source[targets[0]], name))
            continue
        for target in targets:
            if target in source:
                raise CheckpointError(
                    f"{file}: tensors {quoted(source[target])} and {quoted(name)} are for the same parameter."
                )
            source[target] = name
        _check_shape(file, name, shape_of(name), rule.form, [parameters[t] for t in targets])
        plan.moves.append(Move(name, targets, rule.form))
    _resolve_ties(plan, source, tied)
    filled = set(source).union(*(group for group in tied if set(group) & set(source)), table.zero)
    missing = sorted(set(parameters) - filled)
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise CheckpointError(f"{file} lacks the weights for {listed}.")
    return plan


def _check_shape(file: str, name: str, shape: Shape, form: Form, ours: list[Shape]) -> None:
    expected = form.shape(ours)
    if tuple(shape) != tuple(expected):
        raise CheckpointError(
            f"{file}: tensor {quoted(name)} has shape {tuple(shape)}, but the configuration asks for {tuple(expected)}."
        )


def _resolve_ties(plan: Plan, source: dict[str, str], tied: Sequence[Sequence[str]]) -> None:
    """Of tied parameters, load the first that the file has and ignore the others."""
    for group in tied:
        present = [p for p in group if p in source]
        for other in present[1:]:
            plan.passed_over.append(source[other])
            plan.twins.append((source[present[0]], source[other]))
            plan.moves = [m for m in plan.moves if m.theirs != source[other]]


def saved_names(
    table: Table, parameters: Iterable[str], tied: Sequence[Sequence[str]] = ()
) -> Iterator[tuple[str, tuple[str, ...], Form]]:
    """(their name, our parameters, form) of every tensor to save; of tied parameters, the first."""
    skip = {p for group in tied for p in group[1:]}.union(table.unsaved)
    left = [p for p in parameters if p not in skip]
    seen = set[str]()
    for parameter in left:
        for rule in table.rules:
            found = _pattern(rule.targets[0]).fullmatch(parameter)
            if found:
                targets = tuple(_fill(t, found) for t in rule.targets)
                name = _fill(rule.theirs, found)
                yield (name.removeprefix(table.prefix) if table.bare else name), targets, rule.form
                seen.update(targets)
                break
    unnamed = [p for p in left if p not in seen]
    if unnamed:
        raise CheckpointError(f"This file format has no name for {unnamed[0]}, so the model cannot be saved in it.")


def both(theirs: str, ours: str, *, extra: bool = False) -> Rule:
    """The rule for weight and bias of one module."""
    return Rule(theirs + ".{p}", ours + ".{p}", extra=extra)
