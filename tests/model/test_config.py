"""The door that every config.json goes through: what was not read is refused, and what training writes passes."""

import pytest

import tiny_tokenizers
from regard.errors import ConfigError
from regard.model.config import Config
from regard.model.known import CONFIGS
from regard.model.registry import spec_of
from regard.text.tokenizer import Tokenizer
from regard.train.settings import TrainSettings
from regard.train.task import task_named


def test_what_was_not_read_is_refused_by_name() -> None:
    c = Config({"a": 1, "b": 2, "c": 3, "d": None, "e": 5}, "the file")
    assert c.size("a") == 1
    c.only({"b": 2})
    with pytest.raises(ConfigError, match=r"the file has 'c' and 1 more, which this version does not know"):
        c.refuse_unknown(())
    with pytest.raises(ConfigError, match=r"the file has 'e', which this version does not know; it may change the net"):
        c.refuse_unknown(("c",))
    c.refuse_unknown(("c", "e"))  # and d is not set


def test_only_some_of_the_keys_are_asked_about() -> None:
    c = Config({"general.name": "x", "llama.a": 1, "llama.b": 2})
    c.refuse_unknown(("llama.a", "llama.b"), within="llama.")
    with pytest.raises(ConfigError, match=r"has 'llama.b', which"):
        c.refuse_unknown(("llama.a",), within="llama.")


def test_two_names_of_one_setting() -> None:
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


def test_null_is_off() -> None:
    Config({"a": None, "b": None, "c": None}).only({"a": False, "b": {}, "c": 0})
    assert Config({"eos_token_id": None}).ids("eos_token_id", (2,)) == ()
    assert Config({"pad_token_id": None}).id("pad_token_id", 1) is None
    assert Config({}).id("pad_token_id", 1) == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_known_by_name(name: str) -> None:
    assert spec_of(CONFIGS[name])


@pytest.mark.parametrize(
    ("task", "family"),
    [("lm", "gpt2"), ("lm", "llama"), ("chat", None), ("mlm", None), ("classify", None), ("tag", None)]
    + [("translate", family) for family in ("m2m_100", "bart", "mbart", "marian", "vaswani", "gru")],
)
def test_what_training_begins_with(task: str, family: str | None) -> None:
    raw = tiny_tokenizers.wordpiece() if task in ("mlm", "classify", "tag") else tiny_tokenizers.byte_level()
    roles = (
        {"pad": "[PAD]", "mask": "[MASK]"}
        if task in ("mlm", "classify", "tag")
        else dict.fromkeys(("eos", "pad"), "<|endoftext|>")
    )
    settings = TrainSettings(task, family=family)
    made = task_named(task)(settings, Tokenizer(raw, specials=roles), ("no", "yes"))
    assert spec_of({key: value for key, value in made.config().items() if value is not None})
