"""Help pages: fast, one per verb, with examples that the parser accepts."""

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from regard.cli.main import VERBS, app


def test_the_command_list_has_every_verb_with_a_complete_sentence(regard):
    ran = regard("--help")
    assert ran.code == 0
    assert ran.err == ""
    for name in VERBS:
        (line,) = re.findall(rf"^  {name} +(.*)$", ran.out, re.M)
        assert line.endswith("."), "a sentence that was cut ends in dots"
        assert not line.endswith("...")


@pytest.mark.parametrize("name", VERBS)
def test_a_page_fits_and_shows_examples(regard, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = regard(name, "--help")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    usage, about = ran.out.splitlines()[0], ran.out.splitlines()[2]
    assert usage.startswith(f"Usage: regard {name} [OPTIONS]")
    assert not re.search(r"[{}<>]", usage)
    assert re.match(r"  [A-Z].*", about)
    assert "<bool>" not in ran.out
    assert "list[" not in ran.out
    examples = ran.out.partition("\nExamples:\n")[2].splitlines()
    assert examples
    for example in examples:
        assert example.startswith(f"  regard {name}")


@pytest.mark.parametrize("name", VERBS)
def test_examples_parse(regard, name):
    """Every example of a help page has the arguments and options that the verb has."""
    group: Any = typer.main.get_command(app(name))
    for example in regard(name, "--help").out.partition("\nExamples:\n")[2].splitlines():
        words = shlex.split(re.split(r" [<>] ", example.strip())[0])[1:]
        with group.make_context("regard", list(words)) as context:
            _, verb, rest = group.resolve_command(context, words)
            verb.make_context(name, rest, parent=context)


def test_required_and_optional_arguments_look_different(regard):
    assert "MODEL [PROMPT]\n" in regard("generate", "--help").out
    assert "MODEL [TEXT]...\n" in regard("embed", "--help").out
    assert "MODEL OUT\n" in regard("convert", "--help").out
    assert "[MODEL] [MESSAGE]\n" in regard("chat", "--help").out


def test_nothing_heavy_is_imported_for_help():
    """Every page in one process, and torch, numpy and even rich stay out of it."""
    code = """
import sys
from regard.cli.main import VERBS, app
for name in ("", *VERBS):
    try:
        app(*([name] if name else VERBS))([*([name] if name else []), "--help"], prog_name="regard")
    except SystemExit as exit:
        assert not exit.code
heavy = {"torch", "numpy", "rich", "tokenizers", "jinja2", "huggingface_hub", "regard.api"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: regard") == len(VERBS) + 1


def test_version(regard):
    import regard as package

    assert regard("--version").out == f"{package.__version__}\n"
