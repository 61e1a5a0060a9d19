"""The native engine of one model: its packed weights, its plans, its threads and the KV caches of its sequences.

In: token ids of many sequences, each with its KV cache. Out: the logits of prefill and decode steps, or an encoder's
states. `NativeDecoder` and `NativeTranslator` do what `ReferenceDecoder` and `ReferenceTranslator` do, without padding:
every sequence has rows and a KV cache of its own, and sequences of all lengths share a batch. The logits of a sequence
do not depend, to the last bit, on what else is in the batch.
"""

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from regard.engine.buffers import assign_buffers
from regard.engine.check_ids import check_lengths
from regard.engine.huge_pages import zeros
from regard.engine.lowering import lowered as lowered_of
from regard.engine.native import library as c
from regard.engine.native.library import library
from regard.engine.packing import Arena, Progress, up
from regard.engine.plan import MAX_ROWS, Builder, Plan, build
from regard.engine.program import Lowered, Program
from regard.engine.threads import threads as threads_now
from regard.engine.top_k import Floats
from regard.engine.weights import Weights
from regard.model.spec import Spec
from regard.nn.operations import cosine, sine

MAX_THREADS = 64
CACHES = ("F32", "F16", "Q8_0")


class KVCache:
    """The keys and values of one sequence in all layers, and the ids that they were computed from.

    capacity: tokens that the memory has space for.
    """

    def __init__(self, size: int, capacity: int) -> None:
        self.memory = zeros(size, dtype=np.uint8)
        self.pointer: int = self.memory.ctypes.data
        self.capacity = capacity
        self.ids: list[int] = []
        self.user: Callable[[], object | None] = lambda: None  # weak reference to the decoder that uses it

    @property
    def length(self) -> int:
        return len(self.ids)

    def truncate(self, length: int) -> None:
        """Drop all but the first `length` tokens."""
        assert length <= self.length
        del self.ids[length:]


def common_prefix(a: Sequence[int], b: Sequence[int], limit: int) -> int:
    """The length of the common prefix of a and b, at most `limit`."""
    return next((i for i in range(limit) if a[i] != b[i]), limit)


class BatchArrays:
    """The arrays of a batch of rows (one row per token), which C reads; filled in place before each run."""

    def __init__(self, max_rows: int) -> None:
        self.ids, self.positions, self.visible, self.lengths, self.wanted = (
            zeros(max_rows, dtype=np.int32) for _ in "12345"
        )
        self.caches, self.sources = (zeros(max_rows, dtype=np.uint64) for _ in "12")
        self.struct = c.Batch(
            ids=self.ids.ctypes.data,
            positions=self.positions.ctypes.data,
            visible=self.visible.ctypes.data,
            caches=self.caches.ctypes.data,
            sources=self.sources.ctypes.data,
            source_lengths=self.lengths.ctypes.data,
            wanted_rows=self.wanted.ctypes.data,
        )


class LoadedProgram:
    """A program ready to run: its plan for C, the batch's input arrays, and the buffer of its last states."""

    def __init__(self, program: Program, builder: Builder, states: Floats | None, threads: int) -> None:
        d_k = max((step.keys.d_k for step in program.attends), default=c.LANES)
        self.plan, self.threads = Plan(builder, threads, d_k), threads
        self.rows, self.states = BatchArrays(builder.max_rows), states
        self.theta, self.vocabulary, self.limit = program.theta, program.embed.tokens.rows, program.limit
        self.width = program.width
        self.cosines = self.sines = np.zeros((0, 0), np.float32)

    def extend_rotary_tables(self, capacity: int) -> None:
        """Compute the tables of rotary cosines and sines for at least `capacity` positions."""
        if self.theta is not None and len(self.cosines) < capacity:
            positions = np.arange(up(capacity, 1024))
            self.cosines, self.sines = cosine(positions, self.theta), sine(positions, self.theta)
            self.rows.struct.cosines, self.rows.struct.sines = self.cosines.ctypes.data, self.sines.ctypes.data
            self.rows.struct.angles = len(self.cosines)

    def run(self, rows: int, wanted: int = 0) -> None:
        """Run the plan on the first `rows` rows of the batch. The number of threads does not change a bit of the result."""
        self.rows.struct.rows, self.rows.struct.wanted = rows, wanted
        self.plan.struct.threads = min(threads_now(), self.threads)
        self.plan.run(self.rows.struct)


class NativeEngine:
    """Runs forward passes of one model in C. Creating it packs the weights, unless
    `pack` is False: then `arena.fill` does, before the first pass.

    lowered: the programs to run, by default those of the spec's own network. cache: the number format of the KV cache,
    one of CACHES. max_rows: tokens of a batch.
    """

    def __init__(
        self,
        spec: Spec,
        weights: Weights,
        *,
        lowered: Lowered | None = None,
        threads: int | None = None,
        cache: str = "F32",
        max_rows: int = MAX_ROWS,
        progress: Progress | None = None,
        pack: bool = True,
    ) -> None:
        native = library()
        assert native is not None
        self.native, self.cache = native, cache
        self.threads = min(threads or os.cpu_count() or 1, MAX_THREADS)
        self.lock = threading.Lock()
        self.last_cache: KVCache | None = None  # of the last single prompt: the next turn of a conversation reuses it
        self.arena = Arena(native)
        if lowered is None:
            lowered = lowered_of(spec)
        encoder, decoder = lowered.encoder, lowered.decoder
        self.cross_layout = None if encoder is None or decoder is None else self._layout(decoder, crossed=True)
        self.encoder: LoadedProgram | None = None
        self.decoder: LoadedProgram | None = None
        if encoder is not None:
            self.encoder_layout = self._layout(
                encoder, layers=1
            )  # each layer overwrites the keys and values of the last
            self.encoder_cache = zeros(0, dtype=np.uint8)
            self.encoder = self._load(encoder, weights, max(max_rows, encoder.limit), self.encoder_layout)
        if decoder is not None:
            self.decoder_layout, self.max_positions = self._layout(decoder), decoder.max_positions
            self.decoder = self._load(decoder, weights, max_rows, self.decoder_layout)
        if pack:
            self.arena.fill(progress)

    def _layout(self, program: Program, *, crossed: bool = False, layers: int | None = None) -> c.Cache:
        """The memory layout of a KV cache: of a sequence's own tokens or, crossed, of an encoded source."""
        keys = [step.keys for step in program.attends if step.keys.crossed == crossed]
        heads, d_k = (keys[0].heads, keys[0].d_k) if keys else (0, 0)
        return c.Cache(c.FORMATS.index(self.cache), heads, d_k, up(d_k), layers or len(keys), 0)

    def _load(self, program: Program, weights: Weights, max_rows: int, own: c.Cache) -> LoadedProgram:
        buffers = assign_buffers(program.steps, program.result)
        builder = Builder(self.native, self.arena, weights, max_rows, buffers.widths[0])
        caches = {False: own} if self.cross_layout is None else {False: own, True: self.cross_layout}
        return LoadedProgram(program, builder, build(builder, program, buffers, caches), self.threads)

    # ── KV caches ────────────────────────────────────────────────────────────────────────────────────────────────────

    def cache_bytes(self, layout: c.Cache, capacity: int) -> int:
        return int(self.native.regard_cache_bytes(layout, capacity))

    def new_cache(self, capacity: int) -> KVCache:
        """An empty KV cache for at least `capacity` tokens."""
        capacity = up(capacity, 32)
        return KVCache(self.cache_bytes(self.decoder_layout, capacity), capacity)

    def copy_prefix(self, source: KVCache, to: KVCache, length: int) -> None:
        """Overwrite `to` with the first `length` tokens of `source`."""
        with self.lock:
            self._copy_prefix(source, to, length)

    def _copy_prefix(self, source: KVCache, to: KVCache, length: int) -> None:
        sizes = to.pointer, to.capacity, source.pointer, source.capacity, length
        self.native.regard_fork(ctypes.byref(self.decoder_layout), *sizes)
        to.ids = source.ids[:length]

    def cache_for(self, user: object, prompt: Sequence[int], capacity: int) -> KVCache:
        """A KV cache that already holds the prefix that the prompt (without its last token) shares with the last prompt.

        That one's cache is reused in place if its decoder no longer exists and its capacity is enough, and less than twice
        what is needed; else the shared prefix is copied into a new cache.
        """
        with self.lock:
            last, capacity = self.last_cache, up(capacity, 32)
            same = 0 if last is None else common_prefix(last.ids, prompt, min(last.length, len(prompt) - 1))
            if last is not None and last.user() is None and capacity <= last.capacity < 2 * capacity:
                cache = last
                cache.truncate(same)
            else:
                cache = self.new_cache(capacity)
                if last is not None and same:
                    self._copy_prefix(last, cache, same)
            cache.user, self.last_cache = weakref.ref(user), cache
        return cache

    # ── forward passes ───────────────────────────────────────────────────────────────────────────────────────────────

    def forward(
        self,
        caches: Sequence[KVCache],
        tokens: Sequence[Sequence[int]],
        capacity: int,
        sources: "Sequence[Source] | None" = None,
        wanted: Sequence[int] | None = None,
    ) -> Floats:
        """Append new tokens to every sequence (prefill, or a decode step of one token each) and return logits.

        wanted: for how many of its last tokens each sequence gets logits; by default one. Out: (Σ wanted, n_vocab),
        sequence by sequence.
        """
        assert self.decoder is not None
        with self.lock:
            lengths = [cache.length for cache in caches]
            check_lengths(tokens, self.decoder.vocabulary, min(capacity, self.max_positions), lengths)
            try:
                return self._forward(self.decoder, caches, tokens, capacity, sources, wanted or [1] * len(caches))
            except BaseException:  # also Ctrl-C: the keys and values of the new tokens may be incomplete
                for cache, length in zip(caches, lengths, strict=True):
                    cache.truncate(length)
                raise

    def _forward(
        self,
        program: LoadedProgram,
        caches: Sequence[KVCache],
        tokens: Sequence[Sequence[int]],
        capacity: int,
        sources: "Sequence[Source] | None",
        wanted: Sequence[int],
    ) -> Floats:
        n_vocab, rows, max_rows = program.width, program.rows, program.plan.max_rows
        out = np.empty((sum(wanted), up(n_vocab)), np.float32)
        program.extend_rotary_tables(capacity)
        rows.struct.capacity, rows.struct.logits_stride = capacity, up(n_vocab)
        rows.struct.source_capacity = sources[0].capacity if sources else 0
        filled = chosen = done = 0
        for i, (cache, ids) in enumerate(zip(caches, tokens, strict=True)):
            assert len(ids), "a sequence without new tokens"
            assert wanted[i] <= len(ids), "logits of more tokens were requested than are computed"
            left = list(ids)
            while left:
                now, left = left[: max_rows - filled], left[max_rows - filled :]
                here = slice(filled, filled + len(now))
                rows.ids[here], rows.caches[here] = now, cache.pointer
                rows.positions[here] = np.arange(cache.length, cache.length + len(now))
                if sources:
                    rows.sources[here], rows.lengths[here] = sources[i].pointer, sources[i].length
                cache.ids += now
                filled += len(now)
                last = min(len(now), max(0, wanted[i] - len(left)))  # of these rows, the last `last` need logits
                rows.wanted[chosen : chosen + last] = np.arange(filled - last, filled)
                chosen += last
                if filled == max_rows or (i + 1 == len(caches) and not left):
                    rows.struct.logits = out.ctypes.data + 4 * up(n_vocab) * done
                    program.run(filled, chosen)
                    done, filled, chosen = done + chosen, 0, 0
        return out[:, :n_vocab]

    def states(self, rows: Sequence[Sequence[int]]) -> Iterator[Floats]:
        """The last states of each sequence, (N, d); for a model that is an encoder only."""
        assert self.encoder is not None
        assert self.cross_layout is None
        check_lengths(rows, self.encoder.vocabulary, self.encoder.limit)
        return (states for group in self._groups(rows) for states in self._encode(group, None))

    def encode_sources(self, rows: Sequence[Sequence[int]]) -> "list[Source]":
        """Encode each sequence: the keys and values for the decoder's cross attention."""
        assert self.encoder is not None
        assert self.cross_layout is not None
        check_lengths(rows, self.encoder.vocabulary, self.encoder.limit)
        capacity = up(max(map(len, rows)), 32)
        made = [Source(self.cache_bytes(self.cross_layout, capacity), capacity, len(row)) for row in rows]
        left = iter(made)
        for group in self._groups(rows):
            self._encode(group, list(islice(left, len(group))))
        return made

    def _groups(self, rows: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Split sequences into batches that fit the plan's rows."""
        assert self.encoder is not None
        group, size = list[Sequence[int]](), 0
        for row in rows:
            if size + len(row) > self.encoder.plan.max_rows:
                yield group
                group, size = [], 0
            group.append(row)
            size += len(row)
        yield group

    def _encode(self, sequences: list[Sequence[int]], sources: "list[Source] | None") -> list[Floats]:
        """Run the encoder on one batch. Returns each sequence's states, or fills `sources` and returns nothing."""
        assert self.encoder is not None
        capacity = up(max(map(len, sequences)), 32)
        size = self.cache_bytes(self.encoder_layout, capacity)
        lengths = [len(ids) for ids in sequences]
        total = sum(lengths)
        with self.lock:
            program, r = self.encoder, self.encoder.rows
            program.extend_rotary_tables(capacity)
            if self.encoder_cache.size < len(sequences) * size:
                self.encoder_cache = zeros(len(sequences) * size, dtype=np.uint8)
            first = self.encoder_cache.ctypes.data
            r.struct.capacity, r.struct.source_capacity = capacity, sources[0].capacity if sources else 0
            r.ids[:total] = np.concatenate([np.asarray(ids, np.int32) for ids in sequences])
            r.positions[:total] = np.concatenate([np.arange(n) for n in lengths])
            r.visible[:total] = np.repeat(lengths, lengths)
            r.caches[:total] = np.repeat(first + size * np.arange(len(sequences), dtype=np.uint64), lengths)
            if sources:
                r.sources[:total] = np.repeat(np.array([s.pointer for s in sources], np.uint64), lengths)
            program.run(total)
            states = None if program.states is None else program.states[:total, : program.width].copy()
        return [] if states is None else np.split(states, np.cumsum(lengths)[:-1])


class Source:
    """An encoded source sequence: its keys and values for every cross attention of the decoder."""

    def __init__(self, size: int, capacity: int, length: int) -> None:
        self.memory = zeros(size, dtype=np.uint8)
        self.pointer: int = self.memory.ctypes.data
        self.capacity, self.length = capacity, length


class NativeDecoder:
    """A `Decoder` on the native engine: a KV cache per row, with capacity for `max_new_tokens` after the prompt."""

    def __init__(self, engine: NativeEngine, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        self.engine, self.prompts = engine, prompts
        self.capacity = up(max(map(len, prompts)) + max_new_tokens, 32)
        self.caches = list[KVCache]()
        self.sources: list[Source] | None = None

    @property
    def max_length(self) -> int:
        """Tokens that a row may have, draft tokens included: the cache's capacity may exceed the model's positions."""
        return min(self.capacity, self.engine.max_positions)

    def prefill(self) -> Floats:
        if len(self.prompts) == 1 and not self.sources:
            self.caches = [self.engine.cache_for(self, self.prompts[0], self.capacity)]
            self.capacity = self.caches[0].capacity
        else:
            self.caches = [self.engine.new_cache(self.capacity) for _ in self.prompts]
        new = [ids[cache.length :] for cache, ids in zip(self.caches, self.prompts, strict=True)]
        return self.engine.forward(self.caches, new, self.capacity, self.sources)

    def step(self, ids: Sequence[int]) -> Floats:
        return self.engine.forward(self.caches, [[id] for id in ids], self.capacity, self.sources)

    def extend(self, tokens: Sequence[Sequence[int]]) -> list[Floats]:
        """Append several tokens to every row; for each row, the logits after each of them: (its tokens, n_vocab)."""
        sizes = [len(ids) for ids in tokens]
        logits = self.engine.forward(self.caches, tokens, self.capacity, self.sources, sizes)
        return np.split(logits, np.cumsum(sizes)[:-1])

    def truncate(self, lengths: Sequence[int]) -> None:
        """Cut each row's KV cache to its first `length` tokens, after draft tokens were rejected."""
        for cache, length in zip(self.caches, lengths, strict=True):
            cache.truncate(length)

    def pick(self, rows: Sequence[int]) -> None:
        """Keep (and repeat) these rows: the first to continue a row takes its KV cache, others copy it into a freed one."""
        kept, spare = set[int](), [cache for i, cache in enumerate(self.caches) if i not in set(rows)]
        picked = list[KVCache]()
        for row in rows:
            if row not in kept:
                kept.add(row)
                picked.append(self.caches[row])
                continue
            cache = spare.pop() if spare else self.engine.new_cache(self.capacity)
            self.engine.copy_prefix(self.caches[row], cache, self.caches[row].length)
            picked.append(cache)
        self.caches = picked
        self.sources = None if self.sources is None else [self.sources[row] for row in rows]


class NativeTranslator(NativeDecoder):
    """A `Decoder` of an encoder-decoder on the native engine: each source is encoded once, and its beams share it."""

    def __init__(
        self,
        engine: NativeEngine,
        sources: Sequence[Sequence[int]],
        starts: Sequence[Sequence[int]],
        max_new_tokens: int,
    ) -> None:
        super().__init__(engine, starts, max_new_tokens)
        self.sources = engine.encode_sources(sources)
