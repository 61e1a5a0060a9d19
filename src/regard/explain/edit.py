"""What if? A run with some of its numbers replaced.

In: a mapping from places ("decoder.2.attention.head.5") to what to do there ("zero", {"scale": 2}, "off", …), and a network
with the shapes it showed. Out: an `Edits`, which is called with every tensor of a run in order and answers with what flows
on. Whatever can be wrong with an edit is said before anything runs.

Numbers are written over: zero, mean (over tokens), scale, set, swap (two entries of the first axis), from (another run);
"off" is another word for zero. Entries of a mask are hidden or shown. A switch (scaling, a residual, a norm, …) is off.
"""

import math
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import TaskError, quoted
from regard.explain.graph import SOURCE, TARGET, Graph, Site
from regard.explain.place import Hiding, Index, Places, Shapes, Switch, Value
from regard.explain.trace import Trace
from regard.model.transformer import Network
from regard.nn.mask import Mask

Change = Callable[[Tensor, Mapping[str, Tensor]], Tensor]  # what would flow on, what was remembered → what flows on

ALONE = ("zero", "mean", "off", "hide", "show")
WITH = ("scale", "set", "swap", "from")


class Edits:
    """Called with every seen tensor, in order; gives back the tensor itself where nothing is to change."""

    def __init__(self, changes: Mapping[str, list[Change]], remembered: Mapping[str, str]) -> None:
        self._changes, self._remembered = changes, remembered  # remembered: node → the node that will ask for it
        self._local = threading.local()  # one trace may be replayed for two requests at once

    @property
    def _memory(self) -> MutableMapping[str, Tensor]:
        return self._local.__dict__

    def __call__(self, name: str, x: Tensor) -> Tensor:
        for change in self._changes.get(name, ()):
            x = change(x, self._memory)
        for source in [source for source in self._memory if self._remembered[source] == name]:
            del self._memory[source]
        self.remember(name, x)
        return x

    def remember(self, name: str, x: Tensor) -> None:
        """Be shown a tensor that stays as it is: a replay from the middle does not make it again."""
        if self.needs(name):
            self._memory[name] = x

    def nodes(self) -> frozenset[str]:
        """The nodes whose own numbers are changed; what follows from them is not counted."""
        return frozenset(self._changes)

    def needs(self, name: str) -> bool:
        """Whether a later change asks what this node was."""
        return name in self._remembered


def add_up(before: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """Edits of an edited run: what is said of a place anew takes the place of what was said before; {} is none at all."""
    if not isinstance(edits, Mapping) or not all(isinstance(place, str) for place in edits):
        raise TaskError("Edits are a mapping from places to what to do there, such as {'token.1': 'zero'}.")
    later = {place.strip(): what for place, what in edits.items()}
    return {**{place: what for place, what in before.items() if place not in later}, **later} if later else {}


def compile_edits(net: Network, edits: Mapping[str, Any], shapes: Shapes) -> Edits:
    """shapes: of every node that the run shows, without the batch axis. On one node, switches act before values."""
    graph = Graph(net, shapes)
    places = Places(graph, shapes)
    switched: dict[str, list[Change]] = defaultdict(list)
    written: dict[str, list[Change]] = defaultdict(list)
    masks: dict[Site, list[tuple[Index, bool]]] = {}
    remembered: dict[str, str] = {}
    for place, given in edits.items():
        targets, what = places.find(place), read_what(place, given)
        for target in targets:
            check_sense(place, target, what)
            if isinstance(target, Switch):
                switched[target.node].append(instead_of(target))
                if target.instead is not None:
                    remembered[target.instead] = target.node
            elif isinstance(target, Hiding):
                masks.setdefault(target.site, []).append((target.index, what.verb != "hide"))
            else:
                written[target.node].append(writing(place, target, what, graph, shapes))
    for site, entries in masks.items():
        scores, masked = f"{site.site}.scores", f"{site.site}.masked"
        visible = visible_entries(graph, site, shapes[scores][1:], entries)
        if masked in graph.nodes:
            remembered[scores] = masked
        switched[masked if masked in graph.nodes else scores].append(hiding(visible, scores))
    names = [name for name in shapes if name in switched or name in written]
    return Edits({name: switched[name] + written[name] for name in names}, remembered)


# ── what is to be done ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class What:
    verb: str
    given: Any = None


def read_what(place: str, what: Any) -> What:
    """A word and what it needs, from "scale 2" or from {"scale": 2}."""
    if isinstance(what, str):
        verb, *words = what.split() or [""]
        given: Any = words if verb == "swap" else words[0] if len(words) == 1 else words or None
    elif isinstance(what, Mapping) and len(what) == 1:
        verb, given = next(iter(what.items()))
    else:
        verb, given = "", None
    if verb in ALONE and given is None:
        return What(verb)
    if verb == "scale":
        return What(verb, number(place, given))
    if verb == "set":
        return What(verb, numbers(place, given))
    if verb == "swap" and isinstance(given, list | tuple) and len(given) == 2:
        return What(verb, tuple(number(place, i) for i in given))
    if verb == "from" and isinstance(given, Trace):
        return What(verb, given)
    words_for = ", ".join(ALONE)
    raise TaskError(
        f"{place}: {quoted(what)} is no edit; say {words_for}, scale 2, set 0.3, swap 1 2 or {{'from': trace}}."
    )


def number(place: str, given: Any) -> float:
    try:
        value = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise TaskError(f"{place}: {quoted(given)} is not a finite number.")
    return value


def numbers(place: str, given: Any) -> Tensor:
    """A number, or a list of them (of lists …) that fits what is set."""
    if not isinstance(given, list | tuple | Tensor):
        return torch.tensor(number(place, given))
    try:
        values = torch.as_tensor(given, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        raise TaskError(f"{place}: what is set must be a number or a regular list of numbers.") from None
    if not values.isfinite().all():
        raise TaskError(f"{place}: what is set must be finite numbers.")
    return values


def check_sense(place: str, target: Value | Hiding | Switch, what: What) -> None:
    if isinstance(target, Switch) and what.verb != "off":
        raise TaskError(f"{place} can only be off, not {what.verb}; its numbers are those of {target.node}.")
    if isinstance(target, Hiding) and what.verb not in ("off", "hide", "show"):
        raise TaskError(f"{place} can be off, its entries hide or show; {what.verb} is for numbers.")
    if isinstance(target, Value) and what.verb in ("hide", "show"):
        raise TaskError(f"{place}: {what.verb} is for entries of a mask, such as decoder.0.attention.mask[3, 1].")


# ── how it is done ──────────────────────────────────────────────────────────────────────────────────────────────────


def instead_of(switch: Switch) -> Change:
    def change(x: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
        return torch.zeros_like(x) if switch.instead is None else seen[switch.instead]

    return change


def hiding(visible: Tensor, scores: str) -> Change:
    """visible: (N, T), the same for every head. A run without a mask has only scores to hide in."""

    def change(x: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
        return seen.get(scores, x).masked_fill(~visible.to(x.device), -math.inf)

    return change


def visible_entries(graph: Graph, site: Site, shape: tuple[int, ...], entries: Iterable[tuple[Index, bool]]) -> Tensor:
    """What each query may look at, (N, T), after the entries were hidden or shown one after the other."""
    causal = site.kind == "causal"
    window = graph.net.spec.stacks[site.stack].window(site.layer) if causal else None
    plain = Mask(causal=causal, window=window).matrix(shape[0], shape[1], torch.device("cpu"))
    visible = torch.ones(shape, dtype=torch.bool) if plain is None else plain[0, 0].clone()
    for index, shown in entries:
        if shown and plain is None:
            raise TaskError(
                f"{site.site} has no mask: every token sees every token already, and entries can only hide."
            )
        visible[index] = shown
    blind = (~visible.any(-1)).nonzero().flatten().tolist()
    if blind:
        raise TaskError(f"{site.site}.mask: token {blind[0]} would see nothing at all; leave it at least one key.")
    return visible


def writing(place: str, target: Value, what: What, graph: Graph, shapes: Shapes) -> Change:
    """Write over a part of the node. Along the batch axis all rows are treated alike."""
    at = (slice(None), *target.index)
    part = tuple(torch.empty(shapes[target.node], device="meta")[target.index].shape)
    make = maker(place, target, what, graph, part, shapes)

    def change(x: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
        changed = x.clone()
        changed[at] = make(x, x[at]).to(x)
        return changed

    return change


def maker(
    place: str, target: Value, what: What, graph: Graph, part: tuple[int, ...], shapes: Shapes
) -> Callable[[Tensor, Tensor], Tensor]:
    """From the whole node and the part (each with a batch axis) to the part's new numbers."""
    at, given = (slice(None), *target.index), what.given
    if what.verb == "scale":
        return lambda whole, x: x * given
    if what.verb == "mean":
        axis = next((i for i, axis in enumerate(graph[target.node].axes) if axis in (SOURCE, TARGET)), None)
        if axis is None:
            raise TaskError(f"{place} has no axis of tokens to take a mean over.")
        return lambda whole, x: whole.mean(axis + 1, keepdim=True).expand_as(whole)[at]
    if what.verb == "swap":
        order = list(range(part[0] if part else 0))
        if not set(given) <= set(order):
            raise TaskError(
                "{}: {:g} and {:g} cannot be swapped; there are {} entries.".format(place, *given, len(order))
            )
        i, j = map(int, given)
        order[i], order[j] = j, i
        return lambda whole, x: x[:, order]
    if what.verb == "set":
        if not fits(given.shape, part):
            raise TaskError(f"{place} has shape {part}, which {tuple(given.shape)} does not fit.")
        return lambda whole, x: given
    if what.verb == "from":
        if target.node not in given or given.shape(target.node) != shapes[target.node]:
            there = given.shape(target.node) if target.node in given else "missing"
            raise TaskError(f"{place}: {target.node} is {shapes[target.node]} here and {there} in the other run.")
        return lambda whole, x: given[target.node][target.index]
    return lambda whole, x: torch.zeros_like(x)


def fits(given: tuple[int, ...], part: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(given, part) == part
    except RuntimeError:
        return False


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    """A few words for each edit: "head 2.5 off"."""
    return [f"{short(place)} {done(read_what(place, what))}" for place, what in edits.items()]


def short(place: str) -> str:
    for pattern, words in SHORT:
        if re.fullmatch(pattern, place):
            return re.sub(pattern, words, place).strip()
    return place


def done(what: What) -> str:
    given = what.given
    if what.verb == "set":
        return f"= {given.item():g}" if given.dim() == 0 else f"= {tuple(given.shape)} numbers"
    if what.verb == "swap":
        return "{:g} ↔ {:g}".format(*given)
    words = {"zero": "off", "mean": "→ mean", "hide": "hidden", "show": "shown", "from": "from another run"}
    return f"× {given:g}" if what.verb == "scale" else words.get(what.verb, what.verb)
