"""Transformers you can look inside.

>>> import regard
>>> model = regard.load("smollm2")
>>> model.chat("What is the capital of France?")

Everything is imported when it is first used, so that `import regard` costs nothing.
"""

from importlib import import_module

from regard.errors import RegardError

TYPE_CHECKING = False  # as typing's, which takes longer to import than all that happens here
if TYPE_CHECKING:
    from typing import Any

    from regard.api import Model, load
    from regard.nn.attention import attend, attention_weights, simple_attention

__version__ = "0.1.0"

_ROOMS = {
    "load": "regard.api",
    "Model": "regard.api",
    "attend": "regard.nn.attention",
    "attention_weights": "regard.nn.attention",
    "simple_attention": "regard.nn.attention",
    "nn": "regard.nn",
}

__all__ = ["Model", "RegardError", "attend", "attention_weights", "load", "simple_attention"]


def __getattr__(name: str) -> "Any":
    if name not in _ROOMS:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module = import_module(_ROOMS[name])
    return module if name == "nn" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
