"""A run with everything it passed through: `model.trace(text)`.

In: a network and ids. Out: a `Trace`, which has every tensor that was seen, by name and without the batch axis, and can say
why each number is what it is. The run keeps what lies between blocks (the spine) and the attention weights. A block whose
inside is asked for is run again, alone, from the spine: the same operations on the same numbers, and so the same results.
What it showed is held while it fits into `memory_limit` (see `held`). So looking costs little beyond the run, and a long
text can be looked into without holding all of its numbers at once. What `sites` name is kept from the start.
"""

import difflib
import fnmatch
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import NotFound, TaskError
from regard.explain.graph import Graph, weight
from regard.explain.held import Held, block_of, inside_of, is_block
from regard.heap import keep_freed_memory
from regard.model.transformer import EncoderDecoder, Network, Seq2Seq
from regard.nn.see import watching
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.explain.compare import Comparison
    from regard.explain.edit import Edits
    from regard.explain.why import Why

MEMORY_LIMIT = 1 << 30


@dataclass(frozen=True)
class Step:
    """One generated token: what was drawn, from what, and how many keys came from the cache."""

    position: int
    id: int
    piece: str
    probability: float
    candidates: tuple[tuple[str, int, float], ...]  # piece, id, probability; largest first
    cached: int


@dataclass
class Run:
    """What is run: a network on ids, changed here and there."""

    net: Network
    ids: list[int]
    target_ids: list[int] | None
    edits: "Edits | None" = None
    name: str | None = None  # what the model is called
    text: str | None = None  # what it was given to read

    def forward(self, watcher: Any, gradients: bool = False) -> None:
        device = next(self.net.parameters()).device
        source = torch.tensor([self.ids], device=device)
        with torch.set_grad_enabled(gradients), watching(watcher):
            if isinstance(self.net, EncoderDecoder) and self.net.spec.head.kind == "classify":
                target = torch.tensor([self.target_ids], device=device)
                self.net.classify(source, target, torch.tensor([target.shape[1] - 1], device=device))
            elif isinstance(self.net, Seq2Seq):
                self.net(source, torch.tensor([self.target_ids], device=device))
            else:
                self.net(source)


class Enough(Exception):
    """The wanted block has been run; what follows is known."""


class Trace:
    def __init__(
        self,
        run: Run,
        tokenizer: Tokenizer | None,
        *,
        sites: Sequence[str] | None = None,
        memory_limit: int = MEMORY_LIMIT,
        base: "Trace | None" = None,  # the run without edits
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.run, self.net, self.tokenizer = run, run.net, tokenizer
        self.ids, self.target_ids = run.ids, run.target_ids
        self.tokens = self.pieces(run.ids)
        self.target_tokens = None if run.target_ids is None else self.pieces(run.target_ids)
        self.edits: dict[str, Any] = dict(given or {})
        self.steps: list[Step] = []
        self._held, self._sites, self._wanted = Held(memory_limit), sites, pattern(sites)
        self._sizes: Counter[str | None] = Counter()  # bytes that a block shows
        self._versions = versions(run.net)
        self._shapes: dict[str, tuple[int, ...]] = dict(base._shapes) if base else {}
        self._lock: threading.RLock = base._lock if base else threading.RLock()  # one block is run again at a time
        self._base, self._before = base, untouched(base, run.edits)
        keep_freed_memory()
        run.forward(Recorder(self))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.pieces(list(ids)) if self.tokenizer else [str(i) for i in ids]

    # what there is

    def nodes(self) -> list[str]:
        """Names in the order in which they were computed."""
        return [name for name in self._shapes if self.wants(name)]

    def wants(self, name: str) -> bool:
        return self._wanted is None or self._wanted.match(name) is not None

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name] if name in self else tuple(self[name].shape)

    def tokens_of(self, axis: str) -> list[str]:
        """The tokens that an axis of a node counts: the source's or the target's."""
        return self.target_tokens or [] if axis == "target" else self.tokens

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.net, self._shapes)

    @property
    def edited(self) -> frozenset[str]:
        """The nodes that an edit wrote over: they do not follow from their operands."""
        return frozenset() if self.run.edits is None else self.run.edits.nodes()

    def __contains__(self, name: object) -> bool:
        return name in self._shapes and self.wants(str(name))

    def __getitem__(self, name: str) -> Tensor:
        """A node's numbers without the batch axis; or a weight's, by its name, in the lectures' orientation."""
        if name not in self:
            name = str(name)
            if (parameter := weight(self.net, name)) is not None:
                return parameter
            near = difflib.get_close_matches(name, self._shapes, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "trace.nodes() lists them."
            raise NotFound(f"This run has no node {name!r}; {hint}")
        if name == "probabilities":
            return self["logits"].softmax(-1)
        if name in self._held.spine:
            return self._held.spine[name][0]
        with self._lock:
            return self._inside(name)[0]

    def row(self, name: str, before: tuple[int, ...]) -> Tensor:
        """The numbers of a node along its last axis, without computing the others where they are not kept."""
        return self["logits"][before].softmax(-1) if name == "probabilities" else self[name][before]

    def __repr__(self) -> str:
        edited = f", {len(self.edits)} edits" if self.edits else ""
        return f"<regard.Trace of {len(self.tokens)} tokens, {len(self._shapes)} nodes{edited}>"

    # keeping

    def show(self, name: str, x: Tensor) -> None:
        """Be shown a tensor of the run, in order."""
        self._shapes[name] = tuple(x.shape[1:])
        place = inside_of(name)
        if place is None:
            self._keep_on_spine(name, x)
        elif self.wants(name):
            self._sizes[place] += x.nbytes
            if self._wanted is not None or name.endswith(".weights"):
                self._held.keep(name, place, x)

    def keep(self, name: str, x: Tensor) -> None:
        """Be shown a tensor of a block that is run again."""
        place = inside_of(name)
        if place is None:
            self._keep_on_spine(name, x)
        elif self.wants(name):
            self._held.keep(name, place, x)

    def _keep_on_spine(self, name: str, x: Tensor) -> None:
        self._held.keep(name, None, x)
        if name == "logits":  # what follows from them is as large as they are, and made in a moment when asked for
            self._shapes["probabilities"] = self._shapes[name]
        if (block := block_of(name)) is not None:
            self._held.make_room(block, self._sizes[block], len(self.ids))

    @property
    def memory_limit(self) -> int:
        return self._held.limit

    @property
    def nbytes(self) -> int:
        """Bytes of numbers that are held now."""
        return self._held.nbytes

    def _inside(self, name: str) -> Tensor:
        """A tensor inside a block, which is run again if it is not held."""
        place = inside_of(name)
        assert place is not None
        if place in self._before and self._base is not None:
            return self._base._inside(name)
        x = self._held.find(name, place)
        if x is None:
            self._check_weights(place)
            with suppress(Enough):
                self.run.forward(Replay(self, place))
            x = self._held.find(name, place)
        assert x is not None
        return x

    def _check_weights(self, place: str) -> None:
        if versions(self.net) != self._versions:
            raise TaskError(
                f"The model's weights have changed since this run, so {place} cannot be run again as it was; "
                "trace the text again, or beforehand with sites=['*'], which keeps every number."
            )

    # asking

    def why(self, name: str, index: int | Sequence[int]) -> "Why":
        """Why a number is what it is: its formula with this run's operands, each of which can be asked in turn."""
        from regard.explain.why import why

        return why(self, name, index if isinstance(index, Sequence) else (index,))

    def edit(self, edits: Mapping[str, Any]) -> "Trace":
        """The run again with something changed, from there on.

        Edits add up: those of this run stay and are made first, but for places that are edited anew. {} takes all back.
        """
        from regard.explain.edit import add_up, compile_edits

        if versions(self.net) != self._versions:  # blocks of then would meet weights of now
            raise TaskError("The weights have changed since this run, so it cannot be edited; trace the text again.")
        given = add_up(self.edits, edits)
        compiled = compile_edits(self.net, given, self._shapes) if given else None
        run, plain = replace(self.run, edits=compiled), self if self._base is None else self._base
        found = Trace(run, self.tokenizer, sites=self._sites, memory_limit=self.memory_limit, base=plain, given=given)
        found.steps = self.steps  # the text was written without the edits
        return found

    def compare(self, other: "Trace") -> "Comparison":
        """This run beside another: what changed, token by token."""
        from regard.explain.compare import compare

        return compare(self, other)

    # handing on

    def html(self, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Path:
        """One file with the page and this run in it, which opens from disk without a network.

        progress: hears how many heads of how many the model was run without, which takes most of the time.
        """
        from regard.explain.export import write_html

        return write_html(self, Path(path), progress=progress)

    def svg(self, panel: str, path: str | Path, **which: Any) -> Path:
        """A panel as a picture for a paper."""
        from regard.explain.picture import write_picture

        return write_picture(self, panel, Path(path), "svg", **which)

    def png(self, panel: str, path: str | Path, **which: Any) -> Path:
        from regard.explain.picture import write_picture

        return write_picture(self, panel, Path(path), "png", **which)

    def _repr_html_(self) -> str:
        from regard.explain.export import frame

        return frame(self)


@dataclass
class Recorder:
    """Watches a whole run. What comes before the first edit is taken from the run as it was."""

    trace: Trace

    def known(self, place: str) -> Tensor | None:
        if place not in self.trace._before or self.trace._base is None:
            return None
        out = self.trace._base._held.spine[f"{place}.out"]
        self.trace._held.keep(f"{place}.out", None, out)
        remember(self.trace.run.edits, f"{place}.out", out)
        return out

    def __call__(self, name: str, x: Tensor) -> Tensor:
        edits = self.trace.run.edits
        x = x if edits is None else edits(name, x)
        self.trace.show(name, x)
        return x


@dataclass
class Replay:
    """Watches one block of a run that was made before; the blocks ahead of it are answered from the spine."""

    trace: Trace
    place: str

    def known(self, place: str) -> Tensor | None:
        out = self.trace._held.spine.get(f"{place}.out") if is_block(place) else None
        if out is None or place == self.place:
            return None
        remember(self.trace.run.edits, f"{place}.out", out)
        return out

    def __call__(self, name: str, x: Tensor) -> Tensor:
        edits = self.trace.run.edits
        x = x if edits is None else edits(name, x)
        if block_of(name) == self.place:
            self.trace.keep(name, x)
            if name == f"{self.place}.out":
                raise Enough
        return x


def untouched(base: Trace | None, edits: "Edits | None") -> frozenset[str]:
    """The blocks of a run that come before anything the edits change."""
    if base is None or edits is None:
        return frozenset()
    names, edited = list(base._shapes), edits.nodes()
    first = next((i for i, name in enumerate(names) if name in edited), len(names))
    after = {block_of(name) for name in names[first:]}
    return frozenset(place for name in names[:first] if (place := block_of(name)) is not None and place not in after)


def pattern(sites: Sequence[str] | None) -> re.Pattern[str] | None:
    """One for all: it is asked for every tensor of a run. None: nothing was said, and all are wanted."""
    if sites is None:
        return None
    each = [sites] if isinstance(sites, str) else sites
    return re.compile("|".join(map(fnmatch.translate, each)) or "(?!)")  # no site: matches nothing


def versions(net: Network) -> list[int]:
    """Changes when somebody writes over a weight. (`net.parameters()` makes names too, which takes a millisecond.)"""
    modules: list[nn.Module] = [net]
    for module in modules:
        modules += [child for child in module._modules.values() if child is not None]
    weights = [p for module in modules for p in module._parameters.values() if p is not None]
    return [0 if p.is_inference() else p._version for p in weights]


def remember(edits: "Edits | None", name: str, x: Tensor) -> None:
    if edits is not None and edits.needs(name):
        edits.remember(name, x)


def trace(
    net: Network,
    ids: Sequence[int],
    tokenizer: Tokenizer | None,
    target_ids: Sequence[int] | None = None,
    *,
    sites: Sequence[str] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    name: str | None = None,
    text: str | None = None,
) -> Trace:
    """Run once, watched: the readable definition computes, and every number it makes can be asked for.

    name, text: what the model is called and what it was given, for whoever this is handed on to.
    """
    run = Run(net, list(ids), None if target_ids is None else list(target_ids), name=name, text=text)
    return Trace(run, tokenizer, sites=sites, memory_limit=memory_limit)
