"""On a local Ray cluster: the same bytes as without it, also when a worker is killed in the middle."""

import json
import os
import signal
import socket
import sys

import httpx
import pytest

import regard as package
from regard.batch import input, ray_data, runner
from regard.batch.task import BatchTask, Worker
from regard.errors import ConfigError, RegardError
from regard.serve.deploy import app
from regard.store.open_model import open_model

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'regard[ray]'), so nothing can run on it")
MODEL = "toy-bert-sentiment"
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")  # it warns itself of its own settings


@pytest.fixture(scope="module")
def session():
    """A local cluster, stopped after the tests."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with ray_data.connected(ray_data.LOCAL):
        yield


def doomed(folder):
    """An actor that records which process answers which batch, and is killed the first time that it gets batch 3."""

    class Doomed(ray_data.Actor):
        def __call__(self, batch):
            (number,) = (json.loads(text)["number"] for text in batch["rows"])
            if number == 3 and not (folder / "killed").exists():
                (folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (folder / f"answered-{number}-{os.getpid()}").touch()
            return super().__call__(batch)

    return Doomed


def test_a_killed_worker_loses_no_row(session, tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    notes.mkdir()
    lines = [json.dumps({"text": f"the film number {i} was good " * (1 + i % 3)}) for i in range(60)]
    lines[17] = "{"
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    given = input.scan([str(tmp_path / "in.jsonl")])
    task = BatchTask("classify", MODEL, device="cpu", row_batch_tokens=64)
    identity = task.identity(open_model(MODEL))
    here = runner.local_executor(Worker(task, package.load(MODEL)))
    runner.run(task, identity, given, tmp_path / "here.jsonl", lambda: here)

    monkeypatch.setattr(ray_data, "Actor", doomed(notes))
    there = ray_data.ray_executor(ray_data.LOCAL, workers=2)
    reached = runner.run(task, identity, given, tmp_path / "there.jsonl", lambda: there)
    assert (reached.rows, reached.errors) == (60, 1)
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert (notes / "killed").exists()
    answered = [path.name.split("-")[1:] for path in notes.glob("answered-*")]
    assert {int(number) for number, _ in answered} == set(range(reached.parcels))
    assert len({pid for _, pid in answered}) >= 2


@pytest.mark.parametrize(
    ("model", "batch", "why"),
    [
        ("toy-gpt", {"number": 0, "rows": [{"file": "x", "line": 1, "text": "good"}]}, "toy-gpt cannot classify"),
        ("no/such/model", {"number": 0, "rows": []}, "no/such/model"),
        (MODEL, {"refused": "in.txt has changed since the run began."}, "in.txt has changed"),
    ],
)
def test_errors_of_a_worker_or_the_reader_are_raised_here(model, batch, why):
    """Ray would report only a traceback, so the message travels as a result and is raised in this process."""
    actor = ray_data.Actor(BatchTask("classify", model, device="cpu"), 1)
    (result,) = actor({"rows": [json.dumps(batch)]})["answered"]
    with pytest.raises(RegardError, match=why):
        ray_data.parse_result(result)


def test_the_server_on_ray_serve(session, monkeypatch):
    """One request, through Ray's proxy, with the key; and without it."""
    from ray import serve

    monkeypatch.setenv("REGARD_API_KEY", "a long secret")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(app({"models": "toy-gpt"}), name="regard")
        wish = {"model": "toy-gpt", "prompt": "One day", "max_tokens": 6, "temperature": 0}
        where = f"http://127.0.0.1:{port}/v1/completions"
        answer = httpx.post(where, json=wish, headers={"Authorization": "Bearer a long secret"}, timeout=60)
        assert answer.status_code == 200, answer.text
        said = package.load("toy-gpt").generate("One day", max_new_tokens=6, temperature=0)
        assert answer.json()["choices"][0]["text"] == said
        assert httpx.post(where, json=wish, timeout=60).status_code == 401
    finally:
        serve.shutdown()


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="no argument 'model'; there are models, host"):
        app({"model": "toy-gpt"})
    with pytest.raises(ConfigError, match="replicas is '-1'; it must be a whole number"):
        app({"replicas": "-1"})


def test_without_ray_there_is_an_error_message(monkeypatch):
    monkeypatch.setattr(ray_data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'regard\[ray\]'"):
        ray_data.ray_executor("auto")
