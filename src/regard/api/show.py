"""`regard.show`: the forward pass of a model, or of a configuration, as a listing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.api.model import Model
from regard.explain.show import show as listing
from regard.model.registry import spec_of
from regard.model.spec import Spec
from regard.store.open_model import open_files


def show(model: Model | Spec | Mapping[str, Any] | str | Path) -> str:
    """Some forty lines in the lectures' letters, with shapes. A configuration (config.json as a mapping) is enough."""
    if isinstance(model, Model):
        return listing(model.spec)
    if isinstance(model, Spec):
        return listing(model)
    if isinstance(model, Mapping):
        return listing(spec_of(model, "the configuration"))
    return listing(open_files(model).spec)
