"""Training runs over HTTP: the same numbers that the probes wrote."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from starlette.testclient import TestClient

import regard
from regard.errors import NotFound
from regard.page.training_frames import TrainingRuns, thinned
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry
from regard.train.metrics import read_metrics
from regard.train.probe import Probes, attention_of
from regard.train.report import draw, summarise

TEXTS = ["One day the cat", "The old king"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with three frames, whose model changes between them."""
    folder = tmp_path_factory.mktemp("runs") / "book"
    model = regard.load("toy-gpt")
    probes = Probes(folder, TEXTS, model.tokenizer)
    net: Any = model.net
    lines = list[dict[str, Any]]()
    for step in (0, 50, 100):
        lines.append({"step": step, "entropy": probes.record(model.net, step)})
        with torch.no_grad():
            net.decoder[0].attention.W_q.weight.mul_(0.5)
    lines += [{"step": 100, "loss": 2.5, "lr": 1e-3}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 1')
    return folder


@pytest.fixture(scope="module")
def client(run, page):
    runs = TrainingRuns([run], run.parent)
    with TestClient(make_app(ModelRegistry(), runs=runs, page=page), base_url="http://127.0.0.1") as client:
        yield client


def test_runs_are_listed_once_with_steps_probes_and_nodes(client, run):
    (told,) = client.get("/api/runs").json()["runs"]
    assert (told["name"], told["steps"]) == ("book", [0, 50, 100])
    assert [probe["text"] for probe in told["probes"]] == TEXTS
    n = len(told["probes"][1]["tokens"][0])
    assert {"probe": 1, "node": "decoder.3.attention.weights", "shape": [4, n, n]} in told["nodes"]


def test_metrics_are_the_lines_that_were_written(client):
    lines = client.get("/api/run", params={"name": "book"}).json()["lines"]
    assert [line["step"] for line in lines] == [0, 50, 100, 100]
    assert lines[-1] == {"step": 100, "loss": 2.5, "lr": 0.001}


def test_a_frame_has_the_attention_of_its_step(client, run):
    model = regard.load("toy-gpt")
    wanted = {"run": "book", "step": 0, "probe": 1, "node": "decoder.2.attention.weights"}
    answer = client.get("/api/frame", params=wanted)
    exact = attention_of(model.net, [model.tokenizer.encode(TEXTS[1])])["decoder.2.attention.weights"]
    got = np.frombuffer(answer.content, "<f4").reshape([int(n) for n in answer.headers["x-shape"].split(",")])
    np.testing.assert_allclose(got, exact.numpy(), atol=1e-3)  # frames are kept in 16 bits
    head = client.get("/api/frame", params=wanted | {"at": "3,:,0:1"})
    np.testing.assert_array_equal(np.frombuffer(head.content, "<f4"), got[3, :, 0])
    later = client.get("/api/frame", params=wanted | {"step": 100})
    assert later.content != answer.content


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"run": "../book"}, 404),
        ({"step": 7}, 404),
        ({"step": -1}, 400),
        ({"step": "x"}, 400),
        ({"probe": 9}, 404),
        ({"node": "decoder.9.attention.weights"}, 404),
        ({"at": "9,:,:"}, 400),
        ({"node": "../../config"}, 404),
    ],
)
def test_unknown_runs_steps_and_nodes_are_refused(client, changed, status):
    wanted = {"run": "book", "step": 0, "probe": 0, "node": "decoder.0.attention.weights"}
    answer = client.get("/api/frame", params=wanted | changed)
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")


def test_without_runs_the_list_is_empty_and_a_wrong_one_is_refused(tmp_path):
    assert TrainingRuns([], tmp_path / "nothing").all() == {}
    with pytest.raises(NotFound, match="is not a training run"):
        TrainingRuns([tmp_path])


def test_a_long_run_is_thinned_but_keeps_evaluations():
    lines: list[dict[str, Any]] = [{"step": i, "loss": 1.0} for i in range(10_000)]
    lines[4321] = {"step": 4321, "eval": {"loss": 1.0}}
    few = thinned(lines, 100)
    assert 90 <= len(few) <= 102
    assert (few[0]["step"], few[-1]["step"]) == (0, 9_999)
    assert {"step": 4321, "eval": {"loss": 1.0}} in few
    assert thinned(lines[:50], 100) == lines[:50]


def damaged(folder, name):
    """A run in which something is wrong."""
    place = folder / name
    (place / "frames").mkdir(parents=True)
    (place / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0, "lr": 0.1}\n')
    if name == "not-safetensors":
        (place / "frames" / "step-000000.safetensors").write_bytes(b"\xff" * 100)
    elif name == "misnamed":
        (place / "frames" / "step-7.safetensors").write_bytes(b"")
    elif name == "probes":
        (place / "frames" / "probes.json").write_bytes(b"\xff\xfe{")
    elif name == "deep":
        (place / "frames" / "probes.json").write_bytes(b"[" * 100_000)
    elif name == "other-probes":
        (place / "frames" / "probes.json").write_text('{"a": 1}')
    elif name == "other-tensors":
        save_file({"weights": torch.ones(2)}, place / "frames" / "step-000000.safetensors")
    return place


BROKEN = ["not-safetensors", "misnamed", "probes", "deep", "other-probes", "other-tensors"]


def test_a_damaged_run_is_listed_with_its_error(run, page, tmp_path):
    for name in BROKEN:
        damaged(tmp_path, name)
    with TestClient(
        make_app(ModelRegistry(), runs=TrainingRuns([run], tmp_path), page=page), base_url="http://127.0.0.1"
    ) as client:
        told = {each["name"]: each for each in client.get("/api/runs").json()["runs"]}
        assert set(told) == {"book", *BROKEN}
        assert told["book"]["steps"] == [0, 50, 100]
        assert {name for name, each in told.items() if "error" in each} == set(BROKEN) - {"other-tensors"}
        assert all(each["error"].endswith(".") for each in told.values() if "error" in each)
        for name in BROKEN:
            assert len(client.get("/api/run", params={"name": name}).json()["lines"]) == 1
            answer = client.get("/api/frame", params={"run": name, "step": 0, "node": "x"})
            assert answer.status_code in (400, 404)


ODD = [
    *(b"not json", b"[1, 2]", b"7", b"null", b'"step"', b"\xff\xfe\x00\x01", b"\x00" * 50, b"{", b"[" * 100_000, b""),
    *(b'{"loss": 1.0, "lr": 1.0}', b'{"step": "1", "loss": 1, "lr": 1}', b'{"step": NaN, "loss": 1, "lr": 1}'),
    *(b'{"step": true}', b'{"step": -1}', b'{"step": 1e3}', b'{"step": 1' + b"0" * 400 + b"}"),
    *(
        b'{"step": 2, "lr": 0.1}',
        b'{"step": 2, "loss": "high", "lr": []}',
        b'{"step": 2, "loss": 1' + b"0" * 400 + b"}",
    ),
    *(b'{"step": 3, "eval": 1}', b'{"step": 3, "eval": {}}', b'{"step": 3, "eval": {"loss": "x", "accuracy": 0.5}}'),
    *(b'{"step": 4, "layer_norms": {"a": [1]}, "loss": 1, "lr": 1}', b'{"step": 4, "entropy": {"a": 1, "b": []}}'),
    *(b'{"step": 5, "entropy": {"a": [NaN, 1.0], "b": [Infinity]}}', b'{"step": 5, "loss": NaN, "lr": Infinity}'),
    *(
        b'{"step": 6, "loss": 3.0, "lr": 0.1, "layer_norms": {"b": -Infinity, "c": NaN}}',
        b'{"step": 6, "eval": {"loss": NaN}}',
    ),
    *(
        b'{"step": 7, "loss": 3.0, "lr": 0.1, "note": "' + b"a" * (10 << 20) + b'"}',
        b'{"step": 8, "loss": 2.0, "lr": 0.1}',
    ),
]


def test_damaged_lines_of_the_log_are_skipped(page, tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "metrics.jsonl").write_bytes(b"\n".join(ODD) + b"\n")
    with TestClient(
        make_app(ModelRegistry(), runs=TrainingRuns([], tmp_path), page=page), base_url="http://127.0.0.1"
    ) as client:
        assert [each["name"] for each in client.get("/api/runs").json()["runs"]] == ["book"]
        lines = client.get("/api/run", params={"name": "book"}).json()["lines"]
    assert lines[-1] == {"step": 8, "loss": 2.0, "lr": 0.1}
    assert {"step": 3, "eval": {}} in lines
    assert all(set(line) <= {"step", "loss", "lr", "eval", "entropy", "layer_norms"} for line in lines)
    assert 7 not in [line["step"] for line in lines], "a line of 10 MB is no line"
    picture = draw(tmp_path / "book")
    assert picture.read_text().startswith("<?xml")
    assert summarise(tmp_path / "book", read_metrics(tmp_path / "book")).startswith(
        f"{tmp_path / 'book'}: 8 steps, training loss 2.0000"
    )


@pytest.mark.parametrize("i", range(17, len(ODD)))
def test_a_log_of_one_odd_line_is_reported(tmp_path, i):
    (tmp_path / "metrics.jsonl").write_bytes(ODD[i])
    draw(tmp_path)
    assert str(tmp_path) in summarise(tmp_path, read_metrics(tmp_path))
