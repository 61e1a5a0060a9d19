"""Who leaves, fails or breaks takes nobody along; and closing serves who is here."""

from typing import Any

import pytest

from regard.engine.generate import Token
from regard.engine.schedule import Closed, Scheduler
from regard.errors import GenerationError
from scheduling import TEXTS, WISHES, Heard, Scripted, close, rows


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
