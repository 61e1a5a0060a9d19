"""Limits of slots, queue and memory: which requests are refused, which wait, and how long a sequence may be."""

from collections.abc import Callable
from typing import Any

import pytest

from regard.engine.generate import Answer
from regard.engine.reference_slots import ReferenceSlots
from regard.engine.scheduler import QueueFull, Scheduler
from regard.engine.slots import bytes_per_token
from regard.errors import GenerationError
from scheduling import CHUNK, ROOM, TEXTS, Heard, Scripted, close, rows, slots_of


def test_requests_beyond_the_queue_are_refused_and_the_others_served(model):
    slots = Scripted(model, 2)
    scheduler = Scheduler(slots, model.tokenizer, queue=3)
    slots.gate.clear()
    wish = {"temperature": 1.0, "seed": 3, "max_new_tokens": 4}
    accepted = [Heard() for _ in range(5)]
    for heard in accepted:
        scheduler.submit(rows(model, "Sara", wish), heard)
    with pytest.raises(QueueFull) as refused:
        scheduler.submit(rows(model, "Sara", wish), Heard())
    assert 1 <= refused.value.seconds <= 60
    slots.gate.set()
    assert len({str(heard.wait()) for heard in accepted}) == 1
    with pytest.raises(QueueFull):  # all of a request or nothing
        scheduler.submit(rows(model, "Sara", wish | {"n": 6}), Heard())
    counts = scheduler.counts()
    assert (counts.finished, counts.refused, counts.waiting, counts.busy) == (5, 2, 0, 0)
    close(scheduler)


def test_first_come_first_served(model):
    slots = Scripted(model, 1)
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
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
    slots.gate.set()
    for each in heard:
        each.wait()
    assert order == [0, 1, 2, 3, 4]
    close(scheduler)


def test_memory_is_bounded_and_does_not_grow(model):
    slots = ReferenceSlots(model.reference, 2, ROOM, CHUNK)
    stack = model.spec.decoder
    assert slots.max_bytes == 2 * ROOM * bytes_per_token(stack)
    assert bytes_per_token(stack) == 2 * 4 * 128 * 4  # K and V, layers, width, bytes
    scheduler = Scheduler(slots, model.tokenizer)
    for seed in range(4):
        scheduler.answers(rows(model, TEXTS[seed], {"temperature": 1.0, "seed": seed, "max_new_tokens": 60, "n": 3}))
        assert slots.nbytes <= slots.max_bytes
    assert slots.nbytes == slots.max_bytes
    scheduler.close()
    assert slots.nbytes == 0


def test_an_answer_of_no_tokens_needs_no_slot(model):
    scheduler = Scheduler(slots_of(model, 1, ROOM, CHUNK), model.tokenizer, queue=0)
    (answer,) = scheduler.answers(rows(model, "Sara", {"max_new_tokens": 0}))
    assert (answer.text, answer.ids, answer.finished) == ("", [], "length")
    assert scheduler.counts().steps == 0
    scheduler.close()


def test_a_prompt_may_fill_all_but_one_token_of_a_slot(model):
    scheduler = Scheduler(slots_of(model, 1, ROOM, CHUNK), model.tokenizer)
    ids = (model.tokenizer.encode(TEXTS[1]) * 9)[: ROOM - 1]
    (answer,) = scheduler.answers(model.rows(ids, context=ROOM, max_new_tokens=50))
    assert (len(answer.ids), answer.finished) == (1, "length")
    with pytest.raises(GenerationError, match="shorten the prompt to at most 95"):
        model.rows([*ids, ids[0]], context=ROOM, max_new_tokens=50)
    scheduler.close()
