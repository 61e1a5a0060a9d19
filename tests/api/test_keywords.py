"""An unknown keyword argument is an error that names it, in every function; none is ignored."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regard
from regard.api import train_settings
from regard.engine.settings import Settings
from regard.errors import ConfigError, GenerationError, RegardError
from regard.explain import lens
from regard.explain.trace import Trace

TEXT = "The old king"

OPEN: dict[str, Callable[[Any, dict[str, Any]], Any]] = {  # what takes settings of generation or training, by name
    "generate": lambda m, more: m.generate(TEXT, **more),
    "answers": lambda m, more: m.answers(TEXT, **more),
    "stream": lambda m, more: list(m.stream(TEXT, **more)),
    "stream_tokens": lambda m, more: list(m.stream_tokens(TEXT, **more)),
    "rows": lambda m, more: m.rows([1], **more),
    "trace": lambda m, more: m.trace(TEXT, **more),
    "evaluate": lambda m, more: m.evaluate("nowhere.txt", **more),
    "chat": lambda m, more: m.chat(TEXT, **more),
    "translate": lambda m, more: m.translate([], **more),
}


def takes_any(function: Any) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def test_the_methods_that_take_settings():
    methods = {name for name, value in inspect.getmembers(regard.Model, inspect.isfunction) if takes_any(value)}
    assert methods == set(OPEN)
    assert {name for name, value in inspect.getmembers(Trace, inspect.isfunction) if takes_any(value)} == {"svg", "png"}
    functions = [getattr(lens, name) for name in lens.__all__] + [getattr(regard, name) for name in regard.__all__]
    assert not [f for f in functions if inspect.isfunction(f) and takes_any(f)]


@pytest.mark.parametrize("value", [1, None])
@pytest.mark.parametrize("name", OPEN)
def test_an_unknown_keyword_is_refused(tiny_model: Any, name: str, value: Any) -> None:
    model = regard.load({"chat": tiny_model("chat"), "translate": "toy-translate"}.get(name, "toy-gpt"))
    with pytest.raises(RegardError, match="'temprature'"):
        OPEN[name](model, {"temprature": value})


def test_settings_of_value_none():
    with pytest.raises(GenerationError, match="There is no generation setting 'temprature': did you mean temperature"):
        Settings().replace(temprature=None)
    assert Settings().replace(temperature=None) == Settings()
    with pytest.raises(ConfigError, match="There is no training setting 'learning_rat'"):
        train_settings("lm", None, {"data": ["a.txt"], "out": "run", "learning_rat": None})


def test_pictures(tmp_path):
    trace = regard.load("toy-gpt").trace(TEXT)
    for draw in (trace.svg, trace.png):
        with pytest.raises(RegardError, match="has no option 'heda'"):
            draw("attention", tmp_path / "a", heda=1)


def test_a_trace_with_edits():
    model, edits = regard.load("toy-gpt"), {"decoder.1.attention.head.2": "zero"}
    plain = model.trace(TEXT, max_new_tokens=2)
    edited = model.trace(TEXT, max_new_tokens=2, edits=edits)
    assert edited.edits == edits
    assert edited.ids == plain.ids  # the text is written without the edits, as by trace.edit
    assert len(edited.steps) == 2
    assert np.array_equal(edited["logits"], plain.edit(edits)["logits"])
    with pytest.raises(RegardError, match="a mapping from paths"):
        model.trace(TEXT, edits=["token.1"])  # type: ignore[arg-type]
