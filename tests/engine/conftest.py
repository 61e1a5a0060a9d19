"""Fixtures of the scheduler tests: a model on each engine, and the events of a request that is served alone."""

from collections.abc import Callable
from typing import Any

import pytest

import regard
from regard.api import Model
from regard.engine.scheduler import Scheduler
from scheduling import TEXTS, WISHES, Heard, Scripted, close, rows


@pytest.fixture(scope="module", params=["native", "torch"])
def model(request) -> Model:
    return regard.load("toy-gpt", engine=request.param)


@pytest.fixture(scope="module")
def alone(model) -> Callable[[int, int], list[list[Any]]]:
    """`alone(text, wish)`: the events of a request that a fresh scheduler serves alone."""
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
