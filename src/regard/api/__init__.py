"""What a person wants to do with a transformer: `regard.load(where)` gives a `Model`, `train_with(settings)` makes one."""

from regard.api.model import Model, load
from regard.api.training import train_settings, train_with, write_targets

__all__ = ["Model", "load", "train_settings", "train_with", "write_targets"]
