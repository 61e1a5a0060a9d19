"""Every file of a model or run directory is a regular file within its size limit, or refused. Links to such files work."""

import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
import tiny_text
from hostile import cheap
from regard.batch.task import files_sha256
from regard.errors import RegardError
from regard.page.training_frames import probes_of
from regard.safe_open import SMALL, open_file, read_file
from regard.store.open_model import open_model
from regard.text.tokenizer import load_tokenizer
from regard.train.checkpoint import sha256
from regard.train.metrics import read_metrics
from regard.train.settings import read_toml

if not hasattr(os, "mkfifo"):
    pytest.skip("this system has no FIFOs", allow_module_level=True)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """Terabytes, of which none is on the disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS = {"a FIFO": fifo, "a link to /dev/zero": zeros, "a terabyte": sparse}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_text.save("chat", tmp_path_factory.mktemp("model") / "chat")


FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "model.safetensors",
    "1_Pooling/config.json",
    "modules.json",
    "sentence_bert_config.json",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_model_that_is_no_honest_file(tmp_path: Path, model: Path, name: str, kind: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    if name in ("modules.json", "sentence_bert_config.json"):
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    if name == "special_tokens_map.json":
        (folder / "tokenizer_config.json").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).parent.mkdir(exist_ok=True)
    KINDS[kind](folder / name)
    with cheap(), pytest.raises(RegardError, match=re.escape(Path(name).name)) as caught:
        open_model(folder)
    assert "\n" not in str(caught.value)


READERS: dict[str, Callable[[Path], Any]] = {
    "metrics.jsonl": lambda run: read_metrics(run),
    "run.toml": lambda run: read_toml(run / "run.toml"),
    "frames/probes.json": probes_of,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_run_that_is_no_honest_file(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    KINDS[kind](tmp_path / name)
    with cheap(), pytest.raises(RegardError, match=r"is not a regular file|is larger than"):
        READERS[name](tmp_path)


@pytest.mark.parametrize("work", [sha256, lambda path: files_sha256(path.parent)])
def test_what_is_hashed_is_a_regular_file(tmp_path: Path, work: Callable[[Path], str]) -> None:
    fifo(tmp_path / "config.json")
    with pytest.raises(RegardError, match="is not a regular file"):
        work(tmp_path / "config.json")


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path, model: Path) -> None:
    """The layout of the Hugging Face cache: every file is a link to a blob."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in model.iterdir():
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blobs / blob)
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob))
    assert regard.load(snapshot).generate("the", max_new_tokens=2) == regard.load(model).generate(
        "the", max_new_tokens=2
    )


def test_metrics_of_a_damaged_run_are_the_lines_that_can_be_read(tmp_path: Path) -> None:
    lines = [b'{"step": 1}', b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"step": 2}', b'{"st']
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    assert read_metrics(tmp_path) == [{"step": 1}, {"step": 2}]


def test_a_file_as_large_as_allowed_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(SMALL))
    assert len(read_file(file, SMALL)) == SMALL
    with file.open("ab") as more:
        more.write(b"x")
    with pytest.raises(RegardError, match="is larger than 1 MB"):
        read_file(file, SMALL)
    with pytest.raises(RegardError, match="cannot be read: No such file"):
        open_file(tmp_path / "none")
    with pytest.raises(RegardError, match="is not a regular file"):
        open_file(tmp_path)


def test_windows_line_ends_are_read_as_before(tmp_path: Path, model: Path) -> None:
    assert tomllib.loads('a = 1\r\nb = "x"\r\n') == {"a": 1, "b": "x"}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat"]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(words).encode())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert load_tokenizer(tmp_path).encode("the cat") == [2, 4, 5, 3]
