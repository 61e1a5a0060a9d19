"""A run with everything it passed through: `model.trace(text)`.

In: a network and ids. Out: a `Trace`, which has every tensor that was seen, by name and without the batch axis, and can say
why each number is what it is. What lies between blocks (the spine) is always kept. The inside of blocks is kept while it
fits into `memory_limit`; beyond that the blocks used least recently are let go, and one that is asked for again is run
again, alone, from the spine. So a long text can be looked into without holding all of its numbers at once.
"""

import difflib
import fnmatch
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import NotFound, TaskError
from regard.explain.graph import Graph, weight
from regard.model.transformer import EncoderDecoder, Network, Seq2Seq
from regard.nn.see import watching
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.explain.compare import Comparison
    from regard.explain.edit import Edits
    from regard.explain.why import Why

MEMORY_LIMIT = 1 << 30
BLOCK = re.compile(r"(encoder|decoder)\.\d+(?=\.)")


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
        base: "Trace | None" = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.run, self.net, self.tokenizer = run, run.net, tokenizer
        self.ids, self.target_ids = run.ids, run.target_ids
        self.tokens = self.pieces(run.ids)
        self.target_tokens = None if run.target_ids is None else self.pieces(run.target_ids)
        self.edits: dict[str, Any] = dict(given or {})
        self.steps: list[Step] = []
        self.memory_limit, self._wanted = memory_limit, tuple(sites) if sites is not None else None
        self._shapes: dict[str, tuple[int, ...]] = dict(base._shapes) if base else {}
        self._spine: dict[str, Tensor] = {}
        self._inside: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self._lock: threading.RLock = base._lock if base else threading.RLock()  # one block is run again at a time
        self._base, self._before = base, untouched(base, run.edits)
        run.forward(Recorder(self))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.pieces(list(ids)) if self.tokenizer else [str(i) for i in ids]

    # what there is

    def nodes(self) -> list[str]:
        """Names in the order in which they were computed."""
        return [name for name in self._shapes if self.wants(name)]

    def wants(self, name: str) -> bool:
        return self._wanted is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in self._wanted)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name] if name in self else tuple(self[name].shape)

    def tokens_of(self, axis: str) -> list[str]:
        """The tokens that an axis of a node counts: the source's or the target's."""
        return self.target_tokens or [] if axis == "target" else self.tokens

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.net, self._shapes)

    def __contains__(self, name: object) -> bool:
        return name in self._shapes and self.wants(str(name))

    def __getitem__(self, name: str) -> Tensor:
        """A node's numbers without the batch axis; or a weight's, by its name, in the lectures' orientation."""
        if name not in self:
            if (parameter := weight(self.net, name)) is not None:
                return parameter
            near = difflib.get_close_matches(name, self._shapes, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "trace.nodes() lists them."
            raise NotFound(f"This run has no node {name!r}; {hint}")
        if name == "probabilities" and name not in self._spine:
            return self["logits"].softmax(-1)
        if name in self._spine:
            return self._spine[name]
        with self._lock:
            return self._block(block_of(name))[name]

    def row(self, name: str, before: tuple[int, ...]) -> Tensor:
        """The numbers of a node along its last axis, without computing the others where they are not kept."""
        kept = name != "probabilities" or name in self._spine
        return self[name][before] if kept else self["logits"][before].softmax(-1)

    def __repr__(self) -> str:
        edited = f", {len(self.edits)} edits" if self.edits else ""
        return f"<regard.Trace of {len(self.tokens)} tokens, {len(self._shapes)} nodes{edited}>"

    # keeping

    def keep(self, name: str, x: Tensor) -> None:
        place = block_of(name)
        if place is None:
            if name != "probabilities":  # as large as the logits and made from them in a moment
                self._spine[name] = x[0]
        elif name == f"{place}.out":
            self._spine[name] = x[0]
            self._let_go(place)
        elif self.wants(name):
            self._inside.setdefault(place, {})[name] = x[0]

    @property
    def nbytes(self) -> int:
        """Bytes of numbers that are held now."""
        with self._lock:
            return sum(size(x) for held in (self._spine, *self._inside.values()) for x in held.values())

    def _let_go(self, newest: str) -> None:
        sizes = {place: sum(size(x) for x in held.values()) for place, held in self._inside.items()}
        spine = sum(size(x) for x in self._spine.values())
        needed = spine + sizes.get(newest, 0)
        if needed > self.memory_limit:
            raise TaskError(
                f"Looking into {newest} of this run of {len(self.ids):,} tokens takes {needed / 1e9:.2f} GB, and the limit "
                f"is {self.memory_limit / 1e9:.2f} GB; give a shorter text, choose nodes by sites=['*.weights', …], or "
                "raise memory_limit."
            )
        total = spine + sum(sizes.values())
        for place in list(self._inside):
            if total <= self.memory_limit:
                break
            if place != newest:
                total -= sizes[place]
                del self._inside[place]

    def _block(self, place: str | None) -> dict[str, Tensor]:
        """The inside of a block, run again if it was let go."""
        assert place is not None
        if place in self._before and self._base is not None:
            return self._base._block(place)
        if place not in self._inside:
            with suppress(Enough):
                self.run.forward(Replay(self, place))
        self._inside.move_to_end(place)
        return self._inside[place]

    # asking

    def why(self, name: str, index: int | Sequence[int]) -> "Why":
        """Why a number is what it is: its formula with this run's operands, each of which can be asked in turn."""
        from regard.explain.why import why

        return why(self, name, (index,) if isinstance(index, int) else tuple(index))

    def edit(self, edits: Mapping[str, Any]) -> "Trace":
        """The run again with something changed, from there on; {} is the run as it was."""
        from regard.explain.edit import compile_edits

        compiled = compile_edits(self.net, edits, self._shapes) if edits else None
        run = Run(self.net, self.ids, self.target_ids, compiled)
        base = None if self.edits else self
        return Trace(run, self.tokenizer, sites=self._wanted, memory_limit=self.memory_limit, base=base, given=edits)

    def compare(self, other: "Trace") -> "Comparison":
        """This run beside another: what changed, token by token."""
        from regard.explain.compare import compare

        return compare(self, other)

    # handing on

    def html(self, path: str | Path) -> Path:
        """One file with the page and this run in it, which opens from disk without a network."""
        from regard.explain.export import write_html

        return write_html(self, Path(path))

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
        out = self.trace._base[f"{place}.out"]
        self.trace._spine[f"{place}.out"] = out
        remember(self.trace.run.edits, f"{place}.out", out)
        return out[None]

    def __call__(self, name: str, x: Tensor) -> Tensor:
        edits = self.trace.run.edits
        x = x if edits is None else edits(name, x)
        self.trace._shapes[name] = tuple(x.shape[1:])
        self.trace.keep(name, x)
        return x


@dataclass
class Replay:
    """Watches one block of a run that was made before; the blocks ahead of it are answered from the spine."""

    trace: Trace
    place: str

    def known(self, place: str) -> Tensor | None:
        out = self.trace._spine.get(f"{place}.out") if is_block(place) else None
        if out is None or place == self.place:
            return None
        remember(self.trace.run.edits, f"{place}.out", out)
        return out[None]

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


def remember(edits: "Edits | None", name: str, x: Tensor) -> None:
    if edits is not None and edits.needs(name):
        edits.remember(name, x[None])


def block_of(name: str) -> str | None:
    """The block that a node lies in ("decoder.3"), if it lies in one."""
    found = BLOCK.match(name)
    return found[0] if found else None


def is_block(place: str) -> bool:
    return block_of(f"{place}.") == place


def size(x: Tensor) -> int:
    return x.numel() * x.element_size()


def trace(
    net: Network,
    ids: Sequence[int],
    tokenizer: Tokenizer | None,
    target_ids: Sequence[int] | None = None,
    *,
    sites: Sequence[str] | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Trace:
    """Run once, watched: the readable definition computes, and every number it makes can be asked for."""
    run = Run(net, list(ids), None if target_ids is None else list(target_ids))
    return Trace(run, tokenizer, sites=sites, memory_limit=memory_limit)
