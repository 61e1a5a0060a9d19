"""Validated access to a config.json.

Every value a family reads goes through here, so that "heads": "many", a size of 10⁹ or a NaN gives one error message that
names the key instead of a traceback from the middle of a constructor. A key that no code has read is refused too: it may
describe another network.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from regard.errors import ConfigError, quoted

LARGEST_SIZE = 10_000_000  # of one dimension: the largest real vocabulary and the largest d_ff are under a million
LARGEST_NUMBER = sys.float_info.max  # a JSON number may be larger: 1e999 is read as infinity
MAX_LAYERS = 1_000
MAX_LABELS = 100_000


class Tracked(Mapping[str, Any]):
    """A mapping that records which of its keys were read (`used`)."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.all, self.used = values, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.used.add(key)
        return self.all[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)


class Config:
    """Typed, checked reading of a configuration: each method takes the alternative names of one setting, and a default."""

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self.values, self.where = Tracked(values), where

    def get(self, *keys: str, default: Any = None) -> Any:
        given = [key for key in keys if self.values.get(key) is not None]
        for other in given[1:]:
            if self.values[other] != self.values[given[0]]:
                first, second = (f"{key} is {quoted(self.values[key])}" for key in (given[0], other))
                raise ConfigError(
                    f"{self.where}: {first}, but {second}; they are names of one setting, so one must be removed."
                )
        return self.values[given[0]] if given else default

    def is_null(self, key: str) -> bool:
        """Whether the key is given as `null`, which for some settings differs from leaving it out."""
        return key in self.values and self.values[key] is None

    def only(self, expected: Mapping[str, Any]) -> None:
        """Refuse any other value of settings of which this package implements one: it would be another network."""
        for key, value in expected.items():
            given = self.values.get(key, value)
            off = given is None and not value
            if not off and (given != value or isinstance(given, bool) != isinstance(value, bool)):
                named = value if isinstance(value, str) else json.dumps(value)
                raise self.refuse(key, f"{named}: nothing else is implemented")

    def refuse_unknown(self, harmless: Collection[str], within: str = "") -> None:
        """Refuse, by name, keys that were neither read nor are `harmless`; only those starting with `within`."""
        known = self.values.used.union(harmless)
        unknown = [
            key
            for key, value in self.values.all.items()
            if key not in known and key.startswith(within) and value is not None
        ]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise ConfigError(
                f"{self.where} has {quoted(unknown[0])}{more}, which this version does not know; it may change the "
                "network, so the model is not opened (a key that changes nothing can be removed)."
            )

    def named(self, keys: Sequence[str]) -> str:
        """The alternative name that the file uses."""
        return next((k for k in keys if self.values.get(k) is not None), keys[0])

    def refuse(self, key: str, expected: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key} is {quoted(self.values.get(key))}, but must be {expected}.")

    def size(self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST_SIZE) -> int:
        value = self.get(*keys, default=default)
        if value is None:
            raise ConfigError(f"{self.where} lacks {keys[0]}, without which the model's shape is unknown.")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(self.named(keys), f"a whole number from {least} to {most:,}")
        return value

    def layers(self, *keys: str, default: int | None = None) -> int:
        return self.size(*keys, default=default, most=MAX_LAYERS)

    def number(self, *keys: str, default: float, least: float = 0.0, most: float = LARGEST_NUMBER) -> float:
        value = self.get(*keys, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            upwards = "upwards" if most == LARGEST_NUMBER else f"to {most:g}"
            raise self.refuse(self.named(keys), f"a number from {least:g} {upwards}")  # NaN fails every comparison
        return float(value)

    def rate(self, *keys: str, default: float = 0.0) -> float:
        return self.number(*keys, default=default, most=1.0)

    def flag(self, *keys: str, default: bool) -> bool:
        value = self.get(*keys, default=default)
        if not isinstance(value, bool):
            raise self.refuse(self.named(keys), "true or false")
        return value

    def choice(self, *keys: str, among: Mapping[str, str], default: str) -> str:
        """The value translated through `among`, which lists what this package implements."""
        value = self.get(*keys, default=default)
        if not isinstance(value, str) or value not in among:
            raise self.refuse(self.named(keys), "one of " + ", ".join(among))
        return among[value]

    def ids(self, key: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A token id or a list of them (eos_token_id may be either); `null` and negative ids mean none."""
        if key not in self.values:
            return default
        value = self.get(key, default=[])
        listed = value if isinstance(value, list) else [value]
        if any(isinstance(i, bool) or not isinstance(i, int) for i in listed):
            raise self.refuse(key, "a token id or a list of them")
        return tuple(i for i in listed if i >= 0)

    def id(self, key: str, default: int | None = None) -> int | None:
        ids = self.ids(key, () if default is None else (default,))
        return ids[0] if ids else None

    def architecture(self, default: str, endings: tuple[str, ...]) -> str:
        """The transformers class that the weights were saved from, refused if this package does not implement it."""
        listed = self.get("architectures", default=[]) or [default]
        if not isinstance(listed, list) or not isinstance(listed[0], str):
            raise self.refuse("architectures", "a list of names")
        if not listed[0].endswith(endings):
            implemented = ", ".join("…" + ending for ending in endings)
            raise ConfigError(
                f"{self.where}: architecture {quoted(listed[0])} is not implemented; there are {implemented}."
            )
        return listed[0]

    def labels(self, default: int = 2) -> tuple[str, ...]:
        """The class names, by id2label; else LABEL_0, LABEL_1, … for num_labels. The two must agree."""
        names = self.get("id2label")
        if names is None:
            return tuple(f"LABEL_{i}" for i in range(self.size("num_labels", default=default, most=MAX_LABELS)))
        try:
            by_id = {int(i): str(name) for i, name in names.items()}
            labels = tuple(by_id[i] for i in range(len(by_id)))
        except (AttributeError, ValueError, KeyError, TypeError):
            labels = ()
        if not labels:
            raise self.refuse("id2label", "the names of the classes 0, 1, 2, … without a gap")
        if self.get("num_labels", default=len(labels)) != len(labels):
            raise self.refuse("num_labels", f"{len(labels)}, as many as id2label names")
        return labels

    def exclusive_labels(self, default: int = 2) -> tuple[str, ...]:
        """Labels of which a text has exactly one: their probabilities are a softmax.

        Heads with one output, with independent labels (a sigmoid each) or for regression are refused.
        """
        self.only({"problem_type": "single_label_classification"} if self.get("problem_type") else {})
        labels = self.labels(default)
        if len(labels) == 1:
            raise ConfigError(
                f"{self.where}: the classifier has one label, so its output is a score and not the probabilities of "
                "classes; it must have two or more: nothing else is implemented."
            )
        return labels


ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
