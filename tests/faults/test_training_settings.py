"""Every setting of a training run, from Python, flags and TOML: what it cannot be is refused in a sentence, before anything
is read or allocated; what it can be comes back from run.toml as it was."""

import math
import os
import tomllib
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regard.api import train_settings, train_with
from regard.errors import ConfigError
from regard.model.registry import spec_of
from regard.train import network_sizes
from regard.train.network_sizes import activations_of, refuse_if_too_large
from regard.train.parallel import Parallel
from regard.train.settings import FLAGS, LISTS, NUMBERS, WHOLE, TrainSettings, read_toml, settings_from

ODD: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -0.5,
    0,
    2**64,
    10**9,
    1e308,
    "",
    "x",
    True,
    False,
    [3],
    [],
    ["x"],
    {},
]
TEXTS = {"task", "out", "format", "document", "start", "tokenizer", "family", "schedule"}
STEPS = {"max_steps", "log_steps", "eval_steps", "save_steps", "probe_steps", "save_total_limit", "patience"}
SHARES = {"eval_share", "dropout", "beta_1", "beta_2", "label_smoothing"}
GOOD: dict[str, tuple[Any, ...]] = {  # which of the odd values are none for a setting
    **dict.fromkeys(TEXTS, ("x",)),
    **dict.fromkeys(STEPS, (10**9,)),
    **dict.fromkeys(SHARES | {"weight_decay"}, (0,)),
    **dict.fromkeys(FLAGS, (True, False)),
    **dict.fromkeys(LISTS, ([], ["x"])),
    "warmup_steps": (0, 10**9),
    "seed": (0, 10**9),
    "clip": (2**64, 10**9, 1e308),
}
FIELDS = [each.name for each in fields(TrainSettings)]


def test_every_setting_is_in_one_table():
    assert sorted([*WHOLE, *NUMBERS, *FLAGS, *LISTS, *TEXTS]) == sorted(FIELDS)


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "{}" if value == {} else repr(value)


def is_good(name: str, value: Any) -> bool:
    return any(type(value) is type(good) and value == good for good in GOOD.get(name, ()))


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "task"])
def test_odd_values(name, tmp_path):
    task = {"whole_word": "mlm", "class_weights": "classify", "label_smoothing": "translate"}.get(name, "lm")
    file, called = tmp_path / "odd.toml", "start|from" if name == "start" else name.rstrip("s").replace("_", "[-_]")
    for value in ODD:
        file.write_text(f"{name} = {toml(value)}\n")
        given = tuple(value) if isinstance(value, list) else value
        wrong: dict[str, Any] = {name: given}
        ways: list[Callable[[], TrainSettings]] = [
            partial(TrainSettings, task, **wrong),
            partial(settings_from, task, {}, None, {name: value}),
            partial(settings_from, task, {}, file, {}),
        ]
        for way in ways:
            if is_good(name, value):
                assert getattr(way(), name) == given
            elif not (name == "out" and value == ""):  # which is none given
                with pytest.raises(ConfigError, match=called):
                    way()


@pytest.mark.parametrize("value", [*ODD, "lm\0", None])
def test_odd_tasks(value, tmp_path):
    if value not in ("x", ""):
        with pytest.raises(ConfigError, match="task"):
            TrainSettings(value)
    with pytest.raises(Exception, match=r"task|no directory") as refusal:
        train_with(TrainSettings(value, data=("x",), out=str(tmp_path / "run")))
    assert type(refusal.value).__module__ == "regard.errors"


@pytest.mark.parametrize(
    "text",
    [
        "layers = [1\n",
        "layers = 1\nlayers = 2\n",
        "learning-rate = 0.1\nlearning_rate = 0.2\n",
        "layers = " + "9" * 5000,
        "probes = " + "[" * 3000 + "]" * 3000,
        "task = 3\n",
        "[lm]\nlayers = 1\n",
        'out = "a\\u0000b"\n',
        "# " + "x" * (1 << 20),
    ],
    ids=range(9),
)
def test_odd_toml(text, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"a\.toml"):
        settings_from("lm", {}, file, {})


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("pipe", "bytes", ".", "nowhere"):
        with pytest.raises(ConfigError):
            read_toml(tmp_path / name)


def test_what_is_written_is_read_again(tmp_path):
    """Every control character, quotes, backslashes and characters of one to four bytes."""
    odd = [chr(i) for i in [*range(0x250), 0x2028, 0x2029, 0xFEFF, 0xFFFF, 0x1F600, 0x10FFFF]]
    probes = ("a\rb", "a\r\nb\n", *(f"x{c}y" for c in odd), "x" + "".join(odd), '"""', "'''", "\\", "\\u0041", "a\tb")
    settings = TrainSettings("lm", ("a b.txt", 'c".txt'), str(tmp_path), probes=probes, learning_rate=1e-05)
    (tmp_path / "run.toml").write_bytes(settings.as_toml().encode())
    assert settings_from("lm", {}, tmp_path / "run.toml", {}) == settings
    assert tomllib.loads(settings.as_toml())["probes"] == list(probes)


def test_text_that_no_file_could_hold():
    for name in ("out", "start", "tokenizer"):
        with pytest.raises(ConfigError, match="must be text"):
            TrainSettings("lm", **{name: "a\udcffb"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="probe"):
        TrainSettings("lm", probes=("a\udcff",))
    with pytest.raises(ConfigError, match="10,000 characters"):
        TrainSettings("lm", probes=("a" * 10_001,))


def test_paths_are_text():
    settings = train_settings("lm", None, {"data": [Path("a.txt")], "out": Path("b")})
    assert (settings.data, settings.out) == (("a.txt",), "b")


@pytest.mark.parametrize(
    ("task", "given", "named"),
    [
        ("mlm", {"family": "llama"}, "for mlm it can be bert"),
        ("lm", {"family": "bert"}, "for lm it can be gpt2, llama"),
        ("translate", {"family": "gpt2"}, "for translate it can be m2m_100"),
        ("lm", {"schedule": "steep"}, "schedule is 'steep'"),
        ("lm", {"format": "xml"}, "format is 'xml'"),
        ("lm", {"label_smoothing": 0.1}, "--label-smoothing is for classify and translate"),
        ("lm", {"whole_word": True}, "--whole-word is for mlm"),
        ("translate", {"class_weights": True}, "--class-weights is for classify"),
        ("lm", {"data": []}, "give --data"),
        ("lm", {"out": ""}, "give --out"),
    ],
)
def test_what_does_not_fit_the_task_is_refused_before_anything_is_made(task, given, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("a text\n")
    with pytest.raises(Exception, match=named) as refusal:
        train_with(train_settings(task, None, {"data": ["t.txt"], "out": "run", **given}))
    assert type(refusal.value).__module__ == "regard.errors"
    assert os.listdir() == ["t.txt"]


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────

GPT2 = {"model_type": "gpt2", "vocab_size": 1000, "n_positions": 32, "n_head": 2}


def test_a_network_that_is_too_large_is_never_built(tmp_path, monkeypatch):
    """Nor is anything left behind."""
    (tmp_path / "t.txt").write_text("the cat sat on the mat " * 50)
    monkeypatch.setattr("regard.train.training_run.build", lambda spec: pytest.fail("it was built"))
    given = {"data": [str(tmp_path / "t.txt")], "out": str(tmp_path / "run"), "tokenizer": "characters"}
    sizes = {"width": 50_000, "layers": 8, "heads": 8}
    with pytest.raises(ConfigError, match=r"240,\d+,\d+,\d+ parameters takes 3,8\d\d\.\d GB of memory, but"):
        train_with(train_settings("lm", None, {**given, **sizes}))
    assert not (tmp_path / "run").exists()


def test_the_estimate(monkeypatch):
    spec = spec_of({**GPT2, "n_embd": 64, "n_layer": 2})
    n = 1000 * 64 + 32 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    kept = activations_of(spec, 100, TrainSettings("lm"))
    assert kept == 4 * 100 * 2 * (8 * 64 + 2 * 256)
    assert activations_of(spec, 100, TrainSettings("lm", bf16=True)) == kept // 2
    assert activations_of(spec, 100, TrainSettings("lm", checkpoint_activations=True)) < kept
    for given, needed in (
        ({}, 16 * n),
        ({"allocated": True, "activations": kept}, 12 * n + kept),
        ({"parallel": Parallel(0, 4, shard=True)}, 4 * n + 12 * n // 4),
    ):
        asked: dict[str, Any] = {"parallel": Parallel(), **given}
        monkeypatch.setattr(network_sizes, "available_memory", lambda needed=needed: needed)
        refuse_if_too_large(spec, **asked)
        monkeypatch.setattr(network_sizes, "available_memory", lambda needed=needed: needed - 1)
        with pytest.raises(ConfigError, match="GB are free"):
            refuse_if_too_large(spec, **asked)


def test_a_step_that_is_too_large_is_refused(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("the cat sat on the mat " * 500)
    given = {"data": [str(tmp_path / "t.txt")], "out": str(tmp_path / "run"), "tokenizer": "characters"}
    sizes = {"width": 16, "layers": 1, "heads": 2, "block_size": 16, "batch_size": 512}
    monkeypatch.setattr(network_sizes, "available_memory", lambda: 4_000_000)
    with pytest.raises(ConfigError, match=r"for a step, but 0\.0 GB are free; lower --batch-size"):
        train_with(train_settings("lm", None, {**given, **sizes}))


@pytest.mark.parametrize(
    "extreme",
    [
        {"seed": 2**63 - 1, "warmup_steps": 10**12, "eval_steps": 10**12, "save_steps": 10**12, "log_steps": 10**12},
        {"batch_size": 10**7, "clip": 1e308, "weight_decay": 1000, "save_total_limit": 10**12, "patience": 10**12},
        {"batch_tokens": 10**7, "learning_rate": 1e-300, "dropout": 0.999999, "beta_1": 0, "beta_2": 0},
        {"max_steps": None, "epochs": 1e-300, "eval_share": 0.9, "probes": ["\0"], "probe_steps": 10**12},
    ],
    ids=range(4),
)
def test_the_largest_and_smallest_that_are_allowed_train(extreme, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.train.training_run.draw", lambda run: None)
    (tmp_path / "t.txt").write_text("the cat sat on the mat " * 50)
    given = {"data": [str(tmp_path / "t.txt")], "out": str(tmp_path / "run"), "tokenizer": "characters"}
    sizes = {"width": 16, "layers": 1, "heads": 2, "block_size": 16, "batch_size": 4, "max_steps": 1, "threads": 1}
    train_with(train_settings("lm", None, {**given, **sizes, **extreme}))
    assert (tmp_path / "run" / "latest").is_dir()
