"""Continuous batching: every request gives what it gives alone, whoever comes, goes or fails beside it."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.api import Model
from regard.engine.generate import Answer, Token
from regard.engine.lanes import Lanes, Piece, bytes_per_token
from regard.engine.schedule import Closed, Full, Scheduler
from regard.engine.torch_lanes import TorchLanes
from regard.errors import GenerationError

CHUNK, ROOM = 8, 96
TEXTS = [
    "The old king and the old woman",
    "The old king and the old woman went to the river and saw a little boat on the water near the tall trees",
    "Sara",
    "Three children want to build a little boat. They ran to the hills and the sky was dark and the birds sang",
    "Three children want to build a little boat. They ran to the hills and swam in the river",
]


@pytest.fixture(scope="module", params=["native", "torch"])
def model(request) -> Model:
    return regard.load("toy-gpt", engine=request.param)


def lanes_of(model: Model, slots: int, room: int, chunk: int) -> Lanes:
    lanes = model.lanes(slots, room)
    lanes.chunk = chunk  # small enough that short texts have several
    return lanes


class Scripted:
    """Lanes that do something before certain steps, and remember what they were fed."""

    def __init__(self, model: Model, slots: int) -> None:
        self.lanes = lanes_of(model, slots, ROOM, CHUNK)
        self.before: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self.fed: list[list[Piece]] = []
        self.poison, self.again = -1, 0
        self.gate = threading.Event()
        self.gate.set()

    def feed(self, pieces: Any) -> torch.Tensor:
        if self.again:  # each alone, after a failure
            self.again -= 1
        else:
            self.gate.wait()
            for action in self.before.pop(len(self.fed), []):
                action()
            self.fed.append(list(pieces))
        if any(self.poison in piece.ids for piece in pieces):
            self.again = self.again or (len(pieces) if len(pieces) > 1 else 0)
            raise ZeroDivisionError("poison")
        return self.lanes.feed(pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lanes, name)


class Heard:
    """What a request was told."""

    def __init__(self, n: int = 1) -> None:
        self.n, self.events = n, defaultdict[int, list[Any]](list)
        self.ended: SimpleQueue[int] = SimpleQueue()

    def __call__(self, index: int, event: Any) -> None:
        self.events[index].append(event)
        if not isinstance(event, Token):
            self.ended.put(index)

    def wait(self) -> list[list[Any]]:
        for _ in range(self.n):
            self.ended.get(timeout=60)
        return [self.events[i] for i in range(self.n)]


def close(scheduler: Scheduler) -> None:
    scheduler.lanes.gate.set()
    scheduler.close()


WISHES = [
    {"temperature": 0.0, "max_new_tokens": 12},
    {"temperature": 1.0, "seed": 7, "max_new_tokens": 15, "n": 3},
    {"temperature": 0.8, "seed": 1, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2, "max_new_tokens": 9},
    {"temperature": 1.3, "seed": 5, "min_p": 0.02, "presence_penalty": 0.5, "max_new_tokens": 20, "stop": [" the"]},
    {"temperature": 0.0, "frequency_penalty": 1.0, "logit_bias": {44: 3.0}, "max_new_tokens": 5},
    {"temperature": 0.5, "seed": 2, "max_new_tokens": 1},
]


def rows(model: Any, text: str, wish: dict[str, Any]) -> list[Any]:
    return model.rows(model.tokenizer.encode(text), context=ROOM, **wish)


@pytest.fixture(scope="module")
def alone(model) -> Callable[[int, int], list[list[Any]]]:
    """`alone(text, wish)`: what is told when nobody else has ever been there."""
    made: dict[tuple[int, int], list[list[Any]]] = {}

    def run(text: int, wish: int) -> list[list[Any]]:
        if (text, wish) not in made:
            scheduler = Scheduler(Scripted(model, 1), model.tokenizer)
            heard = Heard(WISHES[wish].get("n", 1))
            scheduler.submit(rows(model, TEXTS[text], WISHES[wish]), heard, alternatives=3)
            made[text, wish] = heard.wait()
            close(scheduler)
        return made[text, wish]

    return run


@settings(max_examples=20, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(0, len(TEXTS) - 1), st.integers(0, len(WISHES) - 1), st.integers(0, 12), st.integers(-1, 6)
        ),
        min_size=1,
        max_size=7,
    ),
    slots=st.integers(1, 5),
)
def test_concurrent_is_alone(model, alone, arrivals, slots):
    """Whoever arrives when, and whoever leaves after how many tokens: the same tokens, texts and log-probabilities."""
    lanes = Scripted(model, slots)
    scheduler = Scheduler(lanes, model.tokenizer, queue=100)
    heard, tickets = {}, {}

    def arrive(i: int) -> None:
        text, wish, _, leave = arrivals[i]
        hearing = Heard(WISHES[wish].get("n", 1))

        def tell(index: int, event: Any) -> None:
            hearing(index, event)
            if leave >= 0 and sum(map(len, hearing.events.values())) > leave and i in tickets:
                tickets[i].cancel()

        tickets[i] = scheduler.submit(rows(model, TEXTS[text], WISHES[wish]), tell, alternatives=3)
        heard[i] = hearing

    for i, (_, _, when, _) in enumerate(arrivals):
        lanes.before[when].append(lambda i=i: arrive(i))
    now = sorted(lanes.before)[0]
    lanes.before[0] = lanes.before.pop(now)
    for action in lanes.before.pop(0):
        action()
    for i, (text, wish, _, leave) in enumerate(arrivals):
        while i not in heard:  # all was over before its step came, or it is just coming
            pending = [a for when in sorted(lanes.before) for a in lanes.before.pop(when, [])]
            for action in pending:
                action()
            time.sleep(0.001)
        expected = alone(text, wish)
        if leave < 0:
            assert heard[i].wait() == expected
    scheduler.close()
    for i, (text, wish, _, _) in enumerate(arrivals):
        for index, events in heard[i].events.items():
            assert events == alone(text, wish)[index][: len(events)]
    counts = scheduler.counts()
    assert (counts.busy, counts.waiting, counts.failed, counts.refused) == (0, 0, 0, 0)
    assert counts.finished + counts.cancelled == sum(WISHES[wish].get("n", 1) for _, wish, _, _ in arrivals)


@pytest.mark.parametrize("wish", range(len(WISHES)))
def test_a_short_prompt_gives_what_the_model_gives(model, alone, wish):
    """A prompt of one chunk is read in one piece, as `generate` reads it: the same to the bit."""
    ids = model.tokenizer.encode(TEXTS[0])
    assert len(ids) <= CHUNK
    (expected,) = model.answers(ids, **(WISHES[wish] | {"n": 1}))
    told = alone(0, wish)[0][-1]
    assert (told.ids, told.text, told.finished) == (expected[0].ids, expected[0].text, expected[0].finished)
    assert told.logprobs == pytest.approx(expected[0].logprobs, abs=1e-5)


@pytest.mark.parametrize("wish", range(len(WISHES)))
def test_a_long_prompt_gives_what_the_model_gives(model, alone, wish):
    """Into however many pieces it is cut: the same text, and to the bit where that does not depend on the pieces."""
    ids = model.tokenizer.encode(TEXTS[3])
    assert len(ids) > 2 * CHUNK
    (expected,) = model.answers(ids, **WISHES[wish])
    told = [events[-1] for events in alone(3, wish)]
    assert [answer.ids for answer in told] == [answer.ids for answer in expected]
    for ours, theirs in zip(told, expected, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    if model.lanes(1, ROOM).seamless:
        assert told == expected


def test_tokens_joined_are_the_answer(alone):
    for events in alone(3, 3):
        *tokens, answer = events
        assert isinstance(answer, Answer)
        assert "".join(token.text for token in tokens) == answer.text
        assert [token.id for token in tokens] == answer.ids
        assert all(len(token.alternatives) == 3 for token in tokens)


@pytest.mark.parametrize("name", ["llama-gqa-tied", "mistral", "gpt2-untied"])
def test_other_families_too(saved, name):
    """Rotary positions, sliding windows, shared heads: prompts of several chunks, and a prefix taken over."""
    model = regard.load(saved(name))
    prompts = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], [5, 6, 7, 8, 9, 10, 11, 12, 30, 31], [3]]
    wish = {"temperature": 1.0, "seed": 4, "max_new_tokens": 8}

    def run(scheduler: Scheduler, prompt: list[int]) -> Heard:
        heard = Heard()
        scheduler.submit(model.rows(prompt, context=32, **wish), heard)
        return heard

    apart = []
    for prompt in prompts:
        scheduler = Scheduler(lanes_of(model, 1, 32, 4))
        apart.append(run(scheduler, prompt).wait())
        scheduler.close()
    scheduler = Scheduler(lanes_of(model, 2, 32, 4))
    together = [run(scheduler, prompt) for prompt in prompts * 2]
    assert [heard.wait() for heard in together] == apart * 2
    assert scheduler.counts().reused_tokens >= 8
    scheduler.close()
    assert [e[0][-1].ids for e in apart] == [model.answers(p, **wish)[0][0].ids for p in prompts]


# ── chunks and prefixes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_prompt_does_not_hold_up_the_others(model):
    """While it is read a chunk at a time, who is writing gets a token in every step."""
    lanes = Scripted(model, 2)
    scheduler = Scheduler(lanes, model.tokenizer)
    short, long = Heard(), Heard()
    lanes.gate.clear()
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 20}), short)
    lanes.before[3].append(lambda: scheduler.submit(rows(model, TEXTS[1], {"max_new_tokens": 4}), long))
    lanes.gate.set()
    short.wait()
    long.wait()
    close(scheduler)
    slot = lanes.fed[0][0].slot
    assert all(any(piece.slot == slot and piece.wanted for piece in step) for step in lanes.fed[:20])
    prompt = len(model.tokenizer.encode(TEXTS[1]))
    read = [len(p.ids) for step in lanes.fed for p in step if p.slot != slot and len(p.ids) > 1]
    assert max(read) == CHUNK
    assert sum(read) in (prompt, prompt - 1)
    assert prompt > 2 * CHUNK


def test_prompts_take_turns_to_be_read(model):
    lanes = Scripted(model, 4)
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    heard = [Heard() for _ in range(4)]
    texts = [TEXTS[1], "One " + TEXTS[1], "Two " + TEXTS[1], "Sara"]
    for text, each in zip(texts, heard, strict=True):
        scheduler.submit(rows(model, text, {"max_new_tokens": 2}), each)
    lanes.gate.set()
    for each in heard:
        each.wait()
    close(scheduler)
    first_seen = [next(i for i, step in enumerate(lanes.fed) if any(p.slot == slot for p in step)) for slot in range(4)]
    assert max(first_seen) <= 4, "the fourth prompt is begun long before the first is read"
    assert all(sum(len(p.ids) for p in step if not p.wanted or len(p.ids) > 1) <= CHUNK for step in lanes.fed)


def test_short_prompts_are_read_together(model):
    """As many as a chunk holds, also beside somebody who is writing."""
    lanes = Scripted(model, 5)
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    heard = [Heard() for _ in range(5)]
    for text, each in zip(["The king", "A boat", "Sara loved", "One day", "Once"], heard, strict=True):
        scheduler.submit(rows(model, text, {"max_new_tokens": 4}), each)
    lanes.gate.set()
    for each in heard:
        each.wait()
    close(scheduler)
    read = [[len(p.ids) for p in step if len(p.ids) > 1] for step in lanes.fed]
    assert max(map(len, read)) >= 2
    assert max(map(sum, read)) <= CHUNK


def takes_over(lanes: Any, tokens: int) -> int:
    """Of so many tokens that two texts have in common, those whose keys and values the second need not compute."""
    return tokens if lanes.seamless else tokens // CHUNK * CHUNK


def test_a_prefix_is_read_once(model):
    lanes = Scripted(model, 3)
    scheduler = Scheduler(lanes, model.tokenizer)
    wish = {"temperature": 0.0, "max_new_tokens": 3}
    first = scheduler.answers(rows(model, TEXTS[3], wish))
    before = scheduler.counts()
    assert before.reused_tokens == 0
    again = scheduler.answers(rows(model, TEXTS[3], wish))
    assert again == first
    prompt = len(model.tokenizer.encode(TEXTS[3]))
    reused = takes_over(lanes, prompt - 1)
    assert scheduler.counts().reused_tokens == reused
    scheduler.answers(rows(model, TEXTS[4], wish))
    a, b = (model.tokenizer.encode(TEXTS[i]) for i in (3, 4))
    same = next(i for i in range(len(b)) if a[i] != b[i])
    assert scheduler.counts().reused_tokens == reused + takes_over(lanes, same)
    assert scheduler.counts().prompt_tokens == 2 * prompt + len(b)
    close(scheduler)


def test_samples_of_one_prompt_share_its_reading(model):
    lanes = Scripted(model, 4)
    scheduler = Scheduler(lanes, model.tokenizer)
    scheduler.answers(rows(model, TEXTS[1], {"temperature": 1.0, "seed": 1, "max_new_tokens": 3, "n": 4}))
    prompt = len(model.tokenizer.encode(TEXTS[1]))
    assert 3 * ((prompt - 1) // CHUNK * CHUNK) <= scheduler.counts().reused_tokens <= 3 * takes_over(lanes, prompt - 1)
    close(scheduler)


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_comes_when_it_is_full_is_refused_and_the_others_are_served(model):
    lanes = Scripted(model, 2)
    scheduler = Scheduler(lanes, model.tokenizer, queue=3)
    lanes.gate.clear()
    wish = {"temperature": 1.0, "seed": 3, "max_new_tokens": 4}
    accepted = [Heard() for _ in range(5)]
    for heard in accepted:
        scheduler.submit(rows(model, "Sara", wish), heard)
    with pytest.raises(Full) as refused:
        scheduler.submit(rows(model, "Sara", wish), Heard())
    assert 1 <= refused.value.seconds <= 60
    lanes.gate.set()
    assert len({str(heard.wait()) for heard in accepted}) == 1
    with pytest.raises(Full):  # all of a request or nothing
        scheduler.submit(rows(model, "Sara", wish | {"n": 6}), Heard())
    counts = scheduler.counts()
    assert (counts.finished, counts.refused, counts.waiting, counts.busy) == (5, 2, 0, 0)
    close(scheduler)


def test_first_come_first_served(model):
    lanes = Scripted(model, 1)
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    order: list[int] = []
    heard = [Heard() for _ in range(5)]

    def teller(i: int) -> Callable[[int, Any], None]:
        def tell(index: int, event: Any) -> None:
            if isinstance(event, Answer):
                order.append(i)
            heard[i](index, event)

        return tell

    for i in range(5):
        scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2 + i % 2}), teller(i))
    lanes.gate.set()
    for each in heard:
        each.wait()
    assert order == [0, 1, 2, 3, 4]
    close(scheduler)


def test_memory_is_bounded_and_does_not_grow(model):
    lanes = TorchLanes(model.net, 2, ROOM, CHUNK)
    stack = model.net.stack
    assert lanes.most_bytes == 2 * ROOM * bytes_per_token(stack)
    assert bytes_per_token(stack) == 2 * 4 * 128 * 4  # K and V, layers, width, bytes
    scheduler = Scheduler(lanes, model.tokenizer)
    for seed in range(4):
        scheduler.answers(rows(model, TEXTS[seed], {"temperature": 1.0, "seed": seed, "max_new_tokens": 60, "n": 3}))
        assert lanes.nbytes <= lanes.most_bytes
    assert lanes.nbytes == lanes.most_bytes
    scheduler.close()
    assert lanes.nbytes == 0


def test_an_answer_of_no_tokens_needs_no_slot(model):
    scheduler = Scheduler(lanes_of(model, 1, ROOM, CHUNK), model.tokenizer, queue=0)
    (answer,) = scheduler.answers(rows(model, "Sara", {"max_new_tokens": 0}))
    assert (answer.text, answer.ids, answer.finished) == ("", [], "length")
    assert scheduler.counts().steps == 0
    scheduler.close()


def test_a_prompt_may_fill_all_but_one_place(model):
    scheduler = Scheduler(lanes_of(model, 1, ROOM, CHUNK), model.tokenizer)
    ids = (model.tokenizer.encode(TEXTS[1]) * 9)[: ROOM - 1]
    (answer,) = scheduler.answers(model.rows(ids, context=ROOM, max_new_tokens=50))
    assert (len(answer.ids), answer.finished) == (1, "length")
    with pytest.raises(GenerationError, match="shorten the prompt to at most 95"):
        model.rows([*ids, ids[0]], context=ROOM, max_new_tokens=50)
    scheduler.close()


# ── leaving and failing ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("when", [1, 4])
def test_a_cancelled_request_is_gone_by_the_next_step(model, when):
    """Also while its prompt is still being read."""
    lanes = Scripted(model, 2)
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    gone, stays = Heard(), Heard()
    ticket = scheduler.submit(rows(model, TEXTS[1], {"max_new_tokens": 50}), gone)
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 10}), stays)
    busy: list[int] = []
    lanes.before[when].append(ticket.cancel)
    lanes.before[when + 1].append(lambda: busy.append(scheduler.counts().busy))
    lanes.gate.set()
    stays.wait()
    slot = lanes.fed[0][0].slot
    assert busy == [1]
    assert not any(piece.slot == slot for step in lanes.fed[when + 1 :] for piece in step)
    assert scheduler.counts().cancelled == 1
    close(scheduler)


def test_a_cancelled_request_gives_up_its_place_in_the_queue(model):
    lanes = Scripted(model, 1)
    scheduler = Scheduler(lanes, model.tokenizer, queue=1)
    lanes.gate.clear()
    first, last = Heard(), Heard()
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2}), first)
    waiting = scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2}), Heard())
    waiting.cancel()
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2}), last)
    lanes.gate.set()
    assert first.wait() == last.wait()
    close(scheduler)


def test_a_failing_request_fails_alone(model, alone):
    """The engine fails on one text; the others of the same steps get what they would have got."""
    lanes = Scripted(model, 3)
    (lanes.poison,) = set(model.tokenizer.encode(" boat")) - set(model.tokenizer.encode(TEXTS[0] + " Sara"))
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    bad, good, other = Heard(), Heard(), Heard()
    scheduler.submit(rows(model, TEXTS[0], WISHES[0]), good)
    scheduler.submit(rows(model, TEXTS[3], WISHES[0]), bad)
    scheduler.submit(rows(model, TEXTS[2], WISHES[0]), other)
    lanes.gate.set()
    (events,) = bad.wait()
    assert isinstance(events[-1], ZeroDivisionError)
    assert good.wait() == [strip(events) for events in alone(0, 0)]
    assert other.wait() == [strip(events) for events in alone(2, 0)]
    assert scheduler.counts().failed == 1
    assert scheduler.counts().busy == 0
    close(scheduler)


def strip(events: list[Any]) -> list[Any]:
    """Without the alternatives, which were not asked for."""
    return [Token(e.row, e.id, e.logprob, e.text) if isinstance(e, Token) else e for e in events]


def test_who_cannot_choose_fails_alone(model, alone):
    """Every token banned: a refusal in words, and the row beside it goes on."""
    lanes = Scripted(model, 2)
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    bad, good = Heard(), Heard()
    everything = tuple(range(model.spec.n_vocab))
    scheduler.submit(rows(model, TEXTS[0], {"suppress_tokens": everything, "max_new_tokens": 5}), bad)
    scheduler.submit(rows(model, TEXTS[2], WISHES[0]), good)
    lanes.gate.set()
    (events,) = bad.wait()
    assert isinstance(events[-1], GenerationError)
    assert good.wait() == [strip(events) for events in alone(2, 0)]
    close(scheduler)


def test_a_listener_that_breaks_loses_only_its_own(model, alone):
    scheduler = Scheduler(Scripted(model, 2), model.tokenizer)
    good = Heard()

    def deaf(index: int, event: Any) -> None:
        raise RuntimeError("the loop is closed")

    scheduler.submit(rows(model, TEXTS[1], WISHES[0]), deaf)
    scheduler.submit(rows(model, TEXTS[2], WISHES[0]), good)
    assert good.wait() == [strip(events) for events in alone(2, 0)]
    close(scheduler)
    assert scheduler.counts().busy == 0


def test_closing_serves_who_is_here_and_takes_nobody_else(model):
    lanes = Scripted(model, 1)
    scheduler = Scheduler(lanes, model.tokenizer)
    lanes.gate.clear()
    heard = [Heard(), Heard()]
    for each in heard:
        scheduler.submit(rows(model, "Sara", {"max_new_tokens": 3}), each)
    scheduler.close(wait=False)
    with pytest.raises(Closed):
        scheduler.submit(rows(model, "Sara", {"max_new_tokens": 3}), Heard())
    lanes.gate.set()
    scheduler.close()
    assert [len(each.wait()[0]) for each in heard] == [4, 4]
