"""Validation of config.json: unknown keys are refused, known configurations and those that training writes are accepted."""

import pytest

import tiny_tokenizers
from regard.errors import ConfigError
from regard.model.config import Config
from regard.model.known import CONFIGS
from regard.model.registry import spec_of
from regard.text.tokenizer import Tokenizer
from regard.train.settings import TrainSettings
from regard.train.task import task_named


def test_unread_keys_are_refused_by_name() -> None:
    c = Config({"a": 1, "b": 2, "c": 3, "d": None, "e": 5}, "the file")
    assert c.size("a") == 1
    c.only({"b": 2})
    with pytest.raises(ConfigError, match=r"the file has 'c' and 1 more, which this version does not know"):
        c.refuse_unknown(())
    with pytest.raises(ConfigError, match=r"the file has 'e', which this version does not know; it may change the net"):
        c.refuse_unknown(("c",))
    c.refuse_unknown(("c", "e"))  # and d is not set


def test_only_keys_with_the_prefix_are_checked() -> None:
    c = Config({"general.name": "x", "llama.a": 1, "llama.b": 2})
    c.refuse_unknown(("llama.a", "llama.b"), within="llama.")
    with pytest.raises(ConfigError, match=r"has 'llama.b', which"):
        c.refuse_unknown(("llama.a",), within="llama.")


def test_two_names_of_one_setting_must_agree() -> None:
    assert Config({"n_layer": 3, "num_hidden_layers": 3}).layers("n_layer", "num_hidden_layers") == 3
    assert Config({"n_layer": None, "num_hidden_layers": 3}).layers("n_layer", "num_hidden_layers") == 3
    with pytest.raises(ConfigError, match=r"n_layer is 3, but num_hidden_layers is 2; they are names of one setting"):
        Config({"n_layer": 3, "num_hidden_layers": 2}).layers("n_layer", "num_hidden_layers")


@pytest.mark.parametrize(("value", "fits"), [(True, True), (False, False), (1, False), (None, False), ("true", False)])
def test_a_setting_of_which_one_value_is_implemented(value: object, fits: bool) -> None:
    c = Config({"is_causal": value})
    if fits:
        c.only({"is_causal": True})
    else:
        with pytest.raises(ConfigError, match=r"is_causal is .*, but must be true: nothing else is implemented"):
            c.only({"is_causal": True})


def test_null_means_off() -> None:
    Config({"a": None, "b": None, "c": None}).only({"a": False, "b": {}, "c": 0})
    assert Config({"eos_token_id": None}).ids("eos_token_id", (2,)) == ()
    assert Config({"pad_token_id": None}).id("pad_token_id", 1) is None
    assert Config({}).id("pad_token_id", 1) == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_known_configs_are_accepted(name: str) -> None:
    spec, vocabulary = spec_of(CONFIGS[name]), {"gpt2": 50257, "bert": 30522, "bart": 50265, "llama": 32000}
    assert spec.n_vocab == vocabulary.get(CONFIGS[name]["model_type"], 37000)


@pytest.mark.parametrize(
    ("task", "family"),
    [("lm", "gpt2"), ("lm", "llama"), ("chat", None), ("mlm", None), ("classify", None), ("tag", None)]
    + [("translate", family) for family in ("m2m_100", "bart", "mbart", "marian", "vaswani", "gru")],
)
def test_configs_that_training_writes_are_accepted(task: str, family: str | None) -> None:
    raw = tiny_tokenizers.wordpiece() if task in ("mlm", "classify", "tag") else tiny_tokenizers.byte_level()
    roles = (
        {"pad": "[PAD]", "mask": "[MASK]"}
        if task in ("mlm", "classify", "tag")
        else dict.fromkeys(("eos", "pad"), "<|endoftext|>")
    )
    settings = TrainSettings(task, family=family)
    made = task_named(task)(settings, Tokenizer(raw, specials=roles), ("no", "yes"))
    spec = spec_of({key: value for key, value in made.config().items() if value is not None})
    assert (spec.n_vocab, spec.head.kind) == (raw.get_vocab_size(), {"chat": "lm", "translate": "lm"}.get(task, task))
