"""Requests that are cancelled or fail do not affect the others; and closing completes accepted requests."""

from typing import Any

import pytest

from regard.engine.generate import Token
from regard.engine.scheduler import Scheduler, SchedulerClosed
from regard.errors import GenerationError
from scheduling import TEXTS, WISHES, Heard, Scripted, close, rows


@pytest.mark.parametrize("when", [1, 4])
def test_a_cancelled_request_is_gone_by_the_next_step(model, when):
    """Also during the prefill of its prompt."""
    slots = Scripted(model, 2)
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
    gone, stays = Heard(), Heard()
    ticket = scheduler.submit(rows(model, TEXTS[1], {"max_new_tokens": 50}), gone)
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 10}), stays)
    busy: list[int] = []
    slots.before[when].append(ticket.cancel)
    slots.before[when + 1].append(lambda: busy.append(scheduler.counts().busy))
    slots.gate.set()
    stays.wait()
    slot = slots.fed[0][0].slot
    assert busy == [1]
    assert not any(piece.slot == slot for step in slots.fed[when + 1 :] for piece in step)
    assert scheduler.counts().cancelled == 1
    close(scheduler)


def test_a_cancelled_request_leaves_the_queue(model):
    slots = Scripted(model, 1)
    scheduler = Scheduler(slots, model.tokenizer, queue=1)
    slots.gate.clear()
    first, last = Heard(), Heard()
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2}), first)
    waiting = scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2}), Heard())
    waiting.cancel()
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 2}), last)
    slots.gate.set()
    assert first.wait() == last.wait()
    close(scheduler)


def test_a_failing_request_fails_alone(model, alone):
    """The engine fails on one sequence; the others of the same steps get the same as without it."""
    slots = Scripted(model, 3)
    (slots.poison,) = set(model.tokenizer.encode(" boat")) - set(model.tokenizer.encode(TEXTS[0] + " Sara"))
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
    bad, good, other = Heard(), Heard(), Heard()
    scheduler.submit(rows(model, TEXTS[0], WISHES[0]), good)
    scheduler.submit(rows(model, TEXTS[3], WISHES[0]), bad)
    scheduler.submit(rows(model, TEXTS[2], WISHES[0]), other)
    slots.gate.set()
    (events,) = bad.wait()
    assert isinstance(events[-1], ZeroDivisionError)
    assert good.wait() == [strip(events) for events in alone(0, 0)]
    assert other.wait() == [strip(events) for events in alone(2, 0)]
    assert scheduler.counts().failed == 1
    assert scheduler.counts().busy == 0
    close(scheduler)


def strip(events: list[Any]) -> list[Any]:
    """Without the alternatives, which were not requested."""
    return [Token(e.row, e.id, e.logprob, e.text) if isinstance(e, Token) else e for e in events]


def test_a_row_with_every_token_banned_fails_alone(model, alone):
    """It gets an error message, and the other row continues."""
    slots = Scripted(model, 2)
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
    bad, good = Heard(), Heard()
    everything = tuple(range(model.spec.n_vocab))
    scheduler.submit(rows(model, TEXTS[0], {"suppress_tokens": everything, "max_new_tokens": 5}), bad)
    scheduler.submit(rows(model, TEXTS[2], WISHES[0]), good)
    slots.gate.set()
    (events,) = bad.wait()
    assert isinstance(events[-1], GenerationError)
    assert good.wait() == [strip(events) for events in alone(2, 0)]
    close(scheduler)


def test_a_callback_that_raises_ends_only_its_own_request(model, alone):
    scheduler = Scheduler(Scripted(model, 2), model.tokenizer)
    good = Heard()

    def deaf(index: int, event: Any) -> None:
        raise RuntimeError("the loop is closed")

    scheduler.submit(rows(model, TEXTS[1], WISHES[0]), deaf)
    scheduler.submit(rows(model, TEXTS[2], WISHES[0]), good)
    assert good.wait() == [strip(events) for events in alone(2, 0)]
    close(scheduler)
    assert scheduler.counts().busy == 0


def test_closing_completes_accepted_requests_and_refuses_others(model):
    slots = Scripted(model, 1)
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
    heard = [Heard(), Heard()]
    for each in heard:
        scheduler.submit(rows(model, "Sara", {"max_new_tokens": 3}), each)
    scheduler.close(wait=False)
    with pytest.raises(SchedulerClosed):
        scheduler.submit(rows(model, "Sara", {"max_new_tokens": 3}), Heard())
    slots.gate.set()
    scheduler.close()
    assert [len(each.wait()[0]) for each in heard] == [4, 4]
