"""The native engine for one model: its plans, its threads, and the caches of the texts it reads and writes.

`FastDecoder` and `FastTranslator` do what `Decoder` and `Translator` do, without padding: every text is rows of its own,
with a cache of its own, and texts of all lengths go through together. What a text gives does not depend, to the last
bit, on what else is in the batch.
"""

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from regard.engine.ids import check_texts
from regard.engine.native import library as c
from regard.engine.native.library import library
from regard.engine.packing import Arena, Progress, up
from regard.engine.pages import zeros
from regard.engine.plan import MAX_ROWS, Builder, Plan
from regard.engine.positions import rotations
from regard.engine.rank import Floats
from regard.engine.threads import threads as threads_now
from regard.engine.weights import Weights
from regard.errors import ConfigError
from regard.model.shapes import shapes
from regard.model.spec import Spec, StackSpec

MOST_THREADS = 64
CACHES = ("F32", "F16", "Q8_0")


class Text:
    """Keys and values of one text, and the ids that have been read of it."""

    def __init__(self, size: int, capacity: int) -> None:
        self.memory = zeros(size, dtype=np.uint8)
        self.pointer: int = self.memory.ctypes.data
        self.capacity = capacity
        self.ids: list[int] = []
        self.user: Callable[[], object | None] = lambda: None  # who is writing it, as long as that one lives

    @property
    def length(self) -> int:
        return len(self.ids)

    def cut(self, length: int) -> None:
        """Forget what stands behind the first so many tokens."""
        assert length <= self.length
        del self.ids[length:]


def common(a: Sequence[int], b: Sequence[int], most: int) -> int:
    """How many of the first `most` are equal."""
    return next((i for i in range(most) if a[i] != b[i]), most)


class Rows:
    """The arrays of a batch, filled in place."""

    def __init__(self, most: int) -> None:
        self.ids, self.positions, self.visible, self.lengths, self.wanted = (
            zeros(most, dtype=np.int32) for _ in "12345"
        )
        self.texts, self.sources = (zeros(most, dtype=np.uint64) for _ in "12")
        self.struct = c.Batch(
            ids=self.ids.ctypes.data,
            positions=self.positions.ctypes.data,
            visible=self.visible.ctypes.data,
            texts=self.texts.ctypes.data,
            sources=self.sources.ctypes.data,
            source_lengths=self.lengths.ctypes.data,
            wanted_rows=self.wanted.ctypes.data,
        )


class Side:
    """A stack as the engine runs it: its plan, the rows that go through, and where they end up."""

    def __init__(self, builder: Builder, stack: StackSpec, X: Floats, threads: int) -> None:
        self.plan, self.threads = Plan(builder, threads, stack.attention.d_k), threads
        self.rows, self.states = Rows(builder.max_rows), X
        self.stack, self.turns = stack, stack.positions.kind == "rotary"
        self.cosines = self.sines = np.zeros((0, 0), np.float32)

    def turn_until(self, capacity: int) -> None:
        """Rotary angles for so many positions."""
        if self.turns and len(self.cosines) < capacity:
            self.cosines, self.sines = rotations(self.stack, up(capacity, 1024))
            self.rows.struct.cosines, self.rows.struct.sines = self.cosines.ctypes.data, self.sines.ctypes.data
            self.rows.struct.angles = len(self.cosines)

    def run(self, rows: int, wanted: int = 0) -> None:
        """How many threads it takes does not change a bit of the result."""
        self.rows.struct.rows, self.rows.struct.wanted = rows, wanted
        self.plan.struct.threads = min(threads_now(), self.threads)
        self.plan.run(self.rows.struct)


class Engine:
    """Packs the weights when made, and does something else `meanwhile`.

    cache: the number format of keys and values, one of CACHES.
    """

    def __init__(
        self,
        spec: Spec,
        weights: Weights,
        *,
        threads: int | None = None,
        cache: str = "F32",
        max_rows: int = MAX_ROWS,
        progress: Progress | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        native = library()
        assert native is not None
        self.native, self.spec, self.cache = native, spec, cache
        self.threads = min(threads or os.cpu_count() or 1, MOST_THREADS)
        self.lock = threading.Lock()
        self.last: Text | None = None  # the text begun last on its own: a conversation goes on where it was
        self.arena = Arena(native)
        builders = list[Builder]()
        self.crossed: c.Cache | None = None
        self.reader: Side | None = None
        self.writer: Side | None = None
        if spec.encoder and spec.decoder:
            self.crossed = self._cache(spec.decoder, spec.decoder.n_layers)
        if spec.encoder:
            self.read = self._cache(spec.encoder, 1)  # a layer's keys and values, forgotten after it
            self.desk = zeros(0, dtype=np.uint8)  # where they lie
            builder = Builder(native, self.arena, weights, spec, max(max_rows, spec.source_context))
            builders.append(builder)
            self.reader = Side(builder, spec.encoder, self._plan_reading(builder, spec.encoder), self.threads)
        if spec.decoder:
            self.written = self._cache(spec.decoder, spec.decoder.n_layers)
            positions = spec.decoder.positions
            self.writer_limit = sys.maxsize if positions.kind == "rotary" else positions.limit  # rows of their table
            builder = Builder(native, self.arena, weights, spec, max_rows)
            builders.append(builder)
            self.writer = Side(builder, spec.decoder, self._plan_writing(builder, spec.decoder), self.threads)
        refuse_unread(spec, weights, set[str]().union(*(builder.read_names for builder in builders)))
        self.arena.fill(progress, meanwhile)

    def _cache(self, stack: StackSpec, layers: int) -> c.Cache:
        a = stack.attention
        return c.Cache(c.FORMATS.index(self.cache), a.kv_heads, a.d_k, up(a.d_k), layers, 0)

    def _plan_reading(self, b: Builder, stack: StackSpec) -> Floats:
        """ids → the encoder's states, and for a decoder the keys and values of its every cross attention."""
        whole = self.crossed is None
        X = b.embed("embed" if whole else "encoder.embed", stack)
        for i in range(stack.n_layers):
            X = b.block(f"encoder.{i}", X, i, stack, self.read, None)
        if stack.final_norm:
            b.norm("final_norm" if whole else "encoder.final_norm", X, stack)
        if self.crossed is not None and self.spec.decoder is not None:
            for i in range(self.spec.decoder.n_layers):
                b.remember(f"decoder.{i}.cross", X, i, self.spec.decoder, self.crossed)
        return X

    def _plan_writing(self, b: Builder, stack: StackSpec) -> Floats:
        """ids → the logits of what follows the wanted rows."""
        whole = self.crossed is None
        X = b.embed("embed" if whole else "decoder.embed", stack)
        for i in range(stack.n_layers):
            last = whole and i == stack.n_layers - 1
            X = b.block(f"decoder.{i}", X, i, stack, self.written, self.crossed, last)
        if not whole:
            X = b.pick(X)
        final = ("final_norm" if whole else "decoder.final_norm") if stack.final_norm else None
        b.product(X, None, "unembed", norm=final, stack=stack)
        return X

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def text_bytes(self, layout: c.Cache, capacity: int) -> int:
        return int(self.native.regard_text_bytes(layout, capacity))

    def text(self, room: int) -> Text:
        """An empty text with room for so many tokens."""
        capacity = up(room, 32)
        return Text(self.text_bytes(self.written, capacity), capacity)

    def copy(self, text: Text, to: Text, length: int) -> None:
        """The first `length` tokens of a text become those of another."""
        with self.lock:
            self._copy(text, to, length)

    def _copy(self, text: Text, to: Text, length: int) -> None:
        sizes = to.pointer, to.capacity, text.pointer, text.capacity, length
        self.native.regard_fork(ctypes.byref(self.written), *sizes)
        to.ids = text.ids[:length]

    def begin(self, user: object, ids: Sequence[int], room: int) -> Text:
        """A text that holds what `ids`, but for the last, have in common with the text begun before it. If nobody is
        writing that one any more, and it has the room and not twice as much, it is that one: nothing is copied."""
        with self.lock:
            before, capacity = self.last, up(room, 32)
            same = 0 if before is None else common(before.ids, ids, min(before.length, len(ids) - 1))
            if before is not None and before.user() is None and capacity <= before.capacity < 2 * capacity:
                text = before
                text.cut(same)
            else:
                text = self.text(room)
                if before is not None and same:
                    self._copy(before, text, same)
            text.user, self.last = weakref.ref(user), text
        return text

    def write(
        self,
        texts: Sequence[Text],
        tokens: Sequence[Sequence[int]],
        capacity: int,
        sources: "Sequence[Source] | None" = None,
        wanted: Sequence[int] | None = None,
    ) -> Floats:
        """Read new tokens of every text; logits of what follows its last `wanted` tokens, one unless told: (Σ wanted,
        n_vocab), text after text."""
        assert self.writer is not None
        with self.lock:
            lengths = [text.length for text in texts]
            check_texts(tokens, self.spec.n_vocab, min(capacity, self.writer_limit), lengths)
            try:
                return self._write(self.writer, texts, tokens, capacity, sources, wanted or [1] * len(texts))
            except BaseException:  # Ctrl-C: what was not read to its end is not known
                for text, length in zip(texts, lengths, strict=True):
                    text.cut(length)
                raise

    def _write(
        self,
        side: Side,
        texts: Sequence[Text],
        tokens: Sequence[Sequence[int]],
        capacity: int,
        sources: "Sequence[Source] | None",
        wanted: Sequence[int],
    ) -> Floats:
        n_vocab, rows = self.spec.n_vocab, side.rows
        out = np.empty((sum(wanted), up(n_vocab)), np.float32)
        side.turn_until(capacity)
        rows.struct.capacity, rows.struct.logits_stride = capacity, up(n_vocab)
        rows.struct.source_capacity = sources[0].capacity if sources else 0
        filled = chosen = done = 0
        for i, (text, ids) in enumerate(zip(texts, tokens, strict=True)):
            assert len(ids), "a text without new tokens"
            assert wanted[i] <= len(ids), "more was asked about than is read"
            left = list(ids)
            while left:
                now, left = left[: side.plan.max_rows - filled], left[side.plan.max_rows - filled :]
                here = slice(filled, filled + len(now))
                rows.ids[here], rows.texts[here] = now, text.pointer
                rows.positions[here] = np.arange(text.length, text.length + len(now))
                if sources:
                    rows.sources[here], rows.lengths[here] = sources[i].pointer, sources[i].length
                text.ids += now
                filled += len(now)
                last = min(len(now), max(0, wanted[i] - len(left)))  # of these rows, so many are wanted
                rows.wanted[chosen : chosen + last] = np.arange(filled - last, filled)
                chosen += last
                if filled == side.plan.max_rows or (i + 1 == len(texts) and not left):
                    rows.struct.logits = out.ctypes.data + 4 * up(n_vocab) * done
                    side.run(filled, chosen)
                    done, filled, chosen = done + chosen, 0, 0
        return out[:, :n_vocab]

    def states(self, rows: Sequence[Sequence[int]]) -> Iterator[Floats]:
        """The states of each text, (N, d), of an encoder on its own."""
        assert self.crossed is None
        check_texts(rows, self.spec.source_vocab, self.spec.source_context)
        return (states for group in self._groups(rows) for states in self._encode(group, None))

    def sources(self, rows: Sequence[Sequence[int]]) -> "list[Source]":
        """Each text read, for a decoder to look up."""
        assert self.crossed is not None
        check_texts(rows, self.spec.source_vocab, self.spec.source_context)
        capacity = up(max(map(len, rows)), 32)
        made = [Source(self.text_bytes(self.crossed, capacity), capacity, len(row)) for row in rows]
        left = iter(made)
        for group in self._groups(rows):
            self._encode(group, list(islice(left, len(group))))
        return made

    def _groups(self, rows: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Texts that go through together."""
        assert self.reader is not None
        group, size = list[Sequence[int]](), 0
        for row in rows:
            if size + len(row) > self.reader.plan.max_rows:
                yield group
                group, size = [], 0
            group.append(row)
            size += len(row)
        yield group

    def _encode(self, texts: list[Sequence[int]], sources: "list[Source] | None") -> list[Floats]:
        assert self.reader is not None
        capacity = up(max(map(len, texts)), 32)
        size = self.text_bytes(self.read, capacity)
        lengths = [len(text) for text in texts]
        total = sum(lengths)
        with self.lock:
            side, r = self.reader, self.reader.rows
            side.turn_until(capacity)
            if self.desk.size < len(texts) * size:
                self.desk = zeros(len(texts) * size, dtype=np.uint8)
            r.struct.capacity, r.struct.source_capacity = capacity, sources[0].capacity if sources else 0
            r.ids[:total] = np.concatenate([np.asarray(text, np.int32) for text in texts])
            r.positions[:total] = np.concatenate([np.arange(n) for n in lengths])
            r.visible[:total] = np.repeat(lengths, lengths)
            r.texts[:total] = np.repeat(self.desk.ctypes.data + size * np.arange(len(texts), dtype=np.uint64), lengths)
            if sources:
                r.sources[:total] = np.repeat(np.array([s.pointer for s in sources], np.uint64), lengths)
            side.run(total)
            states = side.states[:total, : self.spec.d].copy()
        return np.split(states, np.cumsum(lengths)[:-1])


def refuse_unread(spec: Spec, weights: Weights, read_names: set[str]) -> None:
    """A parameter that no step reads means that the plan is of another network. Heads other than lm are PyTorch's."""
    unread = [name for name in shapes(spec) if weights.one_name(name) not in read_names]
    if spec.decoder is None:
        unread = [name for name in unread if name.partition(".")[0] not in ("head", "pooler", "unembed")]
    if unread:
        raise ConfigError(f"The native engine has no step that reads {unread[0]}; load with engine='torch'.")


class Source:
    """What an encoder made of one text: the keys and values of every cross attention."""

    def __init__(self, size: int, capacity: int, length: int) -> None:
        self.memory = zeros(size, dtype=np.uint8)
        self.pointer: int = self.memory.ctypes.data
        self.capacity, self.length = capacity, length


class FastDecoder:
    """`Decoder` on the native engine."""

    def __init__(self, engine: Engine, prompts: Sequence[Sequence[int]], room: int) -> None:
        self.engine, self.prompts = engine, prompts
        self.capacity = up(max(map(len, prompts)) + room, 32)
        self.texts = list[Text]()
        self.sources: list[Source] | None = None

    @property
    def longest(self) -> int:
        """Tokens that a row may have, guesses among them: a cache may have room for more than there are positions."""
        return min(self.capacity, self.engine.writer_limit)

    def start(self) -> Floats:
        if len(self.prompts) == 1 and not self.sources:
            self.texts = [self.engine.begin(self, self.prompts[0], self.capacity)]
            self.capacity = self.texts[0].capacity
        else:
            self.texts = [self.engine.text(self.capacity) for _ in self.prompts]
        new = [ids[text.length :] for text, ids in zip(self.texts, self.prompts, strict=True)]
        return self.engine.write(self.texts, new, self.capacity, self.sources)

    def step(self, ids: Sequence[int]) -> Floats:
        return self.engine.write(self.texts, [[id] for id in ids], self.capacity, self.sources)

    def read(self, tokens: Sequence[Sequence[int]]) -> list[Floats]:
        """Append several tokens to every row; for each row, the logits of what follows each: (its tokens, n_vocab)."""
        sizes = [len(ids) for ids in tokens]
        logits = self.engine.write(self.texts, tokens, self.capacity, self.sources, sizes)
        return np.split(logits, np.cumsum(sizes)[:-1])

    def cut(self, lengths: Sequence[int]) -> None:
        """Forget what stands behind the first so many tokens of every row."""
        for text, length in zip(self.texts, lengths, strict=True):
            text.cut(length)

    def pick(self, rows: Sequence[int]) -> None:
        """The first to continue a text keeps its cache; others get a copy, in the memory of those given up."""
        kept, spare = set[int](), [text for i, text in enumerate(self.texts) if i not in set(rows)]
        picked = list[Text]()
        for row in rows:
            if row not in kept:
                kept.add(row)
                picked.append(self.texts[row])
                continue
            text = spare.pop() if spare else self.engine.text(self.capacity)
            self.engine.copy(self.texts[row], text, self.texts[row].length)
            picked.append(text)
        self.texts = picked
        self.sources = None if self.sources is None else [self.sources[row] for row in rows]


class FastTranslator(FastDecoder):
    """`Translator` on the native engine: the sources are read once; beams of one source share what was read."""

    def __init__(
        self, engine: Engine, sources: Sequence[Sequence[int]], starts: Sequence[Sequence[int]], room: int
    ) -> None:
        super().__init__(engine, starts, room)
        self.sources = engine.sources(sources)
