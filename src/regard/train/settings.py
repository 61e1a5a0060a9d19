"""What a person may set for a training run: a TOML file, flags over it, and defaults that suit the task.

The effective settings are written into the run, so that it can be understood, resumed and repeated.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.modelfile import SMALL, read_file

GOING_ON = 1e-4  # the learning rate for a model that has learnt already


@dataclass(frozen=True)
class TrainSettings:
    # what and where
    task: str
    data: tuple[str, ...] = ()
    out: str = ""
    eval_data: tuple[str, ...] = ()  # else a share of `data` is held out
    eval_share: float = 0.02
    format: str | None = None  # of the data, if its name does not say
    document: str | None = None  # plain text: a "file", a "paragraph" or a "line" is one text
    start: str | None = None  # `--from`: a model to go on from
    # text
    tokenizer: str = "bpe"  # bpe, wordpiece, unigram or characters, trained on the data; or a model's to take
    vocab_size: int = 4096
    block_size: int = 256  # the longest text, in tokens
    # the network, when trained from scratch
    family: str | None = None
    layers: int = 4
    width: int = 256
    heads: int = 4
    d_ff: int | None = None
    dropout: float = 0.1
    # how long, how much
    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int = 16  # texts per step
    batch_tokens: int | None = None  # instead: tokens per step, texts of like length together
    accumulate: int = 1  # parts a step is computed in
    # the optimiser
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup_steps: int = 100
    weight_decay: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.95
    clip: float = 1.0
    label_smoothing: float = 0.0
    class_weights: bool = False
    whole_word: bool = False
    # what is kept and shown
    log_steps: int = 10
    eval_steps: int | None = None  # else ten times a run
    save_steps: int | None = None
    save_total_limit: int = 2
    patience: int | None = None  # evaluations without improvement before stopping
    probes: tuple[str, ...] = ()
    probe_steps: int = 100
    # the machine
    seed: int = 0
    bf16: bool = False
    compile: bool = False
    checkpoint_activations: bool = False
    threads: int | None = None
    shard: bool = False  # under torchrun: FSDP2 instead of DDP

    def __post_init__(self) -> None:
        at_least = {
            "vocab_size": 4,
            "block_size": 2,
            "layers": 1,
            "width": 1,
            "heads": 1,
            "batch_size": 1,
            "accumulate": 1,
        }
        at_least |= {
            "log_steps": 1,
            "eval_steps": 1,
            "save_steps": 1,
            "save_total_limit": 1,
            "probe_steps": 1,
            "patience": 1,
        }
        at_least |= {"max_steps": 1, "warmup_steps": 0, "batch_tokens": 1, "d_ff": 1, "threads": 1, "seed": 0}
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{flag(name)} is {value!r}; it must be a whole number of at least {least}.")
        shares = {"dropout": 1.0, "label_smoothing": 1.0, "eval_share": 1.0, "beta_1": 1.0, "beta_2": 1.0}
        for name, below in shares.items():
            if not 0 <= getattr(self, name) < below:
                raise ConfigError(f"{flag(name)} is {getattr(self, name)!r}; it must be from 0 to below {below:g}.")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{flag(name)} is {getattr(self, name)!r}; it must be above 0.")
        if self.batch_size % self.accumulate:
            raise ConfigError(f"{flag('batch_size')} {self.batch_size} does not divide into {self.accumulate} parts.")

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


def flag(name: str) -> str:
    return "--" + {"start": "from"}.get(name, name).replace("_", "-")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)


def settings_from(task: str, defaults: Mapping[str, Any], file: Path | None, flags: Mapping[str, Any]) -> TrainSettings:
    """Flags over the file over the task's defaults, which are gentler for a model that goes on."""
    said = read_toml(file) if file else {}
    check_names(said, f" in {file}")
    check_names(flags)
    if said.get("task", task) != task:
        raise ConfigError(f"{file} is for {said['task']!r}, not for {task!r}.")
    chosen = {**said, **{k: v for k, v in flags.items() if v is not None}}
    gentle = {"learning_rate": GOING_ON} if chosen.get("start") else {}
    merged = {**defaults, **gentle, **chosen, "task": task}
    for name in ("data", "eval_data", "probes"):
        if isinstance(merged.get(name), list):
            merged[name] = tuple(merged[name])
    try:
        return TrainSettings(**merged)
    except TypeError as problem:
        raise ConfigError(f"The training settings do not fit: {problem}.") from None


def check_names(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse what is no setting of a run, also if it is None, which else stands for what was not given."""
    known = {each.name for each in fields(TrainSettings)}
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"There is no training setting {unknown!r}{where}.")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(read_file(path, SMALL, ConfigError).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}.") from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def same_but(a: TrainSettings, b: TrainSettings, free: set[str]) -> list[str]:
    """Settings in which two runs differ, except those that may change between a run and its continuation."""
    return [
        each.name
        for each in dataclasses.fields(a)
        if each.name not in free and getattr(a, each.name) != getattr(b, each.name)
    ]
