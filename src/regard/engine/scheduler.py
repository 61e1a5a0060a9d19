"""Continuous batching: many requests are decoded in one batch, and each joins and leaves between two steps.

In: requests, a `RowState` per answer. Out: their tokens as they are chosen and their answers, reported to the callback of
each request. One thread runs all of it. A step is one forward pass: the newest token of every sequence that is being
decoded, and at most one chunk of prefill in all, so that a long prompt delays no other request; then each row chooses
its next token with its own settings and its own random numbers.

- **Law: a request's tokens and log-probabilities are, to the bit, those it gives when served alone.** Rows share no sum
  (slots.py says how), no setting and no random number; and a prompt is cut into the same chunks whatever part of it was
  cached.
- Admission is first come, first served, into a fixed number of slots; up to `queue` further requests wait, and beyond that
  a request is refused with `QueueFull`. Memory is bounded by the slots and their capacity: `slots.max_bytes`.
- Prefix caching: a slot whose request is over keeps its KV cache until the slot is needed. A prompt that starts like the
  sequence in any slot, also one in use, reuses that prefix of the KV cache instead of computing it again.
- A request that is cancelled leaves before the next step. One that fails, fails alone.
"""

import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

import numpy as np

from regard.engine.generate import Answer, TextWriter, Token
from regard.engine.native_engine import common_prefix
from regard.engine.sampling import RowState, next_ids, top_logprobs
from regard.engine.slots import SlotInput, Slots
from regard.engine.threads import use_threads
from regard.engine.top_k import Floats
from regard.errors import RegardError
from regard.text.tokenizer import Tokenizer

Event = Token | Answer | Exception  # the last event of an answer is an Answer, or the error that ended it
OnEvent = Callable[[int, Event], None]  # callback, in the scheduler's thread: index of the answer in its request, event

log = logging.getLogger("regard")


class QueueFull(RegardError):
    """All slots are in use and the queue is full; `seconds` is an estimate of when to try again."""

    def __init__(self, message: str, seconds: int) -> None:
        super().__init__(message)
        self.seconds = seconds


class SchedulerClosed(RegardError):
    """The scheduler takes no more requests."""


@dataclass
class Counts:
    """Totals since the start, and the current numbers of slots, busy slots and waiting requests."""

    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    refused: int = 0
    steps: int = 0
    prompt_tokens: int = 0  # of requests that were admitted to a slot
    reused_tokens: int = 0  # of these, those found in a KV cache (prefix caching)
    generated_tokens: int = 0
    slots: int = 0
    busy: int = 0
    waiting: int = 0


@dataclass
class Ticket:
    """Handle of an accepted request, to cancel it."""

    cancelled: bool = False

    def cancel(self) -> None:
        """From the next step on no events are reported, and the request's slots are free."""
        self.cancelled = True


@dataclass
class PendingAnswer:
    """One answer of a request, waiting or running."""

    row: RowState
    writer: TextWriter
    index: int
    on_event: OnEvent
    alternatives: int
    ticket: Ticket
    prompt: list[int]
    begun: float = 0.0
    turn: int = 0  # among prompts being prefilled, the lowest is next
    decoding: bool = False  # prefill is complete


@dataclass
class Slot:
    """A slot: the ids in its KV cache, and the answer that is being generated in it."""

    index: int
    ids: list[int] = field(default_factory=list)
    reusable: int = 0  # length of the prefix that another sequence may reuse
    job: PendingAnswer | None = None
    used: int = 0  # when a request was last admitted to it (a counter, not a time)


class Scheduler:
    """Runs requests by continuous batching, in a thread of its own.

    queue: answers that may wait in addition to those in the slots. threads: number of threads for this scheduler's steps.
    """

    def __init__(
        self, slots: Slots, tokenizer: Tokenizer | None = None, *, queue: int = 64, threads: int | None = None
    ) -> None:
        self.slots, self.tokenizer, self.queue, self.threads = slots, tokenizer, queue, threads
        self._slots = [Slot(slot) for slot in range(slots.n_slots)]
        self._waiting: deque[PendingAnswer] = deque()
        self._counts = Counts(slots=slots.n_slots)
        self._clock = itertools.count(1)
        self._seconds = 1.0  # moving average of the time per answer
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="regard-scheduler", daemon=True)
        self._thread.start()

    # ── for callers, from any thread ────────────────────────────────────────────────────────────────────────────────

    def submit(self, rows: Sequence[RowState], on_event: OnEvent, *, alternatives: int = 0) -> Ticket:
        """Enqueue all of these rows; if the queue has no space for all, enqueue none and raise `QueueFull`.

        alternatives: how many of the most likely tokens each `Token` lists.
        """
        ticket = Ticket()
        jobs = [
            PendingAnswer(
                row, TextWriter(self.tokenizer, row.settings), i, on_event, alternatives, ticket, list(row.ids)
            )
            for i, row in enumerate(rows)
        ]
        empty, wanted = [job for job in jobs if job.row.done], [job for job in jobs if not job.row.done]
        for job in wanted:
            assert job.row.limit is not None
            assert 0 < len(job.prompt) <= self.slots.capacity - job.row.limit, "a request must fit its slot's capacity"
        with self._wake:
            if self._closing:
                raise SchedulerClosed("The scheduler is shutting down and accepts no more requests.")
            self._check_capacity(len(wanted))
            self._waiting.extend(wanted)
            self._wake.notify()
        for job in empty:
            on_event(job.index, Answer("", [], [], "length"))
        return ticket

    def check_capacity(self, answers: int) -> None:
        """Raise `QueueFull` if so many answers could not be submitted now: a check before any other work is done."""
        with self._wake:
            self._check_capacity(answers)

    def _check_capacity(self, answers: int) -> None:
        if answers > len(self._slots) + self.queue - self._busy() - self._queued():
            self._counts.refused += 1
            raise QueueFull("All slots are busy and the queue is full: try again in a moment.", self._retry_after())

    def answers(self, rows: Sequence[RowState], *, alternatives: int = 0) -> list[Answer]:
        """Submit the rows and wait for all of their answers."""
        events: SimpleQueue[tuple[int, Event]] = SimpleQueue()
        self.submit(rows, lambda index, event: events.put((index, event)), alternatives=alternatives)
        done: dict[int, Answer] = {}
        while len(done) < len(rows):
            index, event = events.get()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Answer):
                done[index] = event
        return [done[i] for i in range(len(rows))]

    def counts(self) -> Counts:
        with self._wake:
            return replace(self._counts, busy=self._busy(), waiting=self._queued())

    def close(self, *, wait: bool = True) -> None:
        """Accept no more requests; those already accepted are completed."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _busy(self) -> int:
        jobs = [slot.job for slot in self._slots]
        return sum(job is not None and not job.ticket.cancelled for job in jobs)

    def _queued(self) -> int:
        return sum(not job.ticket.cancelled for job in self._waiting)

    def _retry_after(self) -> int:
        """Seconds, roughly, until a slot is free for a new request."""
        rounds = (self._queued() + 1) / len(self._slots)
        return min(max(math.ceil(self._seconds * rounds), 1), 60)

    # ── the scheduler's thread, the only one that touches the slots ─────────────────────────────────────────────────

    def _run(self) -> None:
        if self.threads:
            use_threads(self.threads)
        while self._ready():
            try:
                self._step()
            except Exception as problem:  # a bug: all running requests fail, and the scheduler continues with the next
                log.error("A scheduler step failed: %s.", type(problem).__name__)
                log.debug("traceback of the failed step", exc_info=problem)
                for slot in self._slots:
                    self._fail(slot, problem)
        for slot in self._slots:
            self.slots.free(slot.index)

    def _ready(self) -> bool:
        """Wait until a request is in a slot; False once the scheduler is closed and empty."""
        with self._wake:
            while True:
                self._drop_cancelled()
                self._admit()
                if any(slot.job is not None for slot in self._slots):
                    return True
                if self._closing:
                    return False
                self._wake.wait()

    def _drop_cancelled(self) -> None:
        left = deque(job for job in self._waiting if not job.ticket.cancelled)
        self._counts.cancelled += len(self._waiting) - len(left)
        self._waiting = left
        for slot in self._slots:
            if slot.job is not None and slot.job.ticket.cancelled:
                self._counts.cancelled += 1
                slot.job = None

    def _admit(self) -> None:
        """Admit waiting requests, oldest first: each into the free slot whose KV cache holds the longest prefix of its
        prompt, else into the least recently used one. What else that slot's KV cache holds is evicted."""
        while self._waiting and (free := [slot for slot in self._slots if slot.job is None]):
            job = self._waiting.popleft()
            slot = max(free, key=lambda slot: (self._reusable_prefix(slot, job.prompt), -slot.used))
            kept = self._reusable_prefix(slot, job.prompt)
            self.slots.share(slot.index, slot.index, kept)
            slot.ids, slot.reusable = slot.ids[:kept], kept
            slot.job, job.begun = job, time.monotonic()
            slot.used = job.turn = next(self._clock)
            self._counts.prompt_tokens += len(job.prompt)
            self._counts.reused_tokens += kept

    def _reusable_prefix(self, slot: Slot, prompt: list[int]) -> int:
        """The length of the prompt's prefix, never all of it, that the slot's KV cache holds to the bit as the prompt's own
        prefill would compute it."""
        limit = min(slot.reusable, len(prompt) - 1)
        same = limit if slot.ids[:limit] == prompt[:limit] else common_prefix(slot.ids, prompt, limit)
        return same if self.slots.chunk_invariant else same - same % self.slots.chunk

    # ── a step ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        self._counts.steps += 1
        jobs = [(slot, slot.job) for slot in self._slots if slot.job is not None]
        pieces = [SlotInput(slot.index, job.row.ids[-1:], True) for slot, job in jobs if job.decoding]
        pieces += self._prefill_chunks([pair for pair in jobs if not pair[1].decoding])
        ready, logits = self._feed(pieces)
        if ready:
            self._choose(ready, logits)

    def _prefill_chunks(self, line: list[tuple[Slot, PendingAnswer]]) -> list[SlotInput]:
        """The prefill of this step: one chunk in all, of the prompts whose turn it is. Of prompts with the same next chunk
        only one is prefilled: the others then reuse its KV cache."""
        left, now, pieces = self.slots.chunk, list[list[int]](), list[SlotInput]()
        for slot, job in sorted(line, key=lambda pair: pair[1].turn):
            if not left:
                break
            end = len(slot.ids) + self.slots.chunk
            if end < len(job.prompt) and any(prompt[:end] == job.prompt[:end] for prompt in now):
                continue
            try:
                piece = self._prefill_chunk(slot, job, left)
            except Exception as problem:
                self._fail(slot, problem)
                continue
            if piece is not None:
                job.turn = next(self._clock)  # round robin
                now.append(job.prompt)
                pieces.append(piece)
                left -= len(piece.ids)
        return pieces

    def _prefill_chunk(self, slot: Slot, job: PendingAnswer, max_tokens: int) -> SlotInput | None:
        """The next chunk of a prompt, after copying what any other slot's KV cache already holds of it."""
        begin = len(slot.ids)
        source = max(
            self._slots, key=lambda other: self._reusable_prefix(other, job.prompt) if other is not slot else 0
        )
        reach = 0 if source is slot else self._reusable_prefix(source, job.prompt)
        if reach > begin:
            self.slots.share(source.index, slot.index, reach)
            slot.ids, slot.reusable = job.prompt[:reach], reach
            self._counts.reused_tokens += reach - begin
            begin = reach
        size = min(self.slots.chunk, len(job.prompt) - begin)
        if size > max_tokens:  # cutting it elsewhere than when served alone must not change a bit
            size = max_tokens if self.slots.chunk_invariant else 0
        end = begin + size
        return SlotInput(slot.index, job.prompt[begin:end], end == len(job.prompt)) if size else None

    def _feed(self, pieces: list[SlotInput]) -> tuple[list[Slot], Floats]:
        """Run one forward pass: the slots that get logits, and the logits. If it fails, each piece is run alone, to find
        the one at fault."""
        try:
            fed, logits = pieces, self.slots.feed(pieces)
        except Exception:
            fed, rows = [], list[Floats]()
            for piece in pieces:
                slot = self._slots[piece.slot]
                try:
                    self.slots.share(piece.slot, piece.slot, len(slot.ids))
                    rows.append(self.slots.feed([piece]))
                    fed.append(piece)
                except Exception as problem:
                    self._fail(slot, problem)
            logits = np.concatenate(rows) if rows else np.empty((0, 0), np.float32)
        for piece in fed:
            self._record(self._slots[piece.slot], piece.ids)
        return [self._slots[piece.slot] for piece in fed if piece.wanted], logits

    def _record(self, slot: Slot, ids: Sequence[int]) -> None:
        """Note that these ids are in the slot's KV cache, and whether other sequences may reuse them: only whole chunks of
        prefill, unless the slots are `chunk_invariant`."""
        whole = len(ids) == self.slots.chunk and slot.reusable == len(slot.ids)
        slot.ids.extend(ids)
        if self.slots.chunk_invariant or whole:
            slot.reusable = len(slot.ids)

    def _choose(self, slots: list[Slot], logits: Floats) -> None:
        """Choose the next token of every row and report it."""
        running = [(slot, slot.job) for slot in slots if slot.job is not None]
        chosen: list[tuple[int, float]] | None = None
        try:
            ids, logprobs = next_ids(logits, [job.row for _, job in running])
            chosen = list(zip(ids.tolist(), logprobs.tolist(), strict=True))
        except RegardError:  # no row was changed: choosing one by one finds the row that cannot
            pass
        for i, (slot, job) in enumerate(running):
            row = logits[i : i + 1]
            try:
                id, logprob = chosen[i] if chosen is not None else choose_alone(row, job.row)
                self._report(slot, job, id, logprob, row)
            except Exception as problem:
                self._fail(slot, problem)

    def _report(self, slot: Slot, job: PendingAnswer, id: int, logprob: float, logits: Floats) -> None:
        """Record a chosen token, call the request's callback, and free the slot if the answer is complete."""
        job.decoding = True
        text = job.writer.take(job.row, id, logprob)
        self._counts.generated_tokens += 1
        if job.ticket.cancelled:
            return
        job.on_event(job.index, Token(job.index, id, logprob, text, top_tokens(logits, job.alternatives)))
        if job.row.done:
            slot.job = None
            self._counts.finished += 1
            self._seconds += 0.2 * (time.monotonic() - job.begun - self._seconds)
            writer = job.writer
            job.on_event(job.index, Answer(writer.text, writer.ids, writer.logprobs, job.row.finished or "length"))

    def _fail(self, slot: Slot, problem: Exception) -> None:
        """End the slot's request with an error, and evict its KV cache, which may be wrong."""
        job, slot.job, slot.ids, slot.reusable = slot.job, None, [], 0
        self.slots.free(slot.index)
        if job is None:
            return
        self._counts.failed += 1
        try:
            job.on_event(job.index, problem)
        except Exception as failed:  # the client is gone
            log.debug("the callback failed too", exc_info=failed)


def choose_alone(logits: Floats, row: RowState) -> tuple[int, float]:
    """The next id of one row, and its log-probability."""
    ids, logprobs = next_ids(logits, [row])
    return int(ids[0]), float(logprobs[0])


def top_tokens(logits: Floats, count: int) -> list[tuple[int, float]]:
    """The `count` most likely ids and their log-probabilities, most likely first."""
    if not count:
        return []
    ids, logprobs = top_logprobs(logits, count)
    return list(zip(ids[0].tolist(), logprobs[0].tolist(), strict=True))
