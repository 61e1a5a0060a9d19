"""Continuous batching: many requests written side by side, each joining and leaving between two steps.

In: requests, a `RowState` per answer wanted. Out: their tokens as they are chosen and their answers, told to whoever asked.
One thread runs all of it. A step feeds every text that is being written its newest token and reads at most a chunk of
prompts, of all of them together, so that a long prompt holds nobody up; then each row chooses with its own settings and its
own random numbers.

- **Law: a request's tokens and log-probabilities are, to the bit, those it gives when served alone.** Rows share no sum
  (`lanes.py` says how), no setting and no random number; and a prompt is cut into the same pieces whatever was kept of it.
- Admission is first come, first served, into a fixed number of slots; as many again as `queue` says may wait, and who comes
  after them is refused with `Full`. Memory is bounded by the slots and their room: `lanes.most_bytes`.
- A slot whose request is over keeps its text. A prompt that begins like a text in any slot, also one in use, takes over
  that beginning instead of reading it again.
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

from regard.engine.fast import common
from regard.engine.generate import Answer, Token, Writer
from regard.engine.lanes import Lanes, Piece
from regard.engine.rank import Floats
from regard.engine.sample import RowState, next_ids, top_logprobs
from regard.engine.threads import use_threads
from regard.errors import RegardError
from regard.text.tokenizer import Tokenizer

Event = Token | Answer | Exception  # the last one told of an answer is an Answer or what went wrong
Tell = Callable[[int, Event], None]  # called in the scheduler's thread: which of the answers wanted, and what happened

log = logging.getLogger("regard")


class Full(RegardError):
    """As many requests as there is room for are running and waiting; `seconds` is a guess at when to come again."""

    def __init__(self, sentence: str, seconds: int) -> None:
        super().__init__(sentence)
        self.seconds = seconds


class Closed(RegardError):
    """The scheduler takes no more requests."""


@dataclass
class Counts:
    """What has happened so far, and what is the case now."""

    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    refused: int = 0
    steps: int = 0
    prompt_tokens: int = 0  # of requests that were given a slot
    reused_tokens: int = 0  # of these, those whose keys and values were there already
    generated_tokens: int = 0
    slots: int = 0
    busy: int = 0
    waiting: int = 0


@dataclass
class Ticket:
    """A request that was accepted."""

    cancelled: bool = False

    def cancel(self) -> None:
        """Nothing is told from the next step on, and the slots are free."""
        self.cancelled = True


@dataclass
class Job:
    """One answer that is wanted."""

    row: RowState
    writer: Writer
    index: int
    tell: Tell
    alternatives: int
    ticket: Ticket
    prompt: list[int]
    begun: float = 0.0
    turn: int = 0  # of those that read, the lowest is next
    writing: bool = False  # the prompt has been read


@dataclass
class Lane:
    """A slot: the ids whose keys and values it holds, and who is using it."""

    slot: int
    ids: list[int] = field(default_factory=list)
    sound: int = 0  # so many of them another text may take over
    job: Job | None = None
    used: int = 0  # when it was last given to somebody


class Scheduler:
    """`queue`: requests that may wait beside those in the slots. `threads`: for this scheduler's steps."""

    def __init__(
        self, lanes: Lanes, tokenizer: Tokenizer | None = None, *, queue: int = 64, threads: int | None = None
    ) -> None:
        self.lanes, self.tokenizer, self.queue, self.threads = lanes, tokenizer, queue, threads
        self._lanes = [Lane(slot) for slot in range(lanes.slots)]
        self._waiting: deque[Job] = deque()
        self._counts = Counts(slots=lanes.slots)
        self._clock = itertools.count(1)
        self._seconds = 1.0  # an answer takes, roughly
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="regard-scheduler", daemon=True)
        self._thread.start()

    # ── for those who ask ───────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, rows: Sequence[RowState], tell: Tell, *, alternatives: int = 0) -> Ticket:
        """All of these rows or, if there is no room for them, none."""
        ticket = Ticket()
        jobs = [
            Job(row, Writer(self.tokenizer, row.settings), i, tell, alternatives, ticket, list(row.ids))
            for i, row in enumerate(rows)
        ]
        empty, wanted = [job for job in jobs if job.row.done], [job for job in jobs if not job.row.done]
        for job in wanted:
            assert job.row.limit is not None
            assert 0 < len(job.prompt) <= self.lanes.room - job.row.limit, "a request must fit into a slot"
        with self._wake:
            if self._closing:
                raise Closed("No more requests are taken, since this is about to stop.")
            self._make_sure(len(wanted))
            self._waiting.extend(wanted)
            self._wake.notify()
        for job in empty:
            tell(job.index, Answer("", [], [], "length"))
        return ticket

    def make_sure(self, answers: int) -> None:
        """Refuse, before any work is done, what there would be no room for."""
        with self._wake:
            self._make_sure(answers)

    def _make_sure(self, answers: int) -> None:
        if answers > len(self._lanes) + self.queue - self._busy() - self._queued():
            self._counts.refused += 1
            raise Full("As much is being written as there is room for: try again in a moment.", self._wait())

    def answers(self, rows: Sequence[RowState], *, alternatives: int = 0) -> list[Answer]:
        """Wait for all of them."""
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
        """Take no more requests; those that are here are still served."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _busy(self) -> int:
        jobs = [lane.job for lane in self._lanes]
        return sum(job is not None and not job.ticket.cancelled for job in jobs)

    def _queued(self) -> int:
        return sum(not job.ticket.cancelled for job in self._waiting)

    def _wait(self) -> int:
        rounds = (self._queued() + 1) / len(self._lanes)
        return min(max(math.ceil(self._seconds * rounds), 1), 60)

    # ── the thread, which alone touches the slots ───────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        if self.threads:
            use_threads(self.threads)
        while self._ready():
            try:
                self._step()
            except Exception as problem:  # a mistake of ours: whoever is here is told, and the next ones are served
                log.error("A step failed: %s.", type(problem).__name__)
                log.debug("where it failed", exc_info=problem)
                for lane in self._lanes:
                    self._fail(lane, problem)
        for lane in self._lanes:
            self.lanes.free(lane.slot)

    def _ready(self) -> bool:
        """Wait until there is somebody to serve; False if there never will be."""
        with self._wake:
            while True:
                self._drop_cancelled()
                self._admit()
                if any(lane.job is not None for lane in self._lanes):
                    return True
                if self._closing:
                    return False
                self._wake.wait()

    def _drop_cancelled(self) -> None:
        left = deque(job for job in self._waiting if not job.ticket.cancelled)
        self._counts.cancelled += len(self._waiting) - len(left)
        self._waiting = left
        for lane in self._lanes:
            if lane.job is not None and lane.job.ticket.cancelled:
                self._counts.cancelled += 1
                lane.job = None

    def _admit(self) -> None:
        """Who has waited longest gets the free slot that holds most of its prompt, else the one used longest ago."""
        while self._waiting and (free := [lane for lane in self._lanes if lane.job is None]):
            job = self._waiting.popleft()
            lane = max(free, key=lambda lane: (self._shared(lane, job.prompt), -lane.used))
            kept = self._shared(lane, job.prompt)
            self.lanes.share(lane.slot, lane.slot, kept)
            lane.ids, lane.sound = lane.ids[:kept], kept
            lane.job, job.begun = job, time.monotonic()
            lane.used = job.turn = next(self._clock)
            self._counts.prompt_tokens += len(job.prompt)
            self._counts.reused_tokens += kept

    def _shared(self, lane: Lane, prompt: list[int]) -> int:
        """How many tokens of a prompt, but never its last, a slot holds just as the prompt would have made them."""
        most = min(lane.sound, len(prompt) - 1)
        same = most if lane.ids[:most] == prompt[:most] else common(lane.ids, prompt, most)
        return same if self.lanes.seamless else same - same % self.lanes.chunk

    # ── a step ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        self._counts.steps += 1
        jobs = [(lane, lane.job) for lane in self._lanes if lane.job is not None]
        pieces = [Piece(lane.slot, job.row.ids[-1:], True) for lane, job in jobs if job.writing]
        pieces += self._next_chunks([pair for pair in jobs if not pair[1].writing])
        told, logits = self._feed(pieces)
        if told:
            self._choose(told, logits)

    def _next_chunks(self, line: list[tuple[Lane, Job]]) -> list[Piece]:
        """What is read now: a chunk in all, of those whose turn it is; no two read the same, since one can take it over."""
        left, now, pieces = self.lanes.chunk, list[list[int]](), list[Piece]()
        for lane, job in sorted(line, key=lambda pair: pair[1].turn):
            if not left:
                break
            end = len(lane.ids) + self.lanes.chunk
            if end < len(job.prompt) and any(prompt[:end] == job.prompt[:end] for prompt in now):
                continue
            try:
                piece = self._next_chunk(lane, job, left)
            except Exception as problem:
                self._fail(lane, problem)
                continue
            if piece is not None:
                job.turn = next(self._clock)  # the others come first the next time
                now.append(job.prompt)
                pieces.append(piece)
                left -= len(piece.ids)
        return pieces

    def _next_chunk(self, lane: Lane, job: Job, most: int) -> Piece | None:
        """What a prompt reads next, after taking over from any other slot what is there already."""
        begin = len(lane.ids)
        source = max(self._lanes, key=lambda other: self._shared(other, job.prompt) if other is not lane else 0)
        reach = 0 if source is lane else self._shared(source, job.prompt)
        if reach > begin:
            self.lanes.share(source.slot, lane.slot, reach)
            lane.ids, lane.sound = job.prompt[:reach], reach
            self._counts.reused_tokens += reach - begin
            begin = reach
        size = min(self.lanes.chunk, len(job.prompt) - begin)
        if size > most:  # only a seamless text may be cut elsewhere than when it is alone
            size = most if self.lanes.seamless else 0
        end = begin + size
        return Piece(lane.slot, job.prompt[begin:end], end == len(job.prompt)) if size else None

    def _feed(self, pieces: list[Piece]) -> tuple[list[Lane], Floats]:
        """The slots that are told what follows, and the logits. After a failure each is fed alone, to find whose it was."""
        try:
            fed, logits = pieces, self.lanes.feed(pieces)
        except Exception:
            fed, rows = [], list[Floats]()
            for piece in pieces:
                lane = self._lanes[piece.slot]
                try:
                    self.lanes.share(piece.slot, piece.slot, len(lane.ids))
                    rows.append(self.lanes.feed([piece]))
                    fed.append(piece)
                except Exception as problem:
                    self._fail(lane, problem)
            logits = np.concatenate(rows) if rows else np.empty((0, 0), np.float32)
        for piece in fed:
            self._note(self._lanes[piece.slot], piece.ids)
        return [self._lanes[piece.slot] for piece in fed if piece.wanted], logits

    def _note(self, lane: Lane, ids: Sequence[int]) -> None:
        """The slot now holds these too. Others may take over whole chunks that were read, or anything if seamless."""
        whole = len(ids) == self.lanes.chunk and lane.sound == len(lane.ids)
        lane.ids.extend(ids)
        if self.lanes.seamless or whole:
            lane.sound = len(lane.ids)

    def _choose(self, lanes: list[Lane], logits: Floats) -> None:
        """Every row chooses its next token and tells it."""
        asked = [(lane, lane.job) for lane in lanes if lane.job is not None]
        chosen: list[tuple[int, float]] | None = None
        try:
            ids, logprobs = next_ids(logits, [job.row for _, job in asked])
            chosen = list(zip(ids.tolist(), logprobs.tolist(), strict=True))
        except RegardError:  # nobody has moved: who cannot choose is found by going one by one
            pass
        for i, (lane, job) in enumerate(asked):
            row = logits[i : i + 1]
            try:
                id, logprob = chosen[i] if chosen is not None else choose_alone(row, job.row)
                self._tell(lane, job, id, logprob, row)
            except Exception as problem:
                self._fail(lane, problem)

    def _tell(self, lane: Lane, job: Job, id: int, logprob: float, logits: Floats) -> None:
        job.writing = True
        text = job.writer.take(job.row, id, logprob)
        self._counts.generated_tokens += 1
        if job.ticket.cancelled:
            return
        job.tell(job.index, Token(job.index, id, logprob, text, likeliest(logits, job.alternatives)))
        if job.row.done:
            lane.job = None
            self._counts.finished += 1
            self._seconds += 0.2 * (time.monotonic() - job.begun - self._seconds)
            writer = job.writer
            job.tell(job.index, Answer(writer.text, writer.ids, writer.logprobs, job.row.finished or "length"))

    def _fail(self, lane: Lane, problem: Exception) -> None:
        """Its request is over, and its text is not to be trusted."""
        job, lane.job, lane.ids, lane.sound = lane.job, None, [], 0
        self.lanes.free(lane.slot)
        if job is None:
            return
        self._counts.failed += 1
        try:
            job.tell(job.index, problem)
        except Exception as deaf:  # nobody is listening any more
            log.debug("nobody heard of a failure", exc_info=deaf)


def choose_alone(logits: Floats, row: RowState) -> tuple[int, float]:
    ids, logprobs = next_ids(logits, [row])
    return int(ids[0]), float(logprobs[0])


def likeliest(logits: Floats, count: int) -> list[tuple[int, float]]:
    if not count:
        return []
    ids, logprobs = top_logprobs(logits, count)
    return list(zip(ids[0].tolist(), logprobs[0].tolist(), strict=True))
