"""Settings: those of a model's file, those of the caller, and the length of an answer."""

from typing import Any

import numpy as np
import pytest

from regard.engine.settings import Settings
from regard.errors import GenerationError


def test_default_is_greedy_and_changes_nothing():
    settings = Settings()
    assert (settings.temperature, settings.num_beams, settings.n) == (0.0, 1, 1)
    assert (settings.top_k, settings.top_p, settings.min_p, settings.typical_p) == (0, 1.0, 0.0, 1.0)
    assert (settings.repetition_penalty, settings.no_repeat_ngram_size) == (1.0, 0)


def test_values_are_stored_in_one_form():
    given: dict[str, Any] = {"stop": "END", "eos_token_id": 2, "forced_eos_token_id": [2, 3], "temperature": 1}
    settings = Settings(**given, bad_words_ids=[[1], [4, 5]], top_k=np.int64(5))  # type: ignore[arg-type]
    assert settings.stop == ("END",)
    assert settings.eos_token_id == (2,)
    assert settings.forced_eos_token_id == (2, 3)
    assert settings.bad_words_ids == ((1,), (4, 5))
    assert isinstance(settings.temperature, float)
    assert type(settings.top_k) is int
    twice: dict[str, Any] = {"stop": ["a", "b", "a"], "eos_token_id": [7, 7]}
    assert (Settings(**twice).stop, Settings(**twice).eos_token_id) == (("a", "b"), (7,))


def test_does_not_share_the_callers_dictionary():
    bias = {3: 1.0}
    settings = Settings(logit_bias=bias)
    bias[4] = 2.0
    assert settings.logit_bias == {3: 1.0}


class TestFromGenerationConfig:
    def test_without_sampling_is_greedy_whatever_the_temperature(self):
        config = {"do_sample": False, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2], "pad_token_id": 0}
        settings = Settings.from_generation_config(config)
        assert settings == Settings(temperature=0.0, top_p=0.9, eos_token_id=(1, 2), pad_token_id=0)
        assert Settings.from_generation_config({"temperature": 0.6}).temperature == 0.0

    def test_sampling_without_top_k_means_fifty(self):
        settings = Settings.from_generation_config({"do_sample": True, "temperature": 0.6, "top_p": 0.9})
        assert (settings.temperature, settings.top_p, settings.top_k) == (0.6, 0.9, 50)
        assert Settings.from_generation_config({"do_sample": True, "top_k": 0}).top_k == 0
        assert Settings.from_generation_config({"do_sample": True}).temperature == 1.0

    def test_defaults_agree_with_transformers(self):
        import transformers

        unsaid = transformers.GenerationConfig._get_default_generation_params()
        sampling = Settings.from_generation_config({"do_sample": True})
        for name in ("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "num_beams"):
            assert getattr(sampling, name) == unsaid[name], name
        assert sampling.no_repeat_ngram_size == unsaid["no_repeat_ngram_size"]
        assert sampling.n == unsaid["num_return_sequences"]

    def test_a_summariser(self):
        config = {
            "bos_token_id": 0, "decoder_start_token_id": 2, "early_stopping": True, "eos_token_id": 2,
            "forced_bos_token_id": 0, "forced_eos_token_id": 2, "length_penalty": 2.0, "max_length": 142,
            "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4, "pad_token_id": 1,
            "transformers_version": "4.27.0.dev0",
        }  # fmt: skip
        assert Settings.from_generation_config(config) == Settings(
            bos_token_id=0,
            decoder_start_token_id=2,
            early_stopping=True,
            eos_token_id=(2,),
            forced_bos_token_id=0,
            forced_eos_token_id=(2,),
            length_penalty=2.0,
            max_length=142,
            min_length=56,
            no_repeat_ngram_size=3,
            num_beams=4,
            pad_token_id=1,
        )

    def test_a_translator(self):
        config = {"bad_words_ids": [[58100]], "num_beams": 6, "renormalize_logits": True, "max_length": 512}
        settings = Settings.from_generation_config(config)
        assert settings.bad_words_ids == ((58100,),)
        assert settings.renormalize_logits is True
        assert settings.num_beams == 6

    def test_nulls_unknown_keys_and_other_names(self):
        config = {
            "top_p": None,
            "d_model": 512,
            "architectures": ["X"],
            "stop_strings": "###",
            "num_return_sequences": 3,
        }
        assert Settings.from_generation_config(config) == Settings(stop=("###",), n=3)

    def test_legacy_keys_and_values(self):
        config = {"bos_token_id": 0, "pad_token_id": -1, "force_bos_token_to_be_generated": True}
        settings = Settings.from_generation_config(config)
        assert settings.forced_bos_token_id == 0
        assert settings.pad_token_id is None

    def test_new_token_counts_override_lengths_of_the_file(self):
        settings = Settings.from_generation_config(
            {"max_length": 20, "max_new_tokens": 5, "min_length": 9, "min_new_tokens": 2}
        )
        assert (settings.max_length, settings.min_length) == (None, 0)


class TestReplace:
    def test_none_is_not_given_and_zero_is(self):
        model = Settings(temperature=0.7, top_k=50)
        assert model.replace(temperature=None, top_k=None) == model
        assert model.replace(temperature=0).temperature == 0.0
        assert model.replace(top_k=0).top_k == 0

    def test_new_token_counts_override_lengths(self):
        model = Settings(max_length=142, min_length=56)
        assert model.replace(max_new_tokens=5).max_length is None
        assert model.replace(min_new_tokens=0).min_length == 0
        assert model.replace(top_k=5).min_length == 56

    def test_beams_and_temperature_override_each_other(self):
        assert Settings(temperature=0.7).replace(num_beams=4).temperature == 0.0
        assert Settings(num_beams=4).replace(temperature=0.7).num_beams == 1
        both = Settings().replace(num_beams=4, temperature=0.7)
        with pytest.raises(GenerationError, match=r"temperature is 0\.7: it must be 0 with num_beams=4"):
            both.check(n_vocab=10, context=10)

    def test_unknown_name_suggests_the_nearest(self):
        with pytest.raises(GenerationError, match=r"'max_new_token': did you mean max_new_tokens\?"):
            Settings().replace(max_new_token=3)


class TestSeed:
    def test_a_given_seed_stays(self):
        assert Settings(seed=0).seeded().seed == 0

    def test_a_fresh_seed_is_reported_and_new_each_time(self):
        seeds = {Settings().seeded().seed for _ in range(8)}
        assert len(seeds) == 8
        assert all(isinstance(seed, int) and 0 <= seed < 2**53 for seed in seeds)


class TestNewTokenLimit:
    @pytest.mark.parametrize(
        ("given", "prompt", "room"),
        [
            ({"max_new_tokens": 5}, 3, 5),
            ({"max_new_tokens": 5}, 14, 2),  # ends where the context of 16 ends
            ({"max_new_tokens": 0}, 3, 0),
            ({"max_new_tokens": 0}, 16, 0),
            ({}, 3, 13),
            ({}, 15, 1),
            ({}, 0, 16),
            ({"max_length": 10}, 3, 7),
            ({"max_length": 100}, 3, 13),
            ({"max_length": 10, "max_new_tokens": 2}, 12, 2),
        ],
    )
    def test_new_token_limit(self, given, prompt, room):
        assert Settings(**given).new_token_limit(prompt, context=16) == room

    @pytest.mark.parametrize("given", [{}, {"max_new_tokens": 1}, {"max_length": 100}])
    def test_a_full_context_is_refused(self, given):
        with pytest.raises(GenerationError, match=r"16 tokens and the model's context holds 16.*at most 15"):
            Settings(**given).new_token_limit(16, context=16)

    def test_longer_than_the_context(self):
        with pytest.raises(GenerationError, match="17 tokens"):
            Settings(max_new_tokens=0).new_token_limit(17, context=16)

    def test_max_length_used_up_by_the_prompt(self):
        with pytest.raises(GenerationError, match=r"max_length is 10 .* 12 tokens already: give max_new_tokens"):
            Settings(max_length=10).new_token_limit(12, context=16)
