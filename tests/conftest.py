"""What several test folders share: tiny models saved as directories, each made once per run."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's; see torch.set_num_threads below
sys.path.insert(0, str(Path(__file__).parent.parent / "recipes"))
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what runs in its background ignore Ctrl-C
torch.set_num_threads(1)  # tiny tensors, and pytest-xdist already uses every core


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """The command line's entry point decides what Ctrl-C does from its end on, since a process ends there."""
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, which finds no host but this machine. One for all tests: Playwright cannot be begun twice in a process."""
    from playwright.sync_api import sync_playwright

    from browser import CHROMIUM

    away = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", away])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`saved(name)`: the directory of a tiny random Hugging Face model of `tiny.MODELS`."""
    import transformers

    import tiny

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    done: dict[str, Path] = {}

    def save(name: str) -> Path:
        if name not in done:
            done[name] = tmp_path_factory.mktemp(name)
            if name in tiny.NATIVE:
                tiny.make_native(name, done[name])
            else:
                tiny.make(name).save_pretrained(done[name])
        return done[name]

    return save


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`tiny_model(name)`: the directory of a tiny model of `tiny_text.MODELS`, made once."""
    import transformers

    import tiny_text

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tiny_text.save(name, tmp_path_factory.mktemp("models") / name)
        return made[name]

    return make
