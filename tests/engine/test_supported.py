"""The native engine computes what it was told about, and refuses everything else: no other network in silence."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.engine.fast import Engine
from regard.engine.native import build
from regard.engine.native.library import library, open_library
from regard.engine.of_network import NetworkWeights
from regard.engine.supported import READ, unsupported
from regard.errors import ConfigError
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, RotaryScalingSpec, Spec, StackSpec

SPEC = Spec(
    family="llama",
    d=16,
    encoder=None,
    decoder=StackSpec(
        n_layers=1,
        n_vocab=32,
        wiring="pre",
        norm="rms",
        eps=1e-6,
        attention=AttentionSpec(heads=2, kv_heads=2, d_k=8),
        mlp=MLPSpec(d_ff=24, activation="silu"),
        positions=PositionSpec("rotary", 64, scaling=RotaryScalingSpec("linear", 2.0)),
    ),
    head=HeadSpec("lm"),
)


def extended(part: Any, value: Any) -> Any:
    """The part with a field more than the engine knows."""
    kind = dataclasses.make_dataclass("Extended", [("novel", Any, None)], bases=(type(part),), frozen=True)
    READ[kind] = READ[type(part)]
    return kind(**{f.name: getattr(part, f.name) for f in dataclasses.fields(part)}, novel=value)


def within(path: str, change: Callable[[Any], Any], part: Any = SPEC) -> Any:
    """The spec with one of its parts changed."""
    if not path:
        return change(part)
    name, _, rest = path.partition(".")
    return dataclasses.replace(part, **{name: within(rest, change, getattr(part, name))})


PARTS = ("", "decoder", "decoder.attention", "decoder.mlp", "decoder.positions", "decoder.positions.scaling", "head")


@pytest.mark.parametrize("path", PARTS)
def test_a_field_that_the_engine_does_not_read_is_refused(path: str) -> None:
    assert unsupported(SPEC) is None
    assert unsupported(within(path, lambda part: extended(part, None))) is None  # its default changes nothing
    assert unsupported(within(path, lambda part: extended(part, 0.5))) == f"{path}.novel = 0.5".lstrip(".")


def test_every_field_is_accounted_for() -> None:
    for kind, read in READ.items():
        if kind.__name__ != "Extended":
            assert {f.name for f in dataclasses.fields(kind)} == set(read.replace("|", "").split()), kind


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("decoder.wiring", "parallel"),
        ("decoder.norm", "batch"),
        ("decoder.positions.kind", "alibi"),
        ("decoder.positions.scaling.kind", "yarn"),
        ("decoder.mlp.activation", "mish"),
        ("head.kind", "regress"),
    ],
)
def test_a_value_that_nobody_knows_is_refused(path: str, value: str) -> None:
    parent, _, name = path.rpartition(".")
    spec = within(parent, lambda part: dataclasses.replace(part, **{name: value}))
    assert unsupported(spec) == f"{path} = {value!r}"
    if name != "activation":  # any of PyTorch's may be built
        with pytest.raises(ConfigError, match=rf"The spec's {path} is '{value}'; it can be"):
            spec.check()


@pytest.mark.skipif(library() is None, reason="the native engine is not built here")
@pytest.mark.parametrize("name", ["gpt2", "bert", "bart"])
def test_a_parameter_that_no_step_reads_is_refused(name: str, saved: Callable[[str], Path], monkeypatch: Any) -> None:
    from regard.engine import fast

    model = regard.load(saved(name))
    stack = "decoder" if model.spec.decoder else "encoder"
    more = {**fast.shapes(model.spec), f"{stack}.0.attention.norm_q.weight": (8,)}
    monkeypatch.setattr(fast, "shapes", lambda spec: more)
    with pytest.raises(ConfigError, match=rf"no step that reads {stack}\.0\.attention\.norm_q\.weight"):
        Engine(model.spec, NetworkWeights(model.net, model.spec))


@pytest.mark.skipif(library() is None, reason="the native engine is not built here")
def test_a_library_of_other_sources_is_refused(tmp_path: Path) -> None:
    """Structs of the same size do not make it the same engine: each library carries a hash of its sources."""
    built, old = Path(build.HERE, build.NAME).read_bytes(), tmp_path / build.NAME
    assert built.count(build.sources().encode()) == 1
    old.write_bytes(built.replace(build.sources().encode(), b"0" * 64))
    with pytest.raises(OSError, match=r"was built from other sources: run python -m regard\.engine\.native\.build"):
        open_library(old)


def test_every_source_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, here = build.sources(), build.HERE
    for file in [*here.glob("*.[ch]")]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.sources() == before
    for file in sorted(tmp_path.glob("*.[ch]")):
        text = file.read_bytes()
        file.write_bytes(text + b" ")
        assert build.sources() != before, file.name
        file.write_bytes(text)
