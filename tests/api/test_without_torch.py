"""Everything but training without PyTorch: the same results, from the native engine and from the numpy reference."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
import without_torch
from regard.errors import NotInstalled, require

PROGRAM = [sys.executable, without_torch.__file__]


def program(*given: object) -> Any:
    done = subprocess.run([*PROGRAM, *map(str, given)], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any) -> Path:
    made = tmp_path_factory.mktemp("without")
    shutil.copytree(tiny_model("chat"), made / "chat")
    return made


@pytest.fixture(scope="module")
def by_torch(folder: Path) -> dict[str, Any]:
    return without_torch.api("torch", str(folder))


@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_the_same_answers(engine: str, folder: Path, by_torch: dict[str, Any]) -> None:
    found = program("api", engine, folder)
    assert found.pop("native") == (engine == "auto" and regard.load("toy-gpt").engine is not None)
    for what, expected in by_torch.items():
        if what != "native":
            assert_close(found[what], json.loads(json.dumps(expected)), what)


def assert_close(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected), what
        for key, value in expected.items():
            assert_close(found[key], value, f"{what} {key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], float):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=what)
    elif isinstance(expected, list):
        assert len(found) == len(expected), what
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, what)
    else:
        assert found == (pytest.approx(expected, rel=1e-3, abs=1e-5) if isinstance(expected, float) else expected), what


def test_a_server_answers() -> None:
    found = program("serve")
    gpt, mlm = regard.load("toy-gpt"), regard.load("toy-bert")
    expected = gpt.generate("Sara loved", max_new_tokens=12, temperature=0)
    assert found["/v1/completions"]["choices"][0]["text"] == expected
    vector = found["/v1/embeddings"]["data"][0]["embedding"]
    np.testing.assert_allclose(vector, mlm.embed(without_torch.REVIEW)[0], atol=1e-5)
    assert found["/v1/translations"]["data"][0]["text"] == "Je vois"


def command(*given: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "regard", *map(str, given)],
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


VERBS = {
    "generate": ["toy-gpt", "Sara loved", "--max-new-tokens", "5"],
    "translate": ["toy-translate", "I see"],
    "embed": ["toy-bert", "I loved it.", "I hated it.", "--compare"],
    "classify": ["toy-bert-sentiment", "I loved it."],
    "tag": ["toy-bert-tags", "I loved it."],
    "fill": ["toy-bert", "I loved the [MASK]."],
    "inspect": ["toy-gpt"],
    "models": [],
    "pull": ["toy-gpt"],
    "env": [],
    "verify": ["toy-translate"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_commands(verb: str) -> None:
    done = command(verb, *VERBS[verb])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_commands_that_write_files(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "in.txt").write_text("I loved it.\nI hated it.\n")
    rows = ["--in", tmp_path / "in.txt", "--out", tmp_path / "out.jsonl"]
    for given in (
        ["convert", "toy-gpt", tmp_path / "half", "--dtype", "bfloat16"],
        ["convert", "toy-gpt", tmp_path / "gpt.gguf", "--quantize", "q8"],
        ["map", "classify", "--model", "toy-bert-sentiment", *rows],
        ["chat", folder / "chat", "the king", "--max-new-tokens", "3"],
    ):
        done = command(*given)
        assert done.returncode == 0, done.stderr
    assert regard.load(tmp_path / "half").config["dtype"] == "bfloat16"
    assert regard.load(tmp_path / "gpt.gguf").generate("Sara", max_new_tokens=1)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["train", "lm", "--data", "x.txt", "--out", "run"], "Training needs PyTorch: pip install 'regard[train]'."),
        (["eval", "toy-gpt", "--data", "x.txt"], "Evaluating needs PyTorch: pip install 'regard[train]'."),
        (["report", "run"], "A picture of a run needs matplotlib: pip install 'regard[train]'."),
        (["generate", "toy-gpt", "a", "--dtype", "bfloat16"], "dtype='bfloat16' needs PyTorch: pip install"),
        (["generate", "toy-gpt", "a", "--device", "cuda"], "device='cuda' needs PyTorch: pip install"),
    ],
)
def test_what_needs_pytorch_names_it(given: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0, "lr": 0.1}\n')
    (tmp_path / "x.txt").write_text("Sara loved a red ring.\n")
    done = command(*(str(tmp_path / word) if word in ("run", "x.txt") else word for word in given))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"regard: {sentence}")
    assert done.stderr.count("\n") == 1


def test_in_python_too() -> None:
    assert require("numpy", "This") is np
    with pytest.raises(NotInstalled, match=r"^Flying needs ray_of_light: pip install 'regard\[ray\]'\.$"):
        require_missing()


def require_missing() -> None:
    from regard import errors

    errors.EXTRAS["ray_of_light"] = "ray"
    try:
        require("ray_of_light", "Flying")
    finally:
        del errors.EXTRAS["ray_of_light"]


def test_nothing_imports_pytorch_unless_needed() -> None:
    """Also where it is installed: importing it takes a second or two."""
    asked = """
import sys, regard
regard.load("toy-gpt").generate("Sara", max_new_tokens=2)
regard.load("toy-gpt")([1, 2])
regard.load("toy-bert").embed("a")
regard.load("toy-bert").fill("I loved the [MASK].")
regard.load("toy-bert-sentiment").classify("a")
regard.load("toy-bert-tags").tag("a")
regard.load("toy-translate").translate("I see")
print([name for name in ("torch", "transformers", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == "[]\n"
