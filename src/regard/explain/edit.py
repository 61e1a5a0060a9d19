"""Edits: interventions on a forward pass (ablation, activation patching, masks, steps left out).

In: a mapping from paths ("decoder.2.attention.head.5") to actions ("zero", {"scale": 2}, "off", …), and the graph of a
network with the shapes of its nodes. Out: an `Edits`, a hook that is called with every array of the forward pass and
returns the edited one. An invalid edit is refused before anything runs.

Values can be: zero (or "off"), mean (over tokens), scale, set, swap (two entries of the first axis), from (patched from
another run). Entries of a mask can hide or show. A switch (scaling, a residual, a norm, …) can be off.
"""

import math
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.errors import TaskError, quoted
from regard.explain.edit_targets import EditTargets, Index, MaskEntries, Shapes, Switch, Target, Value
from regard.explain.logits import quiet
from regard.explain.trace import Array, Trace
from regard.model.graph import SOURCE, TARGET, Graph, Site
from regard.nn.operation import library_of

Change = Callable[
    [Array, Mapping[str, Array]], Array
]  # a node's array, saved arrays of earlier nodes → the edited array

WITHOUT_ARGUMENT = ("zero", "mean", "off", "hide", "show")


class Edits:
    """A hook: called with the name and array of every node, in order, it returns the array, edited or as it is."""

    def __init__(self, changes: Mapping[str, list[Change]], used_at: Mapping[str, str]) -> None:
        self._changes, self._used_at = changes, used_at  # used_at: node → the later node whose edit reads its array
        self._local = threading.local()  # one trace may be replayed for two requests at once

    @property
    def _saved(self) -> MutableMapping[str, Array]:
        return self._local.__dict__

    def __call__(self, name: str, x: Array) -> Array:
        for change in self._changes.get(name, ()):
            x = change(x, self._saved)
        for source in [source for source in self._saved if self._used_at[source] == name]:
            del self._saved[source]
        self.save(name, x)
        return x

    def save(self, name: str, x: Array) -> None:
        """Save an array if a later edit reads it; also one that a replay from the middle does not compute."""
        if self.needs(name):
            self._saved[name] = x

    def needs(self, name: str) -> bool:
        """Whether a later edit reads this node's array."""
        return name in self._used_at

    def nodes(self) -> frozenset[str]:
        """The edited nodes, without those that only follow from them."""
        return frozenset(self._changes)


def merge_edits(before: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """The edits of a run that is edited again: a new action replaces the one on the same path; {} removes all."""
    if not isinstance(edits, Mapping) or not all(isinstance(path, str) for path in edits):
        raise TaskError("Edits are a mapping from paths to actions, such as {'token.1': 'zero'}.")
    later = {path.strip(): action for path, action in edits.items()}
    return {**{path: action for path, action in before.items() if path not in later}, **later} if later else {}


def compile_edits(graph: Graph, edits: Mapping[str, Any], shapes: Shapes) -> Edits:
    """shapes: of every node, without the batch axis. On one node, switches apply before values."""
    known = EditTargets(graph, shapes)
    switched: dict[str, list[Change]] = defaultdict(list)
    overwritten: dict[str, list[Change]] = defaultdict(list)
    masks: dict[Site, list[tuple[Index, bool]]] = {}
    used_at: dict[str, str] = {}
    for path, given in edits.items():
        targets, action = known.find(path), parse_action(path, given)
        for target in targets:
            check_verb(path, target, action)
            if isinstance(target, Switch):
                switched[target.node].append(switch_off(target))
                used_at |= dict.fromkeys(target.instead, target.node)
            elif isinstance(target, MaskEntries):
                masks.setdefault(target.site, []).append((target.index, action.verb != "hide"))
            else:
                overwritten[target.node].append(overwrite(path, target, action, graph, shapes))
    for site, entries in masks.items():
        where = graph.hidden_at(site)
        assert where is not None
        before, masked = where
        visible = visible_entries(graph, site, shapes[site.weights][1:], entries)
        if masked is not None:  # it is recomputed from the unmasked scores
            used_at[before] = masked
        switched[masked or before].append(apply_mask(visible, before))
    names = [name for name in shapes if name in switched or name in overwritten]
    return Edits({name: switched[name] + overwritten[name] for name in names}, used_at)


# ── actions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class EditAction:
    """What an edit does: "zero"; "scale" with the argument 2."""

    verb: str
    argument: Any = None


def parse_action(path: str, action: Any) -> EditAction:
    """ "scale 2" or {"scale": 2} as a verb and its argument."""
    if isinstance(action, str):
        verb, *words = action.split() or [""]
        given: Any = words if verb == "swap" else words[0] if len(words) == 1 else words or None
    elif isinstance(action, Mapping) and len(action) == 1:
        verb, given = next(iter(action.items()))
    else:
        verb, given = "", None
    if verb in WITHOUT_ARGUMENT and given is None:
        return EditAction(verb)
    if verb == "scale":
        return EditAction(verb, number(path, given))
    if verb == "set":
        return EditAction(verb, numbers(path, given))
    if verb == "swap" and isinstance(given, list | tuple) and len(given) == 2:
        return EditAction(verb, tuple(number(path, i) for i in given))
    if verb == "from" and isinstance(given, Trace):
        return EditAction(verb, given)
    raise TaskError(
        f"{path}: {quoted(action)} is no edit; it can be {', '.join(WITHOUT_ARGUMENT)}, scale 2, set 0.3, swap 1 2 or "
        "{'from': trace}."
    )


def number(path: str, given: Any) -> float:
    try:
        value = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise TaskError(f"{path}: {quoted(given)} is not a finite number.")
    return value


def numbers(path: str, given: Any) -> Any:
    """A number, or a nested list of numbers."""
    if not isinstance(given, list | tuple) and not hasattr(given, "__array__"):
        return np.float32(number(path, given))
    try:
        values = np.asarray(given, np.float32)
    except (TypeError, ValueError, RuntimeError):
        raise TaskError(f"{path}: set needs a number or a regular list of numbers.") from None
    if not np.isfinite(values).all():
        raise TaskError(f"{path}: set needs finite numbers.")
    return values


def check_verb(path: str, target: Target, action: EditAction) -> None:
    if isinstance(target, Switch) and action.verb != "off":
        raise TaskError(f"{path} can only be off, not {action.verb}; to edit its values, edit {target.node}.")
    if isinstance(target, MaskEntries) and action.verb not in ("off", "hide", "show"):
        raise TaskError(f"{path} can be off, hide or show; {action.verb} is for values.")
    if isinstance(target, Value) and action.verb in ("hide", "show"):
        raise TaskError(f"{path}: {action.verb} is for entries of a mask, such as decoder.0.attention.mask[3, 1].")


# ── changes of arrays ───────────────────────────────────────────────────────────────────────────────────────────────


def switch_off(switch: Switch) -> Change:
    """The node becomes the sum of `switch.instead`, or zero."""

    def change(x: Array, saved: Mapping[str, Array]) -> Array:
        summands = [saved[name] for name in switch.instead]
        return sum(summands[1:], summands[0]) if summands else library_of(x).zeros_like(x)

    return change


def apply_mask(visible: Array, scores: str) -> Change:
    """Scores that are not visible become -∞. visible: (N, T), the same for every head. scores: the node before the mask."""

    def change(x: Array, saved: Mapping[str, Array]) -> Array:
        S = saved.get(scores, x)  # x itself where the network has no mask
        return library_of(S).where(in_library_of(S, visible), S, -math.inf)

    return change


def visible_entries(graph: Graph, site: Site, shape: tuple[int, ...], entries: Iterable[tuple[Index, bool]]) -> Array:
    """Which keys each query may attend to, (N, T), after entries were hidden or shown in turn."""
    mask = graph.mask_of(site)
    plain = mask.matrix(np.empty(shape))
    visible = np.ones(shape, bool) if plain is None else plain.copy()
    for index, shown in entries:
        if shown and plain is None:
            raise TaskError(
                f"{site.site} has no mask: every token attends to every token already, and entries can only hide."
            )
        visible[index] = shown
    blind = np.flatnonzero(~visible.any(-1))
    if len(blind):
        raise TaskError(f"{site.site}.mask: token {blind[0]} would see nothing at all; leave it at least one key.")
    return visible


def overwrite(path: str, target: Value, action: EditAction, graph: Graph, shapes: Shapes) -> Change:
    """Replace values of the node, at an index or all. Leading batch axes are left alone: every row gets the same edit."""
    shape = shapes[target.node]
    at = (..., *target.index, *[slice(None)] * (len(shape) - len(target.index)))
    part = np.broadcast_to(np.float32(0), shape)[target.index].shape
    make = new_values(path, target, action, graph, part, shapes, at)

    @quiet  # 0 times a masked score, which is -∞, is NaN
    def change(x: Array, saved: Mapping[str, Array]) -> Array:
        changed = x.copy() if isinstance(x, np.ndarray) else x.clone()
        changed[at] = in_library_of(x, make(x, x[at]))
        return changed

    return change


def new_values(
    path: str, target: Value, action: EditAction, graph: Graph, part: tuple[int, ...], shapes: Shapes, at: Any
) -> Callable[[Array, Array], Any]:
    """A function from the node's array and the edited part (x[at], of shape `part`) to the part's new values."""
    given, ndim = action.argument, len(shapes[target.node])
    if action.verb == "scale":
        return lambda whole, x: x * given
    if action.verb == "mean":
        axis = next((i for i, axis in enumerate(graph[target.node].axes) if axis in (SOURCE, TARGET)), None)
        if axis is None:
            raise TaskError(f"{path} has no token axis to take a mean over.")
        return lambda whole, x: library_of(x).broadcast_to(whole.mean(axis - ndim, keepdims=True), whole.shape)[at]
    if action.verb == "swap":
        order = list(range(part[0] if part else 0))
        if not set(given) <= set(order):
            raise TaskError(
                "{}: {:g} and {:g} cannot be swapped; there are {} entries.".format(path, *given, len(order))
            )
        i, j = map(int, given)
        order[i], order[j] = j, i
        swapped: Any = (..., order, *[slice(None)] * (len(part) - 1))
        return lambda whole, x: x[swapped]
    if action.verb == "set":
        if not broadcasts_to(given.shape, part):
            raise TaskError(f"{path} has shape {part}, which {tuple(given.shape)} does not fit.")
        return lambda whole, x: given
    if action.verb == "from":
        if target.node not in given or given.shape(target.node) != shapes[target.node]:
            there = given.shape(target.node) if target.node in given else "missing"
            raise TaskError(f"{path}: {target.node} is {shapes[target.node]} here and {there} in the other run.")
        return lambda whole, x: given[target.node][target.index]
    return lambda whole, x: 0.0


def in_library_of(like: Any, x: Any) -> Any:
    """x, copied into a tensor if it is a numpy array and `like` is a tensor."""
    if isinstance(like, np.ndarray) or not isinstance(x, np.ndarray):
        return x
    return library_of(like).as_tensor(np.array(x))


def broadcasts_to(given: tuple[int, ...], part: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(given, part) == part
    except ValueError:
        return False


# ── labels ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SHORT = (
    (r"decoder\.(.+)\.attention\.head\.(.+)", r"head \1.\2"),
    (r"encoder\.(.+)\.attention\.head\.(.+)", r"encoder head \1.\2"),
    (r"decoder\.(.+)\.cross\.head\.(.+)", r"cross head \1.\2"),
    (r"decoder\.(.+)\.mlp\.neuron\.(.+)", r"neuron \1.\2"),
    (r"encoder\.(.+)\.mlp\.neuron\.(.+)", r"encoder neuron \1.\2"),
    (r"(.+)\.attention\.scaling", r"\1 √d_k"),
    (r"(.+)\.cross\.scaling", r"\1 cross √d_k"),
    (r"(.+)\.attention\.(mask|rotary)(.*)", r"\1 \2\3"),
    (r"(.+)\.cross\.mask(.*)", r"\1 cross mask\2"),
    (r"(.+)\.residual_(\w+)", r"\1 residual \2"),
    (r"(?:(encoder|decoder)\.)?final_norm", r"\1 final norm"),
    (r"(.+)\.norm_(\w+)", r"\1 norm \2"),
    (r"(?:(encoder|decoder)\.)?token\.(.+)", r"\1 token \2"),
    (r"(?:embed\.)?positions", r"positions"),
)


def describe(edits: Mapping[str, Any]) -> list[str]:
    """A short label for each edit: "head 2.5 off"."""
    return [f"{short_path(path)} {short_action(parse_action(path, action))}" for path, action in edits.items()]


def short_path(path: str) -> str:
    for pattern, label in SHORT:
        if re.fullmatch(pattern, path):
            return re.sub(pattern, label, path).strip()
    return path


def short_action(action: EditAction) -> str:
    given = action.argument
    if action.verb == "set":
        return f"= {float(given):g}" if np.ndim(given) == 0 else f"= {tuple(given.shape)} numbers"
    if action.verb == "swap":
        return "{:g} ↔ {:g}".format(*given)
    labels = {"zero": "off", "mean": "→ mean", "hide": "hidden", "show": "shown", "from": "from another run"}
    return f"× {given:g}" if action.verb == "scale" else labels.get(action.verb, action.verb)
