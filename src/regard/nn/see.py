"""Hooks: the one point where an intermediate array is observed or replaced.

Every intermediate array of every model passes through `see(name, x)`. With no observer registered it returns x. An observer
(a hook) is any callable `(full_name, x) -> x`, registered with `watching(observer)` for the duration of a `with` block; it
may record x or return a replacement. Tracing, edits, ablation, the lenses, the page and the recording of the graph are
observers, and no signature in nn/ has a parameter for them.

An observer may also have a method `known(place)`. It is called before a part runs, and a result other than None is used as
the part's output instead of running it: so a run can be replayed from the middle, or one block of many traced on its own.

The full name is the part's path in the network followed by the local name: inside `decoder.0.attention`,
`see("weights", A)` reports `decoder.0.attention.weights`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Observer = Callable[[str, Any], Any]

_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)  # each request has its own
_place: ContextVar[str] = ContextVar("place", default="")


def _never() -> bool:
    return False


_compiling: Callable[[], bool] = _never


def set_compiler_check(is_compiling: Callable[[], bool]) -> None:
    """Register PyTorch's `is_compiling`, when PyTorch is imported (model/module.py); nn/ does not import it."""
    global _compiling
    _compiling = is_compiling


def is_compiling() -> bool:
    """Whether torch.compile is tracing this code."""
    return _compiling()


def see(name: str, x: Any) -> Any:
    """x, or what the registered observer returns for it; `name` is local to the part that is running."""
    observer = None if is_compiling() else _observer.get()
    if observer is None:
        return x
    place = _place.get()
    return observer(f"{place}.{name}" if place else name, x)


def current_observer() -> Observer | None:
    """The observer registered in this context; None while compiling, since compiled code is not observed."""
    return None if is_compiling() else _observer.get()


def watched() -> bool:
    """Whether an observer is registered: then the readable definition runs, otherwise its fused equivalent."""
    return not is_compiling() and _observer.get() is not None


@contextmanager
def watching(observer: Observer) -> Iterator[None]:
    """Register an observer for the `with` block, in this context (thread or task) only."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def call_observed(observer: Observer, place: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a part's forward with `place` as the prefix of names, or return the result that the observer already knows."""
    known = getattr(observer, "known", None)
    if known is not None and (result := known(place)) is not None:
        return result
    token = _place.set(place)
    try:
        return forward(*args, **kwargs)
    finally:
        _place.reset(token)
