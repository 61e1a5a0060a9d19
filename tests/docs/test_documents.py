"""Every block of code in the README and in docs/ runs as it is pasted, and prints what the page says it prints."""

import contextlib
import io
import re
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
import tiny
from printed import differences
from regard.store.hub import INSTALLABLE, installed

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)


def blocks(language: str) -> list[tuple[str, str]]:
    """Where each block of a language stands, and what is in it."""
    return [(where, code) for document in DOCUMENTS for where, kind, code in blocks_of(document) if kind == language]


def blocks_of(document: Path) -> list[tuple[str, str, str]]:
    text, name = document.read_text(), document.relative_to(ROOT).as_posix()
    return [(f"{name}:{text[: m.start()].count(chr(10)) + 1}", m[1], m[2]) for m in BLOCK.finditer(text)]


def sessions() -> list[list[tuple[str, str, str | None]]]:
    """Blocks of Python and the output that the page shows for each; one that imports nothing continues the one before."""
    found: list[list[tuple[str, str, str | None]]] = []
    for document in DOCUMENTS:
        for where, language, code in blocks_of(document):
            if language == "python" and not code.startswith("# file:"):
                begins = re.match(r"import |from ", code) is not None
                found.append([*([] if begins else found[-1]), (where, code, None)])
            elif language == "output":
                *before, (place, shown, _) = found[-1]
                found[-1] = [*before, (place, shown, code)]
    return found


def need(text: str) -> None:
    for name, known in INSTALLABLE.items():
        if name in text and installed(known) is None:
            pytest.skip(f"{name} is not installed")


PYTHON = sessions()
COMMANDS = [
    (where, line.split("  #")[0].strip())
    for where, block in blocks("sh")
    for line in block.splitlines()
    if line.startswith("regard ")
]


@pytest.mark.parametrize("session", PYTHON, ids=[session[-1][0] for session in PYTHON])
def test_python(session):
    """The last block of a session runs after those before it and prints what is shown below it."""
    need("".join(code for _, code, _ in session))
    names: dict[str, Any] = {"__name__": "__main__"}
    for where, code, _ in session:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, where, "exec"), names)
    shown = session[-1][2]
    if shown is not None:
        assert not differences(said.getvalue(), shown), said.getvalue()


def test_a_wrong_figure_on_a_page_is_noticed():
    assert not differences("weight 0.6390, (4, 7) -0.00\n", "weight 0.639, (4, 7) 0.00")
    assert differences("weight 0.6390", "weight 0.641")
    assert differences("weight 0.6390", "score 0.639")
    assert differences("(4, 7)", "(4, 8)")


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


def test_files_that_are_named_exist():
    """A page may name a room's file, as `store/number_formats.py`; it is then there."""
    rooms = "|".join(path.name for path in (ROOT / "src" / "regard").iterdir() if path.is_dir())
    for document in DOCUMENTS:
        for name in re.findall(rf"`((?:{rooms})/[\w/]+\.(?:py|c|h|js))`", document.read_text()):
            assert (ROOT / "src" / "regard" / name).exists(), f"{document.name} names {name}"


@pytest.fixture
def neox(monkeypatch, tmp_path):
    """docs/add-an-architecture.md as it is written: its file, registered, and a model of theirs to read."""
    import transformers as hf

    code = next(code for _, code in blocks("python") if code.startswith("# file: gpt_neox.py"))
    module = types.ModuleType("regard.model.family.gpt_neox")
    exec(compile(code, "gpt_neox.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "regard.model.family.gpt_neox", module)
    monkeypatch.setitem(__import__("regard.model.registry", fromlist=["x"]).FAMILIES, "gpt_neox", "gpt_neox")
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
    config = hf.GPTNeoXConfig(**sizes, intermediate_size=37, max_position_embeddings=40)
    theirs = tiny.randomised(lambda: hf.GPTNeoXForCausalLM(config))
    theirs.save_pretrained(tmp_path / "neox")
    return theirs, tmp_path / "neox"


IDS = [7, 9, 12, 40, 33, 8, 21]


def test_the_added_architecture_agrees_with_transformers(neox, tmp_path):
    """Logits on PyTorch, on numpy and on the native engine, what is written, and what is saved."""
    import transformers as hf

    theirs, path = neox
    ids, ours = torch.tensor([IDS]), regard.load(path)
    with torch.no_grad():
        expected = theirs(ids).logits
        torch.testing.assert_close(ours.net(ids), expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.reference(np.array(IDS)), expected[0], rtol=0, atol=1e-4)
    assert ours.engine is not None, "the native engine knows each of its operations"
    text = ours.engine.new_cache(len(IDS))
    logits = ours.engine.forward([text], [IDS], text.capacity, wanted=[len(IDS)])
    np.testing.assert_allclose(logits, expected[0], rtol=0, atol=1e-3)
    written = theirs.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)[0, len(IDS) :].tolist()
    (answer,) = ours.answers(IDS, max_new_tokens=8, temperature=0)[0]
    assert answer.ids == written
    ours.save(tmp_path / "copy")
    copy = hf.GPTNeoXForCausalLM.from_pretrained(tmp_path / "copy")
    assert all(torch.equal(a, b) for a, b in zip(copy.parameters(), theirs.parameters(), strict=True))


def test_the_added_architecture_can_be_looked_into(neox, tmp_path):
    """Why? of every node, an edit against a network changed by hand, ablation, the lens, the listing, the exported file."""
    from regard.explain import lens

    model = regard.load(neox[1])
    trace = model.trace(IDS)
    for name in trace.nodes():
        why = trace.why(name, [n - 1 for n in trace.shape(name)])
        assert why.agrees, str(why)
    edited = trace.edit({"decoder.1.attention.head.2": "zero"})
    net: Any = model.reference
    W = net.decoder[1].attention.W_o.weight
    W[:, 16:] = 0
    np.testing.assert_allclose(edited["logits"], model.reference(np.array(IDS)), rtol=1e-4, atol=1e-4)
    model = regard.load(neox[1])
    trace = model.trace(IDS)
    without = trace.edit({"decoder.2.attention.head.0": "zero"})
    effect = lens.ablation(trace)["decoder.2.attention"][0]
    id = int(trace["logits"][-1].argmax())
    assert float(effect) == pytest.approx(
        float(np.log(without["probabilities"][-1, id] / trace["probabilities"][-1, id])), abs=1e-4
    )
    assert lens.logit_lens(trace)[-1].top[0].probability == pytest.approx(
        float(trace["probabilities"][-1].max()), abs=1e-5
    )
    parts = lens.attribution(trace)
    assert sum(part.value for part in parts.parts) + parts.bias == pytest.approx(parts.total, abs=1e-4)
    assert "X + M + mlp.out" in regard.show(model)
    assert trace.html(tmp_path / "neox.html").stat().st_size > 100_000
