"""Tokenised text on the disk that another process has written to, cut off or forged: made again, or refused."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.errors import ConfigError, DataError
from regard.train import training_run
from regard.train.data import DataLoader
from regard.train.dataset import prepare
from regard.train.encoding import ENCODINGS
from regard.train.parallel import Parallel
from regard.train.preprocess import PackedTokenizer
from regard.train.probe import Probes
from regard.train.read import find_sources
from regard.train.settings import TrainSettings
from regard.train.shards import Columns
from regard.train.task import task_named
from regard.train.tokenizer import SPECIALS, train_tokenizer
from regard.train.training_run import layout_of

WORDS = "the cat sat on the old red mat and the dog ran under it".split()
ROWS = {
    "lm": " ".join(WORDS * 40) + "\n",
    "mlm": "".join(" ".join(WORDS[i:] + WORDS[:i]) + "\n\n" for i in range(14)) * 3,
    "classify": "".join(f"{word} {word}\t{'yes' if len(word) > 2 else 'no'}\n" for word in WORDS * 3),
    "translate": "".join(f"{word} {word}\t{word[::-1]}\n" for word in WORDS * 3),
}
COLUMNS = [("lm", "ids"), ("mlm", "ids"), ("mlm", "words"), ("classify", "ids"), ("classify", "label")]
COLUMNS += [("translate", "source"), ("translate", "target")]


class Prepared:
    """A task's data in a folder, and everything to prepare it again."""

    def __init__(self, task: str, folder: Path) -> None:
        file = folder / ("text.tsv" if task in ("classify", "translate") else "text.txt")
        file.write_text(ROWS[task])
        os.utime(file, (1, 1))
        self.settings = TrainSettings(task, (str(file),), block_size=16, batch_size=8, whole_word=task == "mlm")
        labels = ("no", "yes") if task == "classify" else ()
        self.tokenizer = train_tokenizer("characters", [" ".join(WORDS)], 99, SPECIALS[task])
        self.folder, self.layout = folder / "data", layout_of(self.settings)
        self.recipe: Any = ENCODINGS[task](PackedTokenizer(self.tokenizer), 16, labels)
        self.task = task_named(task)(self.settings, self.tokenizer, labels)
        self.said: list[str] = []

    def prepare(self) -> Columns:
        sources = find_sources(self.settings.data, self.layout)
        return prepare(self.folder, sources, self.layout, self.recipe, notify=self.said.append)

    def loader(self, columns: Columns) -> DataLoader:
        return DataLoader(self.task, columns, None, self.settings, Parallel())

    def overwrite(self, name: str, value: int) -> Path:
        """All numbers of a column, in place, with the size and the times it had."""
        path = self.folder / f"{name}-00000.values"
        before, dtype = path.stat(), self.recipe.columns[name]
        with path.open("r+b") as file:
            file.write(np.full(before.st_size // np.dtype(dtype).itemsize, value, dtype).tobytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return path


@pytest.mark.parametrize(("task", "column"), COLUMNS)
def test_what_was_overwritten_is_made_again(task, column, tmp_path):
    data = Prepared(task, tmp_path)
    data.prepare()
    whole = (data.folder / f"{column}-00000.values").read_bytes()
    data.prepare()
    assert data.said == []
    data.overwrite(column, 1)
    data.prepare().verify()
    assert (data.folder / f"{column}-00000.values").read_bytes() == whole
    (sentence,) = data.said
    assert f"the content of {column}-00000.values has changed" in sentence


@pytest.mark.parametrize(("task", "column"), COLUMNS)
def test_numbers_out_of_range_never_reach_the_network(task, column, tmp_path):
    """Not even when the manifest vouches for them, or when they change while they are mapped."""
    data = Prepared(task, tmp_path)
    loader = data.loader(data.prepare())
    loader.micro_batches(0)
    data.overwrite(column, np.iinfo(data.recipe.columns[column]).max)
    forge(data.folder)
    for reader in (loader, data.loader(data.prepare())):
        with pytest.raises(DataError, match=f"{column} has numbers from .* where only those below"):
            reader.micro_batches(1)
        with pytest.raises(DataError, match=f"{column} has numbers from"):
            reader.held_out()


def forge(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    for file in manifest["shards"][0]["files"]:
        file["sha256"] = hashlib.sha256((folder / file["name"]).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_file_that_shrinks_is_met_before_it_is_read(tmp_path):
    """Reading on would be a bus error."""
    data = Prepared("lm", tmp_path)
    loader = data.loader(data.prepare())
    loader.micro_batches(0)
    os.truncate(data.folder / "ids-00000.values", 2)
    with pytest.raises(DataError, match="was cut off or removed"):
        loader.micro_batches(1)
    (data.folder / "ids-00000.values").unlink()
    with pytest.raises(DataError, match="was cut off or removed"):
        loader.held_out()


def test_blocks_in_batches_of_so_many_tokens(tmp_path):
    """All blocks are equally long, so a budget of tokens is a number of blocks."""
    data = Prepared("lm", tmp_path)
    data.settings = TrainSettings("lm", data.settings.data, block_size=16, batch_tokens=50)
    (batch,) = data.loader(data.prepare()).micro_batches(0)
    assert batch["ids"].shape == (3, 16)
    assert data.loader(data.prepare()).tokens_per_micro_batch() == 50


# ── probes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "room"), [("", (8,)), (" ", (8,)), ("a\t", (8, 8)), ("\ta", (8, 8)), ("a\tb\tc", (8, 8)), ("\t", (8, 8))]
)
def test_a_probe_without_text_is_refused(text, room, tmp_path):
    tokenizer = train_tokenizer("characters", ["a b c"], 99, SPECIALS["translate" if len(room) > 1 else "lm"])
    with pytest.raises(ConfigError, match="The probe"):
        Probes(tmp_path, [text], tokenizer, max_tokens=room)


def test_a_probe_that_is_too_long_is_cut_with_a_sentence(tmp_path):
    tokenizer, said = train_tokenizer("characters", ["a b\tc"], 99, SPECIALS["lm"]), list[str]()
    probes = Probes(tmp_path, ["a" * 20, "b" * 100, "a\tb", "a"], tokenizer, max_tokens=(8,), notify=said.append)
    assert [[len(ids) for ids in pair] for pair in probes.pairs] == [[8], [8], [3], [1]]
    assert [sentence.partition("the first ")[2] for sentence in said] == [
        "8 of 20 tokens are used.",
        "8 of 100 tokens are used.",
    ]
    both = Probes(tmp_path, ["aaaa\tbbbb", "aaaa"], tokenizer, max_tokens=(3, 2), notify=said.append)
    assert [[len(ids) for ids in pair] for pair in both.pairs] == [[3, 2], [2]]


@pytest.mark.parametrize("task", ["lm", "translate"])
def test_a_run_with_probes_longer_than_the_context(task, tmp_path, monkeypatch):
    monkeypatch.setattr(training_run, "draw", lambda run: None)
    torch.set_num_threads(1)
    file = tmp_path / ("t.tsv" if task == "translate" else "t.txt")
    file.write_text(ROWS[task])
    said = list[str]()
    settings = TrainSettings(
        task,
        (str(file),),
        str(tmp_path / "run"),
        tokenizer="characters",
        block_size=10,
        layers=1,
        width=8,
        heads=1,
        max_steps=1,
        probes=("the cat sat on the mat", "cat\tthe cat sat on the mat"),
    )
    training_run.train(settings, callback=lambda event: said.append(event.get("text", "")))
    assert sum("tokens are used" in sentence for sentence in said) == 2
    assert list((tmp_path / "run" / "frames").glob("step-*"))
