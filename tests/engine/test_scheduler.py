"""Continuous batching: every request gives what it gives alone, whichever others join, leave or fail."""

import time
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.engine.generate import Answer
from regard.engine.scheduler import Scheduler, Ticket
from scheduling import CHUNK, ROOM, TEXTS, WISHES, Heard, Scripted, close, rows, slots_of


@settings(max_examples=20, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(0, len(TEXTS) - 1), st.integers(0, len(WISHES) - 1), st.integers(0, 12), st.integers(-1, 6)
        ),
        min_size=1,
        max_size=7,
    ),
    n_slots=st.integers(1, 5),
)
def test_concurrent_equals_alone(model, alone, arrivals, n_slots):
    """Whenever requests arrive and leave: the same tokens, texts and log-probabilities."""
    slots = Scripted(model, n_slots)
    scheduler = Scheduler(slots, model.tokenizer, queue=100)
    heard, tickets = dict[int, Heard](), dict[int, Ticket]()

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
        slots.before[when].append(partial(arrive, i))
    now = sorted(slots.before)[0]
    slots.before[0] = slots.before.pop(now)
    for action in slots.before.pop(0):
        action()
    for i, (text, wish, _, leave) in enumerate(arrivals):
        while i not in heard:  # all was over before its step came, or it is just coming
            pending = [a for when in sorted(slots.before) for a in slots.before.pop(when, [])]
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
    """A prompt of one chunk is prefilled in one piece, as `generate` does: the same to the bit."""
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
    invariant = model.slots(1, ROOM).chunk_invariant
    assert invariant == (model.engine is not None)
    if invariant:
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
    """Rotary positions, sliding windows, grouped heads: prompts of several chunks, and a reused prefix."""
    model = regard.load(saved(name))
    prompts = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], [5, 6, 7, 8, 9, 10, 11, 12, 30, 31], [3]]
    wish = {"temperature": 1.0, "seed": 4, "max_new_tokens": 8}

    def run(scheduler: Scheduler, prompt: list[int]) -> Heard:
        heard = Heard()
        scheduler.submit(model.rows(prompt, context=32, **wish), heard)
        return heard

    apart = []
    for prompt in prompts:
        scheduler = Scheduler(slots_of(model, 1, 32, 4))
        apart.append(run(scheduler, prompt).wait())
        scheduler.close()
    scheduler = Scheduler(slots_of(model, 2, 32, 4))
    together = [run(scheduler, prompt) for prompt in prompts * 2]
    assert [heard.wait() for heard in together] == apart * 2
    assert scheduler.counts().reused_tokens >= 8
    scheduler.close()
    assert [e[0][-1].ids for e in apart] == [model.answers(p, **wish)[0][0].ids for p in prompts]


# ── chunks and prefixes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_prefill_does_not_delay_the_others(model):
    """While it is prefilled a chunk at a time, a decoding request gets a token in every step."""
    slots = Scripted(model, 2)
    scheduler = Scheduler(slots, model.tokenizer)
    short, long = Heard(), Heard()
    slots.gate.clear()
    scheduler.submit(rows(model, "Sara", {"max_new_tokens": 20}), short)
    slots.before[3].append(lambda: scheduler.submit(rows(model, TEXTS[1], {"max_new_tokens": 4}), long))
    slots.gate.set()
    short.wait()
    long.wait()
    close(scheduler)
    slot = slots.fed[0][0].slot
    assert all(any(piece.slot == slot and piece.wanted for piece in step) for step in slots.fed[:20])
    prompt = len(model.tokenizer.encode(TEXTS[1]))
    read = [len(p.ids) for step in slots.fed for p in step if p.slot != slot and len(p.ids) > 1]
    assert max(read) == CHUNK
    assert sum(read) in (prompt, prompt - 1)
    assert prompt > 2 * CHUNK


def test_prefill_is_round_robin(model):
    slots = Scripted(model, 4)
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
    heard = [Heard() for _ in range(4)]
    texts = [TEXTS[1], "One " + TEXTS[1], "Two " + TEXTS[1], "Sara"]
    for text, each in zip(texts, heard, strict=True):
        scheduler.submit(rows(model, text, {"max_new_tokens": 2}), each)
    slots.gate.set()
    for each in heard:
        each.wait()
    close(scheduler)
    first_seen = [next(i for i, step in enumerate(slots.fed) if any(p.slot == slot for p in step)) for slot in range(4)]
    assert max(first_seen) <= 4, "the fourth prompt is begun long before the first is read"
    assert all(sum(len(p.ids) for p in step if not p.wanted or len(p.ids) > 1) <= CHUNK for step in slots.fed)


def test_short_prompts_are_prefilled_in_one_step(model):
    """As many as fit into a chunk, also while another request is decoding."""
    slots = Scripted(model, 5)
    scheduler = Scheduler(slots, model.tokenizer)
    slots.gate.clear()
    heard = [Heard() for _ in range(5)]
    for text, each in zip(["The king", "A boat", "Sara loved", "One day", "Once"], heard, strict=True):
        scheduler.submit(rows(model, text, {"max_new_tokens": 4}), each)
    slots.gate.set()
    for each in heard:
        each.wait()
    close(scheduler)
    read = [[len(p.ids) for p in step if len(p.ids) > 1] for step in slots.fed]
    assert max(map(len, read)) >= 2
    assert max(map(sum, read)) <= CHUNK


def reused_prefix(slots: Any, tokens: int) -> int:
    """How much of a common prefix of `tokens` tokens is reused from the KV cache."""
    return tokens if slots.chunk_invariant else tokens // CHUNK * CHUNK


def test_a_common_prefix_is_prefilled_once(model):
    slots = Scripted(model, 3)
    scheduler = Scheduler(slots, model.tokenizer)
    wish = {"temperature": 0.0, "max_new_tokens": 3}
    first = scheduler.answers(rows(model, TEXTS[3], wish))
    before = scheduler.counts()
    assert before.reused_tokens == 0
    again = scheduler.answers(rows(model, TEXTS[3], wish))
    assert again == first
    prompt = len(model.tokenizer.encode(TEXTS[3]))
    reused = reused_prefix(slots, prompt - 1)
    assert scheduler.counts().reused_tokens == reused
    scheduler.answers(rows(model, TEXTS[4], wish))
    a, b = (model.tokenizer.encode(TEXTS[i]) for i in (3, 4))
    same = next(i for i in range(len(b)) if a[i] != b[i])
    assert scheduler.counts().reused_tokens == reused + reused_prefix(slots, same)
    assert scheduler.counts().prompt_tokens == 2 * prompt + len(b)
    close(scheduler)


def test_samples_of_one_prompt_share_its_prefill(model):
    slots = Scripted(model, 4)
    scheduler = Scheduler(slots, model.tokenizer)
    scheduler.answers(rows(model, TEXTS[1], {"temperature": 1.0, "seed": 1, "max_new_tokens": 3, "n": 4}))
    prompt = len(model.tokenizer.encode(TEXTS[1]))
    assert (
        3 * ((prompt - 1) // CHUNK * CHUNK) <= scheduler.counts().reused_tokens <= 3 * reused_prefix(slots, prompt - 1)
    )
    close(scheduler)
