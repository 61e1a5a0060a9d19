"""A config.json as a person wrote it → values that can be trusted.

Every number a family reads goes through here, so that "heads": "many", a size of 10⁹ or a NaN gets one sentence that
names the key instead of a traceback from the middle of a constructor.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from regard.errors import ConfigError, quoted

LARGEST_SIZE = 10_000_000  # of one dimension: the largest real vocabulary and the largest d_ff are under a million
LARGEST_NUMBER = sys.float_info.max  # a JSON number may be larger: 1e999 is read as infinity
MOST_LAYERS = 1_000
MOST_LABELS = 100_000


class Config:
    """Typed reading of a configuration: each method takes alternative key names and a default."""

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self.values, self.where = values, where

    def get(self, *keys: str, default: Any = None) -> Any:
        return next((self.values[k] for k in keys if self.values.get(k) is not None), default)

    def named(self, keys: Sequence[str]) -> str:
        """Which of the alternatives has a value."""
        return next((k for k in keys if self.values.get(k) is not None), keys[0])

    def refuse(self, key: str, expected: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key} is {quoted(self.get(key))}, but must be {expected}.")

    def size(self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST_SIZE) -> int:
        value = self.get(*keys, default=default)
        if value is None:
            raise ConfigError(f"{self.where} lacks {keys[0]}, without which the model's shape is unknown.")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(self.named(keys), f"a whole number from {least} to {most:,}")
        return value

    def layers(self, *keys: str, default: int | None = None) -> int:
        return self.size(*keys, default=default, most=MOST_LAYERS)

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

    def ids(self, key: str) -> tuple[int, ...]:
        """A token id, or several: eos_token_id may be either."""
        value = self.get(key, default=[])
        listed = value if isinstance(value, list) else [value]
        if any(isinstance(i, bool) or not isinstance(i, int) for i in listed):
            raise self.refuse(key, "a token id or a list of them")
        return tuple(i for i in listed if i >= 0)

    def id(self, key: str, default: int | None = None) -> int | None:
        ids = self.ids(key)
        return ids[0] if ids else default

    def architecture(self, default: str, endings: tuple[str, ...]) -> str:
        """The class that the weights were saved from, which must be one of those that this package implements."""
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
        """The class names, by id2label; else LABEL_0, LABEL_1, … for num_labels."""
        names = self.get("id2label")
        if names is None:
            return tuple(f"LABEL_{i}" for i in range(self.size("num_labels", default=default, most=MOST_LABELS)))
        try:
            by_id = {int(i): str(name) for i, name in names.items()}
            labels = tuple(by_id[i] for i in range(len(by_id)))
        except (AttributeError, ValueError, KeyError, TypeError):
            labels = ()
        if not labels:
            raise self.refuse("id2label", "the names of the classes 0, 1, 2, … without a gap")
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
