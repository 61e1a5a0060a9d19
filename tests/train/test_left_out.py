"""Nothing is dropped silently: what is truncated, unused or not evaluated is counted and reported."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperOption

import regard
import tiny_text
from regard.cli.train import command
from regard.train.data import MAX_HELD_OUT, DataLoader
from regard.train.dataset import prepare
from regard.train.encoding import ENCODINGS
from regard.train.parallel import Parallel
from regard.train.preprocess import PackedTokenizer
from regard.train.read import find_sources
from regard.train.settings import FINE_TUNING_RATE, TrainSettings, settings_from
from regard.train.shards import Columns
from regard.train.task import task_named
from regard.train.tokenizer import SPECIALS, train_tokenizer
from regard.train.training_run import layout_of


def made(settings: TrainSettings, folder: Path, kind: str, labels: tuple[str, ...] = ()) -> tuple[DataLoader, Columns]:
    layout = layout_of(settings)
    sources = find_sources(settings.data, layout)
    tokenizer = train_tokenizer(kind, ["good bad film"] * 3, 300, SPECIALS[settings.task])
    recipe: Any = ENCODINGS[settings.task](PackedTokenizer(tokenizer), settings.block_size, labels)
    columns = prepare(folder, sources, layout, recipe)
    task = task_named(settings.task)(settings, tokenizer, labels)
    return DataLoader(task, columns, None, settings, Parallel()), columns


def test_truncated_texts_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{'good ' * n}\tyes\n" for n in (1, 2, 6, 7, 9, 3)) + "\tno\n")
    settings = TrainSettings("classify", (str(file),), block_size=8, batch_size=2)
    _, columns = made(settings, tmp_path / "d", "wordpiece", ("no", "yes"))
    assert columns.summary().endswith("left out: 1 × empty text; 2 × text beyond 8 tokens.")
    assert [len(columns[i]["ids"]) for i in range(6)] == [3, 4, 8, 8, 8, 5]
    last = columns[4]["ids"][-1]
    assert last == columns[0]["ids"][-1]  # the end token is kept
    assert Columns(tmp_path / "d").summary() == columns.summary()  # also when it is found made


def test_unused_data_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x" * 1003)  # and an end token
    loader, _ = made(TrainSettings("lm", (str(file),), block_size=10, batch_size=7), tmp_path / "lm", "characters")
    assert (loader.train.n, loader.held_out_part.n) == (98, 2)
    assert loader.unused_data() == ["The last 3 tokens of the held-out text are too few for a block of 10."]
    pairs = tmp_path / "b.tsv"
    pairs.write_text("good\tbad\n" * 4 * MAX_HELD_OUT)
    options: dict[str, Any] = {"block_size": 10, "batch_tokens": 100, "eval_share": 0.9}
    loader, _ = made(TrainSettings("translate", (str(pairs),), **options), tmp_path / "pairs", "bpe")
    assert loader.unused_data() == []  # as many as are used are held out, and no more
    reviews = tmp_path / "c.tsv"
    reviews.write_text("good\tyes\nbad\tno\n" * 50)
    loader, _ = made(
        TrainSettings("classify", (str(reviews),), batch_size=16), tmp_path / "c", "wordpiece", ("no", "yes")
    )
    assert loader.unused_data() == ["Every epoch leaves out 2 examples, not always the same: too few for a batch."]


def test_held_out_examples_beyond_the_limit_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("good\tyes\nbad\tno\n" * 1010)
    settings = TrainSettings("classify", (str(file),), batch_size=20)
    loader, columns = made(settings, tmp_path / "d", "wordpiece", ("no", "yes"))
    judged = DataLoader(loader.task, columns, columns, settings, Parallel())
    assert judged.unused_data() == ["Of 2,020 held-out examples 2,000 are used at an evaluation."]


def test_text_is_generated_for_sources_of_all_lengths(tmp_path: Path) -> None:
    """Evaluation batches have texts of similar length, and the first of them are not the shortest."""
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{'good ' * (i % 20 + 1)}\tyes\n" for i in range(400)))
    settings = TrainSettings("classify", (str(file),), batch_size=10, eval_share=0.5)
    loader, _ = made(settings, tmp_path / "d", "wordpiece", ("yes",))
    widths = [batch["ids"].shape[1] for batch in loader.held_out()]
    assert len(widths) == 20
    assert widths != sorted(widths)
    assert min(widths[:5]) < 11 < max(widths[:5])


def test_an_evaluation_reports_what_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = regard.load(tiny_text.save("decoder", tmp_path / "model"))
    file = tmp_path / "a.txt"
    file.write_text("one day a king saw two red houses. " * 40)
    n = len(model.tokenizer.encode(file.read_text(), add_special=False))  # and an end token, the last target
    with caplog.at_level(logging.WARNING, "regard"):
        model.evaluate(str(file))
    assert f"the last {n % 128} tokens are too few for a block of 128" in caplog.text


def test_fine_tuning_has_a_lower_learning_rate() -> None:
    defaults = {"learning_rate": 5e-4}
    assert settings_from("classify", defaults, None, {}).learning_rate == 5e-4
    assert settings_from("classify", defaults, None, {"start": "minilm"}).learning_rate == FINE_TUNING_RATE
    assert settings_from("classify", defaults, None, {"start": "minilm", "learning_rate": 1e-3}).learning_rate == 1e-3


def test_every_option_has_a_help_text_with_its_default() -> None:
    app = typer.Typer()
    app.command()(command)
    verb = typer.main.get_command(app)
    usual, told = TrainSettings("lm"), 0
    for option in verb.params:
        if isinstance(option, TyperOption) and "completion" not in (option.name or ""):
            assert option.help, option.name
            assert option.help.endswith("."), option.name
            number = re.search(r"; else ([\d.]+)\.$", option.help)
            if number:
                told += 1
                assert getattr(usual, str(option.name)) == float(number[1]), option.name
    assert told == 13
