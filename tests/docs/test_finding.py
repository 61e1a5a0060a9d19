"""The three rules of CONTRIBUTING.md lead from a public name to its file: tried on twenty names, drawn by a seed."""

import inspect
import random
import re
import tomllib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import VERBS, app
from regard.explain.trace import Trace

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "regard"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
SEED, EACH = 2017, 5


# ── the rules ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def verb_file(verb: str) -> str:
    return f"cli/{verb}.py"


def model_file(method: str) -> str:
    return "api/model.py"


def trace_file(method: str) -> str:
    return "explain/trace.py"


def top_level_file(name: str) -> str:
    if name.endswith("Error"):
        return "errors.py"
    if name.startswith("attend") or "attention" in name:
        return "nn/attention.py"
    return f"api/{name}_model.py" if name == "load" else f"api/{name.lower()}.py"


# ── the names, and where they are ───────────────────────────────────────────────────────────────────────────────────────


def commands() -> dict[str, Any]:
    return {command.name or "": command.callback for command in app(*VERBS).registered_commands}


def methods(of: type) -> dict[str, Any]:
    """What a person can call or read on it, inherited or not."""
    named = {name: inspect.getattr_static(of, name) for name in dir(of) if not name.startswith("_")}
    return {name: code for name, thing in named.items() if (code := code_of(thing)) is not None}


def code_of(attribute: Any) -> Any:
    """The function behind a method or a property; None for an attribute that is only a value."""
    match attribute:
        case property():
            return attribute.fget
        case cached_property():
            return attribute.func
        case staticmethod() | classmethod():
            return attribute.__func__
    return attribute if inspect.isfunction(attribute) else None


def kinds() -> dict[str, tuple[dict[str, Any], Callable[[str], str]]]:
    """A prefix → the names that may follow it, each with what it means, and the rule for them."""
    return {
        "regard ": (commands(), verb_file),
        "model.": (methods(regard.Model), model_file),
        "trace.": (methods(Trace), trace_file),
        "regard.": ({name: getattr(regard, name) for name in regard.__all__}, top_level_file),
    }


def draw(seed: int) -> list[str]:
    """So many names of each kind, such as `regard fill`, `model.embed`, `trace.why`, `regard.load`."""
    chance = random.Random(seed)
    return [prefix + name for prefix, (names, _) in kinds().items() for name in chance.sample(sorted(names), EACH)]


def predicted_and_actual(public: str) -> tuple[str, str]:
    prefix, name = re.fullmatch(r"(regard |\w+\.)(\w+)", public).groups()  # type: ignore[union-attr]
    names, rule = kinds()[prefix]
    file = Path(inspect.getsourcefile(inspect.unwrap(names[name])) or "")
    return rule(name), str(file.relative_to(PACKAGE)) if file.is_relative_to(PACKAGE) else str(file)


# ── the tests ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("public", draw(SEED))
def test_the_rules_lead_to_the_file(public):
    predicted, actual = predicted_and_actual(public)
    assert predicted == actual


def test_twenty_names_are_drawn_and_the_seed_matters():
    assert len({*draw(SEED)}) == 20
    assert draw(SEED) == draw(SEED) != draw(SEED + 1)


def test_a_name_that_strays_is_noticed(monkeypatch):
    monkeypatch.setattr(regard.Model, "embed", lambda self, texts: None)
    monkeypatch.setattr("regard.cli.fill.command", regard.show)
    monkeypatch.setattr(regard, "__all__", ["attend_to"])
    monkeypatch.setattr(regard, "attend_to", regard.load, raising=False)
    for public in ("model.embed", "regard fill", "regard.attend_to"):
        predicted, actual = predicted_and_actual(public)
        assert predicted != actual


def test_the_guide_gives_these_rules():
    _, *rules = re.split(r"^\d\. ", GUIDE.partition("Three rules")[2].partition("\n## ")[0], flags=re.M)
    assert len(rules) == 3
    examples = [
        ("regard fill", 0),
        ("model.embed", 1),
        ("trace.why", 1),
        *((f"regard.{x}", 2) for x in ("show", "load")),
    ]
    for public, rule in [*examples, ("regard.attend", 2)]:
        assert f"`{public}`" in rules[rule]
        assert f"`{predicted_and_actual(public)[1]}`" in rules[rule]


def test_the_map_has_every_room():
    """Every folder with code in it and no other, in the order in which import-linter lets them import."""
    rooms = re.findall(r"^([a-z]+)/  ", GUIDE, re.M)
    assert {*rooms} == {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    (contract,) = (c for c in SETTINGS["tool"]["importlinter"]["contracts"] if c.get("containers") == ["regard"])
    layers = [layer.split(" | ") for layer in reversed(contract["layers"])]
    depth = {room: i for i, layer in enumerate(layers) for room in layer}
    assert [depth[room] for room in rooms] == sorted(depth[room] for room in rooms)


def test_links_of_the_guide_lead_somewhere():
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text()):
            assert "://" in target or (ROOT / target).exists(), f"{name} → {target}"
