"""Transformers you can look inside.

>>> import regard
>>> model = regard.load("smollm2")
>>> model.chat("What is the capital of France?")

Submodules are imported lazily, on first use, so that `import regard` is fast.
"""

from importlib import import_module

from regard.errors import RegardError

TYPE_CHECKING = False  # instead of typing.TYPE_CHECKING: importing typing takes longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from regard.api import Model, load
    from regard.api.show import show
    from regard.nn.attention import attend, attention_weights, simple_attention

__version__ = "0.2.0"  # the only definition: pyproject.toml, the wheel and `regard --version` read it

_LAZY = {
    "load": "regard.api",
    "Model": "regard.api",
    "attend": "regard.nn.attention",
    "attention_weights": "regard.nn.attention",
    "simple_attention": "regard.nn.attention",
    "nn": "regard.nn",
    "show": "regard.api.show",
}

__all__ = ["Model", "RegardError", "attend", "attention_weights", "load", "show", "simple_attention"]


def __getattr__(name: str) -> "Any":
    if name not in _LAZY:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if name == "nn" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
