"""The settings (hyperparameters) of a training run: flags, over a TOML file, over the task's defaults.

Every value is checked here, wherever it comes from, before anything is read or allocated. The effective settings are
written into the run's `run.toml`, so that it can be understood, resumed and repeated.
"""

import dataclasses
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, quoted
from regard.model.config import LARGEST_NUMBER, LARGEST_SIZE, MAX_LAYERS
from regard.safe_open import SMALL, read_file
from regard.train.tokenizer import KINDS

FINE_TUNING_RATE = 1e-4  # default learning rate with --from
MAX_STEPS = 10**12
MAX_PROBE_LENGTH = 10_000  # characters
NOT_GIVEN: Any = None  # from scratch, the default is in `FROM_SCRATCH`; with --from, it is the model's


@dataclass(frozen=True)
class TrainSettings:
    """A run's settings. Each is a flag of `regard train` (`--batch-size`) and a key of run.toml (`batch_size`)."""

    # task and data
    task: str
    data: tuple[str, ...] = ()
    out: str = ""
    eval_data: tuple[str, ...] = ()  # else a share of `data` is held out
    eval_share: float = 0.02
    format: str | None = None  # of the data, unless its file name extension tells
    document: str | None = None  # plain text: a "file", a "paragraph" or a "line" is one text
    start: str | None = None  # `--from`: a model to fine-tune
    # text
    tokenizer: str = NOT_GIVEN  # bpe, wordpiece, unigram or characters, trained on the data; or a model whose to use
    vocab_size: int = NOT_GIVEN
    block_size: int = NOT_GIVEN  # the longest text, in tokens (context length)
    # the network
    family: str | None = None
    layers: int = NOT_GIVEN
    width: int = NOT_GIVEN
    heads: int = NOT_GIVEN
    d_ff: int | None = None
    dropout: float = NOT_GIVEN
    # length and batches
    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int = 16  # examples per step, over all processes and micro-batches
    batch_tokens: int | None = None  # instead: tokens per step, examples of similar length in a batch
    accumulate: int = 1  # gradient accumulation: micro-batches per step
    # optimizer, learning rate schedule and loss
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup_steps: int = 100
    weight_decay: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.95
    clip: float = 1.0  # the largest norm of the gradient
    label_smoothing: float = 0.0
    class_weights: bool = False
    whole_word: bool = False
    # logging, evaluation, checkpoints and early stopping
    log_steps: int = 10
    eval_steps: int | None = None  # else ten times a run
    save_steps: int | None = None  # else as eval_steps
    save_total_limit: int = 2  # checkpoints kept, besides the best
    patience: int | None = None  # early stopping: evaluations without improvement
    probes: tuple[str, ...] = ()
    probe_steps: int = 100
    # the machine
    seed: int = 0
    bf16: bool = False
    compile: bool = False
    checkpoint_activations: bool = False  # activation checkpointing
    threads: int | None = None
    shard: bool = False  # data parallel under torchrun: FSDP2 instead of DDP

    def __post_init__(self) -> None:
        for each in fields(self):
            if (value := getattr(self, each.name)) is not each.default:  # not `!=`: True equals 1
                check(each.name, value, flag(each.name))
                if each.name in NUMBERS:  # an int is accepted, but AdamW wants a float
                    object.__setattr__(self, each.name, float(value))
        for name, tasks in ONLY_FOR.items():
            if getattr(self, name) and self.task not in tasks:
                raise ConfigError(f"{flag(name)} is for {' and '.join(tasks)}, not for {self.task}; leave it out.")
        if self.batch_size % self.accumulate:
            raise ConfigError(f"{flag('batch_size')} {self.batch_size} does not divide into {self.accumulate} parts.")
        if self.start is None:
            own = (
                {} if self.tokenizer in (None, *KINDS) else {"vocab_size": None}
            )  # a model's vocabulary cannot be changed
            for name, usual in {**FROM_SCRATCH, **own}.items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, usual)

    @property
    def run(self) -> Path:
        return Path(self.out)

    def as_toml(self) -> str:
        lines = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                lines.append(f"{each.name} = {_toml(value)}")
        return "\n".join(lines) + "\n"


FROM_SCRATCH: dict[str, Any] = {"tokenizer": "bpe", "vocab_size": 4096, "block_size": 256}
FROM_SCRATCH |= {"layers": 4, "width": 256, "heads": 4, "dropout": 0.1}
ONLY_FOR = {"whole_word": ("mlm",), "class_weights": ("classify",), "label_smoothing": ("classify", "translate")}

# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SIZE, STEPS = (1, LARGEST_SIZE), (1, MAX_STEPS)
# minimum and maximum; available memory limits them further
WHOLE = {"vocab_size": (4, LARGEST_SIZE), "block_size": (2, LARGEST_SIZE), "layers": (1, MAX_LAYERS)}
WHOLE |= dict.fromkeys(("width", "heads", "d_ff", "batch_size", "batch_tokens", "accumulate"), SIZE)
WHOLE |= dict.fromkeys(("max_steps", "log_steps", "eval_steps", "save_steps", "probe_steps"), STEPS)
WHOLE |= {"warmup_steps": (0, MAX_STEPS), "save_total_limit": STEPS, "patience": STEPS}
WHOLE |= {"seed": (0, 2**63 - 1), "threads": (1, 1024)}

Limit = tuple[Callable[[float], bool], str]  # NaN fails every comparison
SHARE: Limit = (lambda x: 0 <= x < 1, "from 0 to below 1")
NUMBERS: dict[str, Limit] = {
    **dict.fromkeys(("eval_share", "dropout", "beta_1", "beta_2", "label_smoothing"), SHARE),
    "epochs": (lambda x: 0 < x <= 1e6, "above 0, up to 1,000,000"),
    "learning_rate": (lambda x: 0 < x <= 1e3, "above 0, up to 1,000"),
    "weight_decay": (lambda x: 0 <= x <= 1e3, "from 0 to 1,000"),
    "clip": (lambda x: 0 < x <= LARGEST_NUMBER, "above 0 and finite"),
}
FLAGS = ("class_weights", "whole_word", "bf16", "compile", "checkpoint_activations", "shard")
LISTS = ("data", "eval_data", "probes")


def check(name: str, value: Any, called: str) -> None:
    """Refuse a value that the setting cannot have. A setting in none of the tables above is a string."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in WHOLE:
        least, most = WHOLE[name]
        fits, expected = number and isinstance(value, int) and least <= value <= most, "a whole number"
        expected += f" from {least} to {most:,}"
    elif name in NUMBERS:
        within, words = NUMBERS[name]
        fits, expected = number and within(value), f"a number {words}"
    elif name in FLAGS:
        fits, expected = isinstance(value, bool), "true or false"
    elif name in LISTS:
        fits, expected = isinstance(value, tuple) and all(map(is_text, value)), "a list of texts, none of them empty"
        if fits and name == "probes" and any(len(text) > MAX_PROBE_LENGTH or not text.strip() for text in value):
            fits, expected = False, f"a list of texts of 1 to {MAX_PROBE_LENGTH:,} characters"
    else:
        fits, expected = is_text(value) and "\0" not in value, "text, and not empty"
    if not fits:
        raise ConfigError(f"{called} is {quoted(value)}; it must be {expected}.")


def is_text(value: object) -> bool:
    """Whether it is a string for run.toml: not empty, and without lone surrogates (from bytes that are not UTF-8)."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= c <= "\udfff" for c in value)


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + {"start": "from", "probes": "probe"}.get(name, name).replace("_", "-")


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):  # JSON's escapes are valid TOML, which also needs one for U+007F
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)


def settings_from(task: str, defaults: Mapping[str, Any], file: Path | None, flags: Mapping[str, Any]) -> TrainSettings:
    """Flags, over the file, over the task's defaults (with a lower learning rate for fine-tuning)."""
    from_file = read_toml(file) if file else {}
    check_names(from_file, f" in {file}")
    check_names(flags)
    for name, value in from_file.items():
        check(name, _plain(name, value), f"{file}: {name}")
    if from_file.get("task", task) != task:
        raise ConfigError(f"{file} is for {quoted(from_file['task'])}, not for {quoted(task)}.")
    chosen = {**from_file, **{k: v for k, v in flags.items() if v is not None}}
    if chosen.get("start"):
        from_model = ("tokenizer", "block_size")
        defaults = {k: v for k, v in defaults.items() if k not in from_model} | {"learning_rate": FINE_TUNING_RATE}
    merged = {**defaults, **chosen, "task": task}
    try:
        return TrainSettings(**{name: _plain(name, value) for name, value in merged.items()})
    except TypeError as problem:
        raise ConfigError(f"The training settings do not fit: {problem}.") from None


def check_names(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse unknown names, also those whose value is None (which means "not given" for a known one)."""
    known = {each.name for each in fields(TrainSettings)}
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"There is no training setting {quoted(unknown)}{where}.")


def _plain(name: str, value: Any) -> Any:
    """Paths as text, lists as tuples."""
    if name in LISTS and isinstance(value, list | tuple):
        return tuple(_plain("", each) for each in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def read_toml(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(read_file(path, SMALL, ConfigError).decode())
    except (ValueError, RecursionError) as problem:  # bad syntax, not UTF-8, a number of 5000 digits, nested too deep
        raise ConfigError(f"{path} is not valid TOML: {problem}.") from None
    named = {name.replace("-", "_"): value for name, value in values.items()}
    if len(named) < len(values):
        raise ConfigError(f"{path} sets something twice, once with - and once with _ in its name.")
    return named


def changed_settings(a: TrainSettings, b: TrainSettings, free: set[str]) -> list[str]:
    """The names of settings in which two runs differ, except those in `free`, which may change when resuming."""
    return [
        each.name
        for each in dataclasses.fields(a)
        if each.name not in free and getattr(a, each.name) != getattr(b, each.name)
    ]
