"""The public interface: `regard.load(where)` returns a `Model`, `train_with(settings)` trains one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.api.load_model import load

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.api.training import train_settings, train_with, write_targets

_LAZY = {  # `load` imports them while weights are packed
    "Model": "regard.api.model",
    "train_settings": "regard.api.training",
    "train_with": "regard.api.training",
    "write_targets": "regard.api.training",
}

__all__ = ["Model", "load", "train_settings", "train_with", "write_targets"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'regard.api' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
