"""Generation settings (temperature, top_p, num_beams, stop, …), validated once, before any work is done.

In: keyword arguments under their conventional names, or the dictionary of a `generation_config.json` (or of an old
`config.json`, which held those keys). Out: one frozen `Settings` in which every value is in range and every list is a
tuple, so that nothing downstream checks again. A value out of range raises a `GenerationError` naming the setting, the
value and what is allowed.

The length of an answer, in the edge cases:

- `max_new_tokens=0` generates nothing: the prompt is checked and the answer is empty.
- `max_new_tokens=None` leaves the length to `max_length` (prompt included), else to what is left of the context.
- Prompt and answer together fit into the context. More new tokens than fit after the prompt end at the context's
  end; more than the whole context holds are refused as a mistake. A prompt that fills the context, or is longer than
  it, is refused (filling it exactly is fine for `max_new_tokens=0`).
- Where minimum and maximum contradict each other, the maximum wins.
"""

import dataclasses
import math
import numbers
import reprlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from regard.errors import GenerationError, TooLong

MAX_ANSWERS = 128  # n
MAX_BEAMS = 64
MAX_GUESS = 64  # prompt_lookup
MAX_STOPS = 64
MAX_STOP_LENGTH = 1000  # characters
MAX_BAD_WORDS = 10_000
MAX_TOKENS = 2**31 - 1  # of any length or id; `check` compares with the model itself

_INTEGERS: dict[str, tuple[int, int]] = {
    "max_new_tokens": (0, MAX_TOKENS),
    "min_new_tokens": (0, MAX_TOKENS),
    "max_length": (1, MAX_TOKENS),
    "min_length": (0, MAX_TOKENS),
    "top_k": (0, MAX_TOKENS),
    "no_repeat_ngram_size": (0, 1000),
    "num_beams": (1, MAX_BEAMS),
    "n": (1, MAX_ANSWERS),
    "prompt_lookup": (0, MAX_GUESS),
    "seed": (-(2**63), 2**64 - 1),
    "forced_bos_token_id": (0, MAX_TOKENS),
    "decoder_start_token_id": (0, MAX_TOKENS),
    "bos_token_id": (0, MAX_TOKENS),
    "pad_token_id": (0, MAX_TOKENS),
}
_REALS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repetition_penalty": (1e-3, 1e3),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "length_penalty": (-20.0, 20.0),
}
_ABOVE = ("top_p", "typical_p")  # the lower bound is exclusive
_ID_LISTS = ("eos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens")
_SINGLE_IDS = ("forced_bos_token_id", "decoder_start_token_id", "bos_token_id", "pad_token_id")
_LOGIT_BIAS = (-1e6, 1e6)

# The two settings that have another name in a generation_config.json.
_RENAMED = {"stop_strings": "stop", "num_return_sequences": "n"}
_TOP_K_DEFAULT = 50  # what transformers samples with when the file does not name top_k

# A setting given by the caller overrides an equivalent one of the model's file.
_OVERRIDES: dict[str, dict[str, Any]] = {
    "max_new_tokens": {"max_length": None},
    "min_new_tokens": {"min_length": 0},
}


@dataclass(frozen=True)
class Settings:
    """How the next tokens are chosen and when to stop. The default is greedy decoding: temperature 0, one beam."""

    max_new_tokens: int | None = None
    min_new_tokens: int = 0  # end tokens are banned until so many tokens are generated
    max_length: int | None = None  # as max_new_tokens and min_new_tokens, with the prompt counted
    min_length: int = 0
    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    typical_p: float = 1.0  # 1: off
    repetition_penalty: float = 1.0  # on the prompt and the answer
    presence_penalty: float = 0.0  # on the answer alone, like frequency_penalty
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    logit_bias: dict[int, float] = field(default_factory=dict)
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False  # True, False or "never"
    renormalize_logits: bool = False  # beams: log-probabilities sum to one again after tokens were banned
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = 1
    prompt_lookup: int = 0  # 0: off; else the most draft tokens per step, which changes the speed and never the text
    forced_bos_token_id: int | None = None
    forced_eos_token_id: tuple[int, ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    decoder_start_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: tuple[int, ...] = ()
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _INTEGERS.items():
            value = getattr(self, name)
            if value is not None or _DEFAULTS[name] is not None:
                self._set(name, _integer(name, value, low, high))
        for name in _REALS:
            self._set(name, _real(name, getattr(self, name), *_REALS[name]))
        for name in _ID_LISTS:
            self._set(name, _ids(name, getattr(self, name)))
        self._set("bad_words_ids", _bad_words(self.bad_words_ids))
        self._set("logit_bias", _logit_bias(self.logit_bias))
        self._set("stop", _stops(self.stop))
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            _refuse("early_stopping", self.early_stopping, 'True, False or "never"')
        if not isinstance(self.renormalize_logits, bool):
            _refuse("renormalize_logits", self.renormalize_logits, "True or False")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any], where: str = "generation_config.json") -> "Settings":
        """The settings of a model's file. Keys that are null or unknown to this package are ignored.

        `do_sample` false or missing means temperature 0, whatever temperature the file also gives. A file that samples
        and does not name `top_k` samples from the best 50, which is the default of transformers.
        """
        stated = {_RENAMED.get(name, name): value for name, value in config.items() if value is not None}
        given = {name: value for name, value in stated.items() if name in _DEFAULTS}
        for name in _SINGLE_IDS:
            if isinstance(given.get(name), int) and given[name] < 0:
                del given[name]  # old files write -1 for none
        if not isinstance(stated.get("do_sample", False), bool):
            raise GenerationError(f"In {where}, do_sample is {_short(stated['do_sample'])}: it must be true or false.")
        if stated.get("do_sample"):
            given = {"temperature": 1.0, "top_k": _TOP_K_DEFAULT} | given
        else:
            given["temperature"] = 0.0
        if stated.get("force_bos_token_to_be_generated") is True:
            given.setdefault("forced_bos_token_id", given.get("bos_token_id"))
        try:
            return cls().replace(**given)
        except GenerationError as error:
            raise GenerationError(f"In {where}, {error}") from None

    def replace(self, **given: Any) -> "Settings":
        """These settings with those that the caller gave; None means not given.

        A given `max_new_tokens` overrides `max_length`, a given `min_new_tokens` overrides `min_length`. Since beam
        search does not sample, giving num_beams alone sets the temperature to 0, and a temperature alone one beam.
        """
        for name in given:
            if name not in _DEFAULTS:
                import difflib

                near = difflib.get_close_matches(name, _DEFAULTS, 1)
                hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(_DEFAULTS)}."
                raise GenerationError(f"There is no generation setting {_short(name)}: {hint}")
        given = {name: value for name, value in given.items() if value is not None}
        overridden: dict[str, Any] = {}
        for name in given:
            overridden |= _OVERRIDES.get(name, {})
        new = dataclasses.replace(self, **(given | overridden))
        if new.num_beams > 1 and new.temperature > 0 and ("num_beams" in given) != ("temperature" in given):
            new = dataclasses.replace(new, **({"temperature": 0.0} if "num_beams" in given else {"num_beams": 1}))
        return new

    def seeded(self) -> "Settings":
        """These settings with a seed: the one given, or a fresh one, to be reported so the run can be repeated."""
        fresh = secrets.randbits(53)  # exact in a JSON number
        return self if self.seed is not None else dataclasses.replace(self, seed=fresh)

    def check(self, n_vocab: int, context: int) -> None:
        """Refuse settings that are invalid, for any prompt, with a model of `n_vocab` ids and `context` positions."""
        if self.max_new_tokens is not None and self.max_new_tokens > context:
            _refuse("max_new_tokens", self.max_new_tokens, f"at most the model's context of {context} tokens")
        if self.num_beams > 1 and self.temperature > 0:
            _refuse("temperature", self.temperature, f"0 with num_beams={self.num_beams}, since beams do not sample")
        if self.num_beams > 1 and self.n > self.num_beams:
            _refuse("n", self.n, f"at most num_beams, which is {self.num_beams}")
        if self.num_beams > 1 and self.prompt_lookup:
            _refuse(
                "prompt_lookup",
                self.prompt_lookup,
                f"0 with num_beams={self.num_beams}, since beam search is not speculative",
            )
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            forced = getattr(self, name)
            ids = {forced} if isinstance(forced, int) else set(forced or ())
            if ids and ids <= set(self.suppress_tokens):
                _refuse(name, forced, "a token that suppress_tokens does not ban")
        for name, id in self._named_ids():
            if id >= n_vocab:
                _refuse(name, id, f"an id of the model's vocabulary, from 0 to {n_vocab - 1}")

    def _named_ids(self) -> list[tuple[str, int]]:
        """Every token id anywhere in the settings, with the name of its setting."""
        named = [(name, getattr(self, name)) for name in _SINGLE_IDS if getattr(self, name) is not None]
        named += [(name, id) for name in _ID_LISTS for id in getattr(self, name)]
        named += [("bad_words_ids", id) for word in self.bad_words_ids for id in word]
        return named + [("logit_bias", id) for id in self.logit_bias]

    def new_token_limit(self, prompt_length: int, context: int) -> int:
        """How many new tokens may follow a prompt of `prompt_length` tokens; the rules are in the module's docstring.

        For an encoder-decoder the prompt is what the decoder starts with, and the context is the decoder's.
        """
        left = context - prompt_length
        if left < 0 or (left == 0 and self.max_new_tokens != 0):
            raise TooLong(
                f"The prompt has {prompt_length} tokens and the model's context holds {context}, prompt and answer "
                f"together: shorten the prompt to at most {context - 1} tokens."
            )
        if self.max_new_tokens is not None:
            return min(self.max_new_tokens, left)
        if self.max_length is None:
            return left
        if self.max_length <= prompt_length:
            raise GenerationError(
                f"max_length is {self.max_length} and counts the prompt, which has {prompt_length} tokens already: "
                "give max_new_tokens, which counts new tokens only."
            )
        return min(self.max_length - prompt_length, left)


_DEFAULTS: dict[str, Any] = {
    each.name: each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
    for each in dataclasses.fields(Settings)
}


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise GenerationError(f"{name} is {_short(value)}: it must be {allowed}.")


def _short(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return "a number of thousands of digits"


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        _refuse(name, value, f"a whole number from {low} to {high}")
    return int(value)


def _real(name: str, value: object, low: float, high: float) -> float:
    bounds = f"{'above' if name in _ABOVE else 'from'} {low:g}" + ("" if high == math.inf else f" to {high:g}")
    number = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not (math.isfinite(number) and low <= number <= high) or (name in _ABOVE and number == low):
        _refuse(name, value, f"a finite number {bounds}")
    return number


def _listed(name: str, value: object, what: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        _refuse(name, value, f"a list of {what}")
    return value


def _ids(name: str, value: object) -> tuple[int, ...]:
    """One id or a list of them, each once."""
    listed = [value] if isinstance(value, numbers.Integral) else _listed(name, value, "token ids")
    return tuple(dict.fromkeys(_integer(name, each, 0, MAX_TOKENS) for each in listed))


def _bad_words(value: object) -> tuple[tuple[int, ...], ...]:
    words = _listed("bad_words_ids", value, "lists of token ids")
    if len(words) > MAX_BAD_WORDS:
        raise GenerationError(f"bad_words_ids has {len(words)} words: it must be a list of at most {MAX_BAD_WORDS}.")
    for word in words:
        if not _listed("bad_words_ids", word, "lists of token ids"):
            _refuse("bad_words_ids", value, "a list of words of at least one token id each")
    return tuple(tuple(_integer("bad_words_ids", id, 0, MAX_TOKENS) for id in word) for word in words)


def _logit_bias(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        _refuse("logit_bias", value, "a dictionary from token ids to numbers")
    return {
        _integer("an id in logit_bias", id, 0, MAX_TOKENS): _real(f"logit_bias[{_short(id)}]", bias, *_LOGIT_BIAS)
        for id, bias in value.items()
    }


def _stops(value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else _listed("stop", value, "strings")
    if len(listed) > MAX_STOPS:
        raise GenerationError(f"stop has {len(listed)} strings: it must be a list of at most {MAX_STOPS}.")
    for each in listed:
        if not isinstance(each, str) or not 1 <= len(each) <= MAX_STOP_LENGTH:
            _refuse("stop", each, f"a list of strings of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(dict.fromkeys(listed))
