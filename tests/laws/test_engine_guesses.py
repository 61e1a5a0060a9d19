"""Guessing ahead changes how fast a text is written and nothing else, whatever the settings."""

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard
from regard.engine.native.library import library
from regard.engine.native_engine import NativeEngine
from regard.errors import GenerationError

pytestmark = pytest.mark.skipif(library() is None, reason="the native engine is not built here")
PROMPT = [7, 9, 12, 40, 33, 8, 21, 15, 6, 30, 11]

ANY_SETTINGS = st.fixed_dictionaries(
    {"prompt_lookup": st.integers(1, 12), "max_new_tokens": st.integers(1, 24)},
    optional={
        "temperature": st.sampled_from([0.2, 1.0]),
        "seed": st.integers(0, 9),
        "top_k": st.integers(1, 9),
        "top_p": st.floats(0.1, 1.0),
        "typical_p": st.floats(0.2, 1.0),
        "min_p": st.floats(0.0, 0.5),
        "repetition_penalty": st.floats(0.5, 1.5),
        "presence_penalty": st.floats(-1.0, 1.0),
        "frequency_penalty": st.floats(-1.0, 1.0),
        "no_repeat_ngram_size": st.integers(2, 4),
        "min_new_tokens": st.integers(0, 9),
        "logit_bias": st.dictionaries(st.integers(5, 40), st.floats(-5, 5), max_size=3),
        "eos_token_id": st.lists(st.integers(0, 40), max_size=9),
        "n": st.integers(1, 3),
    },
)
REPEATING = st.lists(st.integers(5, 40), min_size=1, max_size=4).map(lambda ids: ids * 4)


@pytest.mark.parametrize("name", ["gpt2", "mistral", "llama-gqa-tied", "bart"])
@given(asked=ANY_SETTINGS, prompt=REPEATING | st.lists(st.integers(5, 40), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_guesses_the_same_is_written(name, asked, prompt, saved):
    """Token for token, to the last bit of their probabilities, whatever the settings."""
    model = loaded_once(saved(name))
    asked = {"temperature": 0.0, "seed": 5, "num_beams": 1, **asked}
    guessed, plain = (model.answers(prompt, **asked | change)[0] for change in ({}, {"prompt_lookup": 0}))
    assert guessed == plain


@cache
def loaded_once(path):
    return regard.load(path, engine="native")


def test_guesses_save_calls(saved, monkeypatch):
    model, calls = regard.load(saved("gpt2")), []
    asked = {"max_new_tokens": 26, "logit_bias": {9: 1e6}}  # the same token again and again
    forward = NativeEngine.forward

    def noted(self: NativeEngine, *given: Any) -> Any:
        calls.append(len(given[1][0]))
        return forward(self, *given)

    monkeypatch.setattr(NativeEngine, "forward", noted)
    plain = model.answers(PROMPT, **asked)[0][0]
    assert calls == [11] + [1] * 25
    calls.clear()
    assert model.engine is not None
    model.engine.last_cache = None  # which begins alike
    assert model.answers(PROMPT, prompt_lookup=8, **asked)[0][0] == plain
    assert calls == [11, 1, 1, 1, 4, 7, 9, 6]  # which are 40 in all, as many as there are positions


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_streams_and_sentences_about_guesses(name, saved):
    ids = PROMPT[:3] * 3
    model = regard.load(saved(name))
    asked = {"max_new_tokens": 12, "num_beams": 1, "temperature": 0.0}
    plain = list(model.stream_tokens(ids, alternatives=3, **asked))
    assert list(model.stream_tokens(ids, alternatives=3, prompt_lookup=4, **asked)) == plain
    with pytest.raises(GenerationError, match="prompt_lookup is 4: it must be 0 with num_beams=3"):
        model.answers(ids, prompt_lookup=4, num_beams=3)
    with pytest.raises(GenerationError, match="prompt_lookup needs the native engine"):
        regard.load(saved(name), engine="torch").answers(ids, prompt_lookup=4, num_beams=1)
    with pytest.raises(GenerationError, match="from 0 to 64"):
        model.answers(ids, prompt_lookup=65)
