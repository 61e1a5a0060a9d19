"""The one place where a number is shown or replaced.

Every intermediate tensor of every model passes through `see(name, x)`. Nobody watching: it returns x. A watcher is any
callable `(full_name, x) -> x`; it may keep what it is shown or return something else in its stead. Tracing, editing,
ablation and the page are watchers, and nothing is threaded through a signature for them.

A watcher may also have a method `known(place)`. It is asked before a part runs, and what it answers (not None) is taken for
the part's result: so a run can be replayed from the middle, and one block of many can be looked into on its own.

The full name is the module's own path in the network followed by the local name: inside `decoder.0.attention`,
`see("weights", A)` shows `decoder.0.attention.weights`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_compiling

Watcher = Callable[[str, Tensor], Tensor]

_watch: ContextVar[Watcher | None] = ContextVar("watch", default=None)  # two requests never see each other's numbers
_place: ContextVar[str] = ContextVar("place", default="")


def see(name: str, x: Tensor) -> Tensor:
    watcher = None if is_compiling() else _watch.get()  # what is compiled is not watched: see Part
    if watcher is None:
        return x
    place = _place.get()
    return watcher(f"{place}.{name}" if place else name, x)


def watched() -> bool:
    """Whether somebody is looking: then the readable definition runs, otherwise its fused equal."""
    return not is_compiling() and _watch.get() is not None


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    token = _watch.set(watcher)
    try:
        yield
    finally:
        _watch.reset(token)


class Part(nn.Module):
    """A module that knows its place in the network, so that what is seen inside it has a full name."""

    place = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watcher = None if is_compiling() else _watch.get()
        if watcher is None:
            return super().__call__(*args, **kwargs)
        known = getattr(watcher, "known", None)
        if known is not None and (answer := known(self.place)) is not None:
            return answer
        token = _place.set(self.place)
        try:
            return self._call_impl(*args, **kwargs)  # also where `compile` has put something else in its stead
        finally:
            _place.reset(token)


def name_places(root: nn.Module) -> None:
    """Tell every part below `root` its path. Called once, when a network is complete."""
    for path, module in root.named_modules():
        if isinstance(module, Part):
            module.place = path
