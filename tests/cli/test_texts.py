"""Texts that are too long for a model, and results that are NaN: one sentence, and nothing truncated silently."""

import json
from pathlib import Path

import pytest

import tiny_text

LONG, SHORT = "the cat sat on the mat " * 40, "the cat"
WORK = {"embed": "encoder", "classify": "classifier", "tag": "tagger"}


@pytest.mark.parametrize("task", WORK)
def test_a_text_that_is_too_long(regard, tiny_model, task):
    folder = tiny_model(WORK[task])
    ran = regard(task, folder, SHORT, LONG)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("regard: Text 1 has")
    assert "--truncate" in ran.err
    ran = regard(task, folder, SHORT, LONG, "--truncate")
    assert (ran.code, ran.err) == (0, "regard: 1 of 2 texts have more than 128 tokens and were cut.\n")
    assert ran.out


def test_map_reports_it_once(regard, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(f"{SHORT}\n{LONG}\n")
    named = ("--model", tiny_model("encoder"), "--in", "in.txt", "--out")
    ran = regard("map", "embed", *named, "a.jsonl")
    assert (ran.code, ran.err) == (0, "a.jsonl has 2 rows; errors: 1.\n")
    ran = regard("map", "embed", *named, "b.jsonl", "--truncate")
    assert (ran.code, ran.err) == (0, "b.jsonl has 2 rows; truncated texts: 1.\n")
    model = tiny_text.cut_to_16(tiny_model("encoder"), tmp_path / "sentences")
    ran = regard("map", "embed", "--model", model, "--in", "in.txt", "--out", "c.jsonl")
    assert (ran.code, ran.err) == (0, "c.jsonl has 2 rows; truncated texts: 1.\n")
    ran = regard("map", "generate", *named, "d.jsonl", "--truncate")
    assert ran.code == 2
    assert "--truncate: generate" in ran.err


def test_vectors_with_nan(regard, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tiny_text.spoil(tiny_model("encoder"), tmp_path / "encoder")
    for more in ((), ("--json",), ("--out", "v.npy"), ("--compare",)):
        ran = regard("embed", folder, "the cat", "the dog", *more)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith("regard: The vector of 'the dog' holds nan: the model's weights are damaged.\n")
    assert not Path("v.npy").exists()
    Path("in.txt").write_text("the cat\nthe dog\nthe cat\n")
    ran = regard("map", "embed", "--model", folder, "--in", "in.txt", "--out", "o.jsonl")
    assert ran.code == 0
    found = [json.loads(line, parse_constant=pytest.fail) for line in Path("o.jsonl").read_text().splitlines()]
    assert ["error" in row for row in found] == [False, True, False]
