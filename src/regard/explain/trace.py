"""A trace: one forward pass with every intermediate array, by name and without the batch axis. `model.trace(text)`.

In: a network and ids. Out: a `Trace`. The forward pass stores the arrays outside blocks and the attention weights. When an
array inside a block is requested, that block alone is run again (replayed) from its stored input: the same operations on
the same numbers give the same results. Replayed arrays stay in memory within `memory_limit` (see activation_cache.py), so
a trace costs little more than the forward pass, and long texts fit. With `sites`, all matching nodes are stored at once.
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
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import NotFound, TaskError, require
from regard.explain.activation_cache import ActivationCache, block_of, inside_of, is_block
from regard.explain.logits import softmax
from regard.malloc import keep_freed_memory
from regard.model.graph import Graph
from regard.model.registry import network
from regard.model.spec import Spec
from regard.nn.part import Part, Weight, weights
from regard.nn.see import watching
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.compare import Comparison
    from regard.explain.edit import Edits
    from regard.explain.why import Why

Array = NDArray[Any]
MEMORY_LIMIT = 1 << 30


@dataclass(frozen=True)
class Step:
    """One generated token: its id and probability, the candidates, and how many keys were in the KV cache."""

    position: int
    id: int
    piece: str
    probability: float
    candidates: tuple[tuple[str, int, float], ...]  # piece, id, probability; largest first
    cached: int


@dataclass
class Run:
    """The inputs of a forward pass: a network, ids, and edits."""

    net: Part  # on numpy arrays
    ids: list[int]
    target_ids: list[int] | None
    edits: "Edits | None" = None
    name: str | None = None  # the model's
    text: str | None = None  # the input, before tokenizing
    version: Callable[[], Any] = lambda: None  # of the weights: changes when they are written to

    @property
    def spec(self) -> Spec:
        spec: Spec = self.net.spec
        return spec

    def forward(self, observer: Any, array: Callable[[list[int]], Any] = np.array, net: Any = None) -> None:
        """Run with an observer, without a batch axis. net, array: to run in another library (PyTorch)."""
        net = self.net if net is None else net
        with watching(observer), np.errstate(all="ignore"):  # edits may make numbers infinite
            if self.target_ids is None:
                net(array(self.ids))
            elif self.spec.head.kind == "classify":
                net.classify(array(self.ids), array(self.target_ids), len(self.target_ids) - 1)
            else:
                net(array(self.ids), array(self.target_ids))


class StopReplay(Exception):
    """Raised by an observer when the requested block has run: the rest of the forward pass is not needed."""


class Trace:
    """A forward pass with every intermediate array, by name; `model.trace(text)` makes one.

    `tokens` and `ids` are the input, `target_tokens` and `target_ids` those of an encoder-decoder's target. `steps` has how
    each generated token was chosen, `edits` the edits of this run.
    """

    def __init__(
        self,
        run: Run,
        tokenizer: Tokenizer | None,
        *,
        sites: Sequence[str] | None = None,
        memory_limit: int = MEMORY_LIMIT,
        base: "Trace | None" = None,  # the trace without edits
        edits: Mapping[str, Any] | None = None,
    ) -> None:
        self.run, self.spec, self.tokenizer = run, run.spec, tokenizer
        self.ids, self.target_ids = run.ids, run.target_ids
        self.tokens = self.pieces(run.ids)
        self.target_tokens = None if run.target_ids is None else self.pieces(run.target_ids)
        self.edits: dict[str, Any] = dict(edits or {})
        self.steps: list[Step] = []
        self._cache, self._sites, self._selected = ActivationCache(memory_limit), sites, pattern(sites)
        self._sizes: Counter[str | None] = Counter()  # bytes of the arrays inside a block
        self._version = run.version()
        self._shapes: dict[str, tuple[int, ...]] = dict(base._shapes) if base else {}
        self._lock: threading.RLock = base._lock if base else threading.RLock()  # one block is replayed at a time
        self._base, self._unedited = base, blocks_before_edits(base, run.edits)
        attention = self.graph.sites if run.spec.recurrent is None else []  # a recurrent network has no blocks
        self._attention_weights = {site.weights for site in attention}  # stored although they are inside blocks
        keep_freed_memory()
        run.forward(Recorder(self))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id."""
        return self.tokenizer.pieces(list(ids)) if self.tokenizer else [str(i) for i in ids]

    # nodes and arrays

    def nodes(self) -> list[str]:
        """The names of all nodes, in execution order."""
        return [name for name in self._shapes if self._is_selected(name)]

    def _is_selected(self, name: str) -> bool:
        """Whether `sites`, if given, include the node."""
        return self._selected is None or self._selected.match(name) is not None

    def shape(self, name: str) -> tuple[int, ...]:
        """A node's shape, without computing it."""
        return self._shapes[name] if name in self else tuple(self[name].shape)

    def tokens_of(self, axis: str) -> list[str]:
        """The tokens along an axis of a node: "source" or "target"."""
        return self.target_tokens or [] if axis == "target" else self.tokens

    @cached_property
    def graph(self) -> Graph:
        """The computation graph: `trace.graph[name]` has a node's operation, inputs and axes."""
        if self._base is not None:  # the same network on the same lengths
            return self._base.graph
        return Graph(self.spec, len(self.ids), len(self.target_ids or []))

    @property
    def edited(self) -> frozenset[str]:
        """The nodes that an edit overwrote: their values do not follow from their operands."""
        return frozenset() if self.run.edits is None else self.run.edits.nodes()

    def __contains__(self, name: object) -> bool:
        return name in self._shapes and self._is_selected(str(name))

    def __getitem__(self, name: str) -> Array:
        """The array of a node, or a weight by its name (in the lectures' orientation); a read-only numpy array."""
        x = self._find(name)
        x = x.view()
        x.flags.writeable = False
        return x

    def tensor(self, name: str) -> "Tensor":
        """The same as a PyTorch tensor, which is a copy."""
        from torch import from_numpy

        return from_numpy(self[name].copy())

    def _find(self, name: str) -> Array:
        if name not in self:
            name = str(name)
            if name in self.declared:
                weight = self.run.net.get(name)
                return weight.T if self.declared[name].transposed else weight
            if name in self.graph.constants:
                constant: Array = self.graph.constants[name]
                return constant
            near = difflib.get_close_matches(name, self._shapes, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "trace.nodes() lists them."
            raise NotFound(f"This run has no node {name!r}; {hint}")
        if name == "probabilities":
            return softmax(self["logits"])
        if name in self._cache.outside:
            return self._cache.outside[name]
        with self._lock:
            return self._inside_block(name)

    @cached_property
    def declared(self) -> dict[str, Weight]:
        """The network's weights, by name."""
        return dict(weights(network(self.spec)))

    def row(self, name: str, before: tuple[int, ...]) -> Array:
        """A node's values along its last axis. Of probabilities, which are not stored, only this row is computed."""
        return softmax(self["logits"][before]) if name == "probabilities" else self[name][before]

    def read(self, name: str) -> Array:
        """The array behind any name in a formula: a node, a weight, a constant, or the ids."""
        if name in ("ids", "target_ids"):
            return np.array(self.ids if name == "ids" else self.target_ids)
        return self._find(name)

    def __repr__(self) -> str:
        edited = f", {len(self.edits)} edits" if self.edits else ""
        return f"<regard.Trace of {len(self.tokens)} tokens, {len(self._shapes)} nodes{edited}>"

    # storing

    def _record(self, name: str, x: Array) -> None:
        """Called with every array of the forward pass, in order."""
        self._shapes[name] = x.shape
        block = inside_of(name)
        if block is None:
            self._store_outside(name, x)
        elif self._is_selected(name):
            self._sizes[block] += x.nbytes
            if self._selected is not None or name in self._attention_weights:
                self._cache.put(name, block, x)

    def _record_replayed(self, name: str, x: Array) -> None:
        """Called with every array of a block that is replayed."""
        block = inside_of(name)
        if block is None:
            self._store_outside(name, x)
        elif self._is_selected(name):
            self._cache.put(name, block, x)

    def _store_outside(self, name: str, x: Array) -> None:
        self._cache.put(name, None, x)
        if name == "logits":  # probabilities are as large, and quickly computed on request
            self._shapes["probabilities"] = self._shapes[name]
        if (block := block_of(name)) is not None:
            self._cache.evict(block, self._sizes[block], len(self.ids))

    @property
    def memory_limit(self) -> int:
        return self._cache.limit

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are in memory now."""
        return self._cache.nbytes

    def _inside_block(self, name: str) -> Array:
        """An array inside a block, which is replayed if the array is not in memory."""
        block = inside_of(name)
        assert block is not None
        if block in self._unedited and self._base is not None:
            return self._base._inside_block(name)
        x = self._cache.get(name, block)
        if x is None:
            self._check_weights(block)
            with suppress(StopReplay):
                self.run.forward(Replay(self, block))
            x = self._cache.get(name, block)
        assert x is not None
        return x

    def _check_weights(self, replayed: str) -> None:
        """Refuse a replay if the weights have changed since the forward pass."""
        if self.run.version() != self._version:
            raise TaskError(
                f"The model's weights have changed since this run, so {replayed} cannot be replayed; trace the text again, "
                "or use sites=['*'], which stores every array at once."
            )

    # analysing

    def why(self, name: str, index: int | Sequence[int]) -> "Why":
        """The derivation of one number: its formula with this run's operands, each of which can be derived in turn."""
        from regard.explain.why import why

        return why(self, name, index if isinstance(index, Sequence) else (index,))

    def edit(self, edits: Mapping[str, Any]) -> Self:
        """Run again with edits (interventions); what is computed before the first edited node is reused.

        Edits add up: those of this trace apply too, except on paths that are edited anew. {} removes all.
        """
        from regard.explain.edit import compile_edits, merge_edits

        if self.run.version() != self._version:  # stored activations and current weights would be mixed
            raise TaskError("The weights have changed since this run, so it cannot be edited; trace the text again.")
        merged = merge_edits(self.edits, edits)
        compiled = compile_edits(self.graph, merged, self._shapes) if merged else None
        run, plain = replace(self.run, edits=compiled), self if self._base is None else self._base
        found = type(self)(
            run, self.tokenizer, sites=self._sites, memory_limit=self.memory_limit, base=plain, edits=merged
        )
        found.steps = self.steps  # the text was generated without the edits
        return found

    def compare(self, other: "Trace") -> "Comparison":
        """This run and another, aligned by token: what changed between them."""
        from regard.explain.compare import compare

        return compare(self, other)

    # exporting

    def svg(self, panel: str, path: str | Path, **which: Any) -> Path:
        """A figure as SVG, its labels as text.

        panel: attention, heads, lines, residual, logit_lens, output or tokens; which: its options, such as site and head.
        """
        require("matplotlib", "A picture")
        from regard.explain.picture import write_picture

        return write_picture(self, panel, Path(path), "svg", **which)

    def png(self, panel: str, path: str | Path, **which: Any) -> Path:
        """The same figure as PNG."""
        require("matplotlib", "A picture")
        from regard.explain.picture import write_picture

        return write_picture(self, panel, Path(path), "png", **which)


@dataclass
class Recorder:
    """Observer of a forward pass: records it. Blocks before the first edit are taken from the trace without edits."""

    trace: Trace

    def known(self, place: str) -> Array | None:
        if place not in self.trace._unedited or self.trace._base is None:
            return None
        out = self.trace._base._cache.outside[f"{place}.out"]
        self.trace._cache.put(f"{place}.out", None, out)
        save_for_edits(self.trace.run.edits, f"{place}.out", out)
        return out

    def __call__(self, name: str, x: Array) -> Array:
        edits = self.trace.run.edits
        x = x if edits is None else edits(name, x)
        self.trace._record(name, x)
        return x


@dataclass
class Replay:
    """Observer of a replay: records one block. The outputs of the blocks before it are those of the forward pass."""

    trace: Trace
    block: str

    def known(self, place: str) -> Array | None:
        out = self.trace._cache.outside.get(f"{place}.out") if is_block(place) else None
        if out is None or place == self.block:
            return None
        save_for_edits(self.trace.run.edits, f"{place}.out", out)
        return out

    def __call__(self, name: str, x: Array) -> Array:
        edits = self.trace.run.edits
        x = x if edits is None else edits(name, x)
        if block_of(name) == self.block:
            self.trace._record_replayed(name, x)
            if name == f"{self.block}.out":
                raise StopReplay
        return x


def blocks_before_edits(base: Trace | None, edits: "Edits | None") -> frozenset[str]:
    """The blocks that run before any edited node."""
    if base is None or edits is None:
        return frozenset()
    names, edited = list(base._shapes), edits.nodes()
    first = next((i for i, name in enumerate(names) if name in edited), len(names))
    after = {block_of(name) for name in names[first:]}
    return frozenset(block for name in names[:first] if (block := block_of(name)) is not None and block not in after)


def pattern(sites: Sequence[str] | None) -> re.Pattern[str] | None:
    """One regular expression for all patterns, since it is matched with every node. None: every node is selected."""
    if sites is None:
        return None
    each = [sites] if isinstance(sites, str) else sites
    return re.compile("|".join(map(fnmatch.translate, each)) or "(?!)")  # an empty list matches nothing


def save_for_edits(edits: "Edits | None", name: str, x: Array) -> None:
    """Pass an array that is not computed again to the edits that read it."""
    if edits is not None:
        edits.save(name, x)


def trace(
    net: Part,
    ids: Sequence[int],
    tokenizer: Tokenizer | None,
    target_ids: Sequence[int] | None = None,
    *,
    sites: Sequence[str] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    name: str | None = None,
    text: str | None = None,
    version: Callable[[], Any] = lambda: None,
    kind: type[Trace] = Trace,
) -> Trace:
    """Trace one forward pass of the reference network.

    name, text: the model's name and the input text, for exports. kind: the class of the trace.
    """
    run = Run(net, list(ids), None if target_ids is None else list(target_ids), name=name, text=text, version=version)
    return kind(run, tokenizer, sites=sites, memory_limit=memory_limit)
