"""A setting out of range is refused at once, in one sentence that names it, its value and what is allowed."""

import math
import time
from typing import Any

import pytest

from regard.engine.settings import Settings
from regard.errors import GenerationError

REFUSED = [
    ("n", 10**6, "a whole number from 1 to 128"),
    ("n", 0, "a whole number from 1 to 128"),
    ("n", 10**5000, "a whole number from 1 to 128"),
    ("n", True, "a whole number"),
    ("n", 2.0, "a whole number"),
    ("n", "2", "a whole number"),
    ("temperature", math.nan, "a finite number from 0"),
    ("temperature", math.inf, "a finite number from 0"),
    ("temperature", -0.1, "a finite number from 0"),
    ("temperature", "0.7", "a finite number from 0"),
    ("temperature", True, "a finite number from 0"),
    ("temperature", 10**400, "a finite number from 0"),
    ("temperature", [0.7], "a finite number from 0"),
    ("top_p", 0, "a finite number above 0 to 1"),
    ("top_p", 1.0001, "a finite number above 0 to 1"),
    ("top_p", math.nan, "a finite number above 0 to 1"),
    ("typical_p", 0.0, "a finite number above 0 to 1"),
    ("min_p", -0.01, "a finite number from 0 to 1"),
    ("min_p", 1.01, "a finite number from 0 to 1"),
    ("top_k", -1, "a whole number from 0"),
    ("top_k", 40.0, "a whole number from 0"),
    ("max_new_tokens", -1, "a whole number from 0"),
    ("max_new_tokens", False, "a whole number from 0"),
    ("min_new_tokens", -1, "a whole number from 0"),
    ("max_length", 0, "a whole number from 1"),
    ("repetition_penalty", 0.0, "a finite number from 0.001 to 1000"),
    ("repetition_penalty", -1.0, "a finite number"),
    ("repetition_penalty", math.inf, "a finite number"),
    ("presence_penalty", 2.1, "a finite number from -2 to 2"),
    ("frequency_penalty", math.nan, "a finite number from -2 to 2"),
    ("length_penalty", math.inf, "a finite number from -20 to 20"),
    ("no_repeat_ngram_size", -1, "a whole number from 0"),
    ("num_beams", 0, "a whole number from 1 to 64"),
    ("num_beams", 10**6, "a whole number from 1 to 64"),
    ("early_stopping", "always", 'True, False or "never"'),
    ("early_stopping", 1, 'True, False or "never"'),
    ("renormalize_logits", 1, "True or False"),
    ("seed", 1.5, "a whole number"),
    ("seed", "abc", "a whole number"),
    ("seed", 2**64, "a whole number"),
    ("stop", "", "strings of 1 to 1000 characters"),
    ("stop", ["ok", ""], "strings of 1 to 1000 characters"),
    ("stop", "x" * 1001, "strings of 1 to 1000 characters"),
    ("stop", [1], "strings of 1 to 1000 characters"),
    ("stop", 5, "a list of strings"),
    ("stop", b"END", "a list of strings"),
    ("eos_token_id", -1, "a whole number from 0"),
    ("eos_token_id", [2, "3"], "a whole number from 0"),
    ("eos_token_id", "2", "a list of token ids"),
    ("eos_token_id", True, "a whole number from 0"),
    ("pad_token_id", 0.5, "a whole number from 0"),
    ("suppress_tokens", 1.5, "a list of token ids"),
    ("bad_words_ids", [5], "a list of lists of token ids"),
    ("bad_words_ids", [[]], "at least one token id"),
    ("bad_words_ids", [[1, -1]], "a whole number from 0"),
    ("logit_bias", [1, 2], "a dictionary"),
]


@pytest.mark.parametrize(
    ("name", "value", "allowed"), REFUSED, ids=[f"{each[0]}-{i}" for i, each in enumerate(REFUSED)]
)
def test_refused(name, value, allowed):
    with pytest.raises(GenerationError) as refusal:
        Settings(**{name: value})
    sentence = str(refusal.value)
    assert sentence.startswith(f"{name} is ")
    assert allowed in sentence
    assert len(sentence) < 300
    assert "\n" not in sentence
    with pytest.raises(GenerationError, match=name):
        Settings().replace(**{name: value})


def test_ten_thousand_stop_strings():
    with pytest.raises(GenerationError, match="stop has 10000 strings: it must be a list of at most 64"):
        Settings(stop=tuple(str(i) for i in range(10_000)))


def test_too_many_bad_words():
    with pytest.raises(GenerationError, match="bad_words_ids has 10001 words"):
        Settings(bad_words_ids=((1,),) * 10_001)


@pytest.mark.parametrize(
    ("bias", "sentence"),
    [
        ({3: math.nan}, r"logit_bias\[3\] is nan: it must be a finite number from -1e\+06 to 1e\+06"),
        ({3: -math.inf}, r"logit_bias\[3\] is -inf"),
        ({3: "1"}, r"logit_bias\[3\] is '1'"),
        ({"3": 1.0}, "an id in logit_bias is '3': it must be a whole number"),
        ({-3: 1.0}, "an id in logit_bias is -3"),
        ({True: 1.0}, "an id in logit_bias is True"),
    ],
)
def test_logit_bias(bias, sentence):
    with pytest.raises(GenerationError, match=sentence):
        Settings(logit_bias=bias)


@pytest.mark.parametrize(
    "given",
    [
        {"logit_bias": {100: 1.0}},
        {"eos_token_id": 100},
        {"pad_token_id": 100},
        {"forced_bos_token_id": 100},
        {"forced_eos_token_id": [5, 100]},
        {"suppress_tokens": [100]},
        {"begin_suppress_tokens": [100]},
        {"bad_words_ids": [[5, 100]]},
        {"decoder_start_token_id": 100},
    ],
)
def test_ids_outside_the_vocabulary(given):
    (name,) = given
    settings = Settings(**given)
    settings.check(n_vocab=101, context=8)
    with pytest.raises(
        GenerationError, match=f"{name} is 100: it must be an id of the model's vocabulary, from 0 to 99"
    ):
        settings.check(n_vocab=100, context=8)


def test_what_does_not_fit_the_model():
    Settings(max_new_tokens=8).check(n_vocab=10, context=8)
    with pytest.raises(GenerationError, match="max_new_tokens is 9: it must be at most the model's context of 8"):
        Settings(max_new_tokens=9).check(n_vocab=10, context=8)
    with pytest.raises(GenerationError, match="n is 3: it must be at most num_beams, which is 2"):
        Settings(n=3, num_beams=2).check(n_vocab=10, context=8)


@pytest.mark.parametrize("name", ["forced_bos_token_id", "forced_eos_token_id"])
def test_a_token_both_forced_and_banned(name):
    forced: dict[str, Any] = {name: 0}
    Settings(**forced, suppress_tokens=(1,)).check(n_vocab=10, context=8)
    with pytest.raises(GenerationError, match=f"{name} is .*0.*a token that suppress_tokens does not ban"):
        Settings(**forced, suppress_tokens=(0,)).check(n_vocab=10, context=8)


@pytest.mark.parametrize(
    "bad", [{"top_k": "50"}, {"do_sample": "yes"}, {"eos_token_id": {"id": 2}}, {"num_beams": 10**9}]
)
def test_a_models_file_is_named(bad):
    with pytest.raises(GenerationError, match=r"In config\.json, "):
        Settings.from_generation_config(bad, where="config.json")


def test_refusal_is_quick_and_short_for_huge_values():
    began = time.thread_time()
    values: tuple[Any, ...] = (["x"] * 1_000_000, "x" * 10_000_000)
    for value in values:
        with pytest.raises(GenerationError) as refusal:
            Settings(stop=value)
        assert len(str(refusal.value)) < 300
    assert time.thread_time() - began < 1.0
