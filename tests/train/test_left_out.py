"""Nothing is dropped in silence: what is cut off, left over or not judged is counted and said."""

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
from regard.train.data import HELD_OUT_MOST, Feed
from regard.train.encoding import ENCODINGS
from regard.train.parallel import Parallel
from regard.train.prepare import prepare
from regard.train.read import find_sources
from regard.train.recipe import PackedTokenizer
from regard.train.settings import GOING_ON, TrainSettings, settings_from
from regard.train.shards import Columns
from regard.train.start import layout_of
from regard.train.task import task_named
from regard.train.vocabulary import SPECIALS, train_tokenizer


def made(settings: TrainSettings, folder: Path, kind: str, labels: tuple[str, ...] = ()) -> tuple[Feed, Columns]:
    layout = layout_of(settings)
    sources = find_sources(settings.data, layout)
    tokenizer = train_tokenizer(kind, ["good bad film"] * 3, 300, SPECIALS[settings.task])
    recipe: Any = ENCODINGS[settings.task](PackedTokenizer(tokenizer), settings.block_size, labels)
    columns = prepare(folder, sources, layout, recipe)
    task = task_named(settings.task)(settings, tokenizer, labels)
    return Feed(task, columns, None, settings, Parallel()), columns


def test_a_text_that_is_cut_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{'good ' * n}\tyes\n" for n in (1, 2, 6, 7, 9, 3)) + "\tno\n")
    settings = TrainSettings("classify", (str(file),), block_size=8, batch_size=2)
    _, columns = made(settings, tmp_path / "d", "wordpiece", ("no", "yes"))
    assert columns.summary().endswith("left out: 1 × empty text; 2 × text beyond 8 tokens.")
    assert [len(columns[i]["ids"]) for i in range(6)] == [3, 4, 8, 8, 8, 5]
    last = columns[4]["ids"][-1]
    assert last == columns[0]["ids"][-1]  # the end token is kept
    assert Columns(tmp_path / "d").summary() == columns.summary()  # also when it is found made


def test_what_is_left_over_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x" * 1003)  # and an end token
    feed, _ = made(TrainSettings("lm", (str(file),), block_size=10, batch_size=7), tmp_path / "lm", "characters")
    assert (feed.train.n, feed.aside.n) == (98, 2)
    assert feed.left_over() == ["The last 3 tokens of the held-out text are too few for a block of 10."]
    pairs = tmp_path / "b.tsv"
    pairs.write_text("good\tbad\n" * 4 * HELD_OUT_MOST)
    options: dict[str, Any] = {"block_size": 10, "batch_tokens": 100, "eval_share": 0.9}
    feed, _ = made(TrainSettings("translate", (str(pairs),), **options), tmp_path / "pairs", "bpe")
    assert feed.left_over() == []  # as many as are judged are held out, and no more
    reviews = tmp_path / "c.tsv"
    reviews.write_text("good\tyes\nbad\tno\n" * 50)
    feed, _ = made(
        TrainSettings("classify", (str(reviews),), batch_size=16), tmp_path / "c", "wordpiece", ("no", "yes")
    )
    assert feed.left_over() == ["Every epoch leaves out 2 examples, not always the same: too few for a batch."]


def test_held_out_texts_that_are_not_judged(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("good\tyes\nbad\tno\n" * 1010)
    settings = TrainSettings("classify", (str(file),), batch_size=20)
    feed, columns = made(settings, tmp_path / "d", "wordpiece", ("no", "yes"))
    judged = Feed(feed.task, columns, columns, settings, Parallel())
    assert judged.left_over() == ["Of 2,020 held-out examples 2,000 are judged at an evaluation."]


def test_answers_are_written_for_texts_of_all_lengths(tmp_path: Path) -> None:
    """Batches hold texts of like length, and the first of them are not the shortest."""
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{'good ' * (i % 20 + 1)}\tyes\n" for i in range(400)))
    settings = TrainSettings("classify", (str(file),), batch_size=10, eval_share=0.5)
    feed, _ = made(settings, tmp_path / "d", "wordpiece", ("yes",))
    widths = [batch["ids"].shape[1] for batch in feed.held_out()]
    assert len(widths) == 20
    assert widths != sorted(widths)
    assert min(widths[:5]) < 11 < max(widths[:5])


def test_an_evaluation_says_what_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = regard.load(tiny_text.save("decoder", tmp_path / "model"))
    file = tmp_path / "a.txt"
    file.write_text("one day a king saw two red houses. " * 40)
    n = len(model.tokenizer.encode(file.read_text(), add_special=False))  # and an end token, the last target
    with caplog.at_level(logging.WARNING, "regard"):
        model.evaluate(str(file))
    assert f"the last {n % 128} tokens are too few for a block of 128" in caplog.text


def test_a_model_that_goes_on_is_taught_gently() -> None:
    defaults = {"learning_rate": 5e-4}
    assert settings_from("classify", defaults, None, {}).learning_rate == 5e-4
    assert settings_from("classify", defaults, None, {"start": "minilm"}).learning_rate == GOING_ON
    assert settings_from("classify", defaults, None, {"start": "minilm", "learning_rate": 1e-3}).learning_rate == 1e-3


def test_every_option_is_explained_and_its_default_is_the_one_told() -> None:
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
