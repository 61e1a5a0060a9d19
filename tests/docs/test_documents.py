"""Every block of code in the README and in docs/ runs as it is pasted."""

import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import regard
import tiny
from regard.store.hub import INSTALLABLE, installed

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        for match in re.finditer(rf"^```{language}\n(.*?)^```", document.read_text(), re.S | re.M):
            line = document.read_text()[: match.start()].count("\n") + 1
            found.append((f"{document.name}:{line}", match[1]))
    return found


def need(text: str) -> None:
    for name, known in INSTALLABLE.items():
        if name in text and installed(known) is None:
            pytest.skip(f"{name} is not installed")


PYTHON = [(where, code) for where, code in blocks("python") if not code.startswith("# file:")]
COMMANDS = [
    (where, line.split("  #")[0].strip())
    for where, block in blocks("sh")
    for line in block.splitlines()
    if line.startswith("regard ")
]


@pytest.mark.parametrize(("where", "code"), PYTHON, ids=[where for where, _ in PYTHON])
def test_python(where, code):
    need(code)
    exec(compile(code, where, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=[command for _, command in COMMANDS])
def test_command(where, command):
    from regard.cli.main import VERBS, app

    need(command)
    result = CliRunner().invoke(app(*VERBS), shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


def test_the_two_commands_stand_on_the_first_screen_and_exist():
    first = (ROOT / "README.md").read_text().splitlines()[:25]
    makefile = (ROOT / "Makefile").read_text()
    for command in ("make demo", "make test"):
        assert any(line.startswith(command) for line in first)
        assert f"\n{command.split()[1]}:" in makefile


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} → {target}"


def test_every_file_of_the_walk_is_named():
    """docs/walk.md follows a sentence through every file between text and files."""
    walk = (ROOT / "docs" / "walk.md").read_text()
    for room in ("nn", "engine"):
        for file in (ROOT / "src" / "regard" / room).glob("[a-z]*.py"):
            assert f"{room}/{file.name}" in walk, file


def test_the_added_architecture_agrees_with_transformers(monkeypatch, tmp_path):
    """docs/add-an-architecture.md alone is enough: its file, registered, gives transformers' logits and saves them."""
    import transformers as hf

    code = next(code for _, code in blocks("python") if code.startswith("# file: opt.py"))
    module = types.ModuleType("regard.model.family.opt")
    exec(compile(code, "opt.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "regard.model.family.opt", module)
    monkeypatch.setitem(__import__("regard.model.registry", fromlist=["x"]).FAMILIES, "opt", "opt")
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "ffn_dim": 37}
    tiny.MODELS["opt"] = lambda: hf.OPTForCausalLM(
        hf.OPTConfig(**sizes, max_position_embeddings=40, word_embed_proj_dim=24)
    )
    try:
        theirs = tiny.make("opt")
    finally:
        del tiny.MODELS["opt"]
    theirs.save_pretrained(tmp_path / "opt")
    ids = torch.randint(3, 60, (1, 9), generator=torch.Generator().manual_seed(0))
    ours = regard.load(tmp_path / "opt")
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=0, atol=1e-4)
    ours.save(tmp_path / "copy")
    copy = hf.OPTForCausalLM.from_pretrained(tmp_path / "copy")
    assert all(torch.equal(a, b) for a, b in zip(copy.parameters(), theirs.parameters(), strict=True))
