"""A server on bundled and home-made models, and one browser; both once per process. Nothing may go wrong on any page."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, BrowserContext
from safetensors.torch import load_file, save_file

from browser import CHROMIUM, Screen, serving
from regard.page.training_frames import TrainingRuns
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry
from regard.store.hub import bundled

HERE = Path(__file__).parent
MARKUP = "<img src=x onerror=hacked=1>"  # a token, a label, a model's name
SCRIPT = '"><script>hacked=1'
TURNED = "\u202eevil\u2066<b>"  # turns the reading direction around


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="there is no Chromium on this machine: make browser installs it")
    for item in items:
        if CHROMIUM is None and item.path.is_relative_to(HERE):
            item.add_marker(missing)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models that are not bundled: two with hostile names, tokens and labels, one that reads 1,024 tokens, one
    that numbers its pieces otherwise, one of 2015."""
    folder = tmp_path_factory.mktemp("models")
    hostile = [hostile_labels(folder / MARKUP), hostile_tokens(folder / f"{SCRIPT}{TURNED}")]
    return [*hostile, long(folder / "long"), renumbered(folder / "renumbered"), recurrent(folder)]


def hostile_labels(path: Path) -> Path:
    shutil.copytree(bundled()["toy-bert-sentiment"], path)
    config = json.loads((path / "config.json").read_text())
    labels = [MARKUP, SCRIPT, TURNED]
    config |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    (path / "config.json").write_text(json.dumps(config))
    return path


def hostile_tokens(path: Path) -> Path:
    """toy-gpt with its last piece spelt as markup."""
    shutil.copytree(bundled()["toy-gpt"], path)
    told = json.loads((path / "tokenizer.json").read_text())
    vocabulary, last = told["model"]["vocab"], 799
    old = next(piece for piece, id in vocabulary.items() if id == last)
    told["model"]["vocab"] = {MARKUP if piece == old else piece: id for piece, id in vocabulary.items()}
    parts = [merge if isinstance(merge, list) else merge.split(" ") for merge in told["model"]["merges"]]
    told["model"]["merges"] = [merge for merge in parts if old not in ("".join(merge), *merge)]
    told["added_tokens"].append(told["added_tokens"][0] | {"id": last, "content": MARKUP, "special": False})
    (path / "tokenizer.json").write_text(json.dumps(told))
    return path


def long(path: Path) -> Path:
    """toy-gpt with its learned positions repeated, eight times over."""
    shutil.copytree(bundled()["toy-gpt"], path)
    weights = load_file(path / "model.safetensors")
    name = next(name for name in weights if name.endswith("wpe.weight"))
    weights[name] = weights[name].repeat(8, 1)
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"n_positions": len(weights[name])}))
    return path


def renumbered(path: Path) -> Path:
    """toy-gpt with the ids of " and" and " from" exchanged: the same model, another vocabulary."""
    shutil.copytree(bundled()["toy-gpt"], path)
    told = json.loads((path / "tokenizer.json").read_text())
    vocabulary = told["model"]["vocab"]
    one, other = "Ġand", "Ġfrom"
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (path / "tokenizer.json").write_text(json.dumps(told))
    weights = load_file(path / "model.safetensors")
    rows = weights["transformer.wte.weight"]
    rows[[vocabulary[one], vocabulary[other]]] = rows[[vocabulary[other], vocabulary[one]]]
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path


def recurrent(folder: Path) -> Path:
    """A tiny recurrent translator, hardly trained."""
    from toytext import translate

    from regard.api import train_settings, train_with

    translate.write(folder / "pairs.tsv", 60, 0, "train")
    tiny = {
        "family": "gru",
        "width": 12,
        "d_ff": 9,
        "max_steps": 3,
        "warmup_steps": 1,
        "batch_size": 8,
        "vocab_size": 300,
    }
    given = tiny | {"threads": 1, "data": [str(folder / "pairs.tsv")], "out": str(folder / "recurrent")}
    return train_with(train_settings("translate", None, given))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A tiny translator while it learns, with a frame every three steps; and the same under a hostile name."""
    from toytext import translate

    from regard.api import train_settings, train_with

    folder = tmp_path_factory.mktemp("runs")
    translate.write(folder / "pairs.tsv", 120, 0, "train")
    tiny = {"layers": 1, "width": 16, "heads": 2, "max_steps": 9, "eval_steps": 3, "warmup_steps": 2, "batch_size": 8}
    probes = {"probes": ["a green flower\tune fleur verte", f"a {MARKUP}\tun {SCRIPT}"], "probe_steps": 3}
    given = tiny | probes | {"vocab_size": 400, "threads": 1, "data": [str(folder / "pairs.tsv")]}
    run = train_with(train_settings("translate", None, given | {"out": str(folder / "fr")}))
    return [run, shutil.copytree(run, folder / f"{MARKUP}{TURNED}")]


@pytest.fixture(scope="session")
def address(models: list[Path], runs: list[Path]) -> Iterator[str]:
    torch.set_num_threads(1)
    with serving(make_app(ModelRegistry(models), runs=TrainingRuns(runs))) as address:
        yield address


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    yield context
    context.close()


@pytest.fixture
def screen(context: BrowserContext, address: str) -> Iterator[Screen]:
    """A tab in which nothing may go wrong: no script error, no failed request, nothing asked of another machine."""
    screen = Screen(context.new_page(), address)
    yield screen
    screen.page.close()
    assert screen.wrong == []
    assert screen.hosts <= {address.split("/")[2]}
