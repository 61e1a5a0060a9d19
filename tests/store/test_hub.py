"""Names → files: precedence, error messages, and downloads from the hub, simulated by a local server."""

import hashlib
import http.server
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest

import regard
from regard.errors import NotFound
from regard.store import hub
from regard.store.hub import PackagedModel, fetch, installed, resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"

# ── what a name means ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundled model, a package that brings one, and a directory to stand in; none of them with weights."""
    for directory in ("bundled/toy", "packages/brought/model", "here"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "bundled/toy/config.json").write_text("{}")
    (tmp_path / "bundled/not-a-model").mkdir()
    (tmp_path / "packages/brought/__init__.py").write_text("raise SystemExit('a model package was imported')")
    monkeypatch.setattr(hub, "BUNDLED", tmp_path / "bundled")
    monkeypatch.setattr(hub, "INSTALLABLE", {"brought": PackagedModel("a test", "brought", "model", "brought==1")})
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def never(*_: Any, **__: Any) -> Path:
    pytest.fail("the hub was asked")


def test_bundled_then_installed_then_a_path(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "fetch", never)
    for name in ("toy", "brought", "someone/model"):
        Path(name).mkdir(parents=True)  # a directory of the same name stands back …
    assert resolve("toy") == house / "bundled" / "toy"
    assert resolve("brought") == house / "packages" / "brought" / "model"
    assert resolve("./toy") == Path("toy")  # … unless it is said that a path is meant
    assert resolve(Path("toy")) == Path("toy")
    assert resolve("someone/model") == Path("someone/model")


def test_the_hub_comes_last(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def note(repo: str, file: str | None = None, **how: object) -> Path:
        asked.append((repo, file))
        return house

    monkeypatch.setattr(hub, "fetch", note)
    for name in ("gpt2", "someone/model", "someone/model:file.gguf", "some.one/m_o-d.el:folder/f-Q4_K.gguf"):
        assert resolve(name) == house
    assert asked == [
        ("gpt2", None),
        ("someone/model", None),
        ("someone/model", "file.gguf"),
        ("some.one/m_o-d.el", "folder/f-Q4_K.gguf"),
    ]


@pytest.mark.parametrize(
    "where",
    ["./none", "../none", "/none", "a/b/c", "no such", "a/b:c.bin", "", "~/none", "~nobody-of-that-name/x", "a\0b"],
)
def test_a_name_that_cannot_be_a_repository_is_not_found(
    house: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(hub, "fetch", never)
    if where == "":
        assert resolve(where) == Path()  # the directory one stands in
        return
    with pytest.raises(NotFound, match="There is no file or directory") as refusal:
        resolve(where)
    assert len(str(refusal.value)) < 200


def test_a_package_is_found_without_importing_it(house: Path) -> None:
    assert installed(hub.INSTALLABLE["brought"]) == house / "packages" / "brought" / "model"
    (house / "packages" / "brought" / "model").rmdir()
    assert installed(hub.INSTALLABLE["brought"]) is None
    with pytest.raises(NotFound, match="brought is not installed; get it with `regard pull brought`"):
        resolve("brought")


def test_offline_the_message_lists_known_models(house: Path) -> None:
    with pytest.raises(NotFound, match=r"no model 'nobody/nothing' here \(known: toy, brought; or give a path\)"):
        resolve("nobody/nothing")


# ── the hub ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Hub(http.server.ThreadingHTTPServer):
    """Answers what huggingface_hub asks: the list of a repository's files, and each of them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self.fault = ""  # "cut": the connection ends in the middle of a file; "garbage": the list is not JSON

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def given(self) -> set[str]:
        """The files that were downloaded."""
        found = [re.fullmatch(r"/[^/]+/[^/]+/resolve/[^/]+/(.+)", path) for verb, path in self.asked if verb == "GET"]
        return {match[1] for match in found if match}


def entry(name: str, body: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}


class Answer(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path))
        for repo, files in self.server.repositories.items():
            if self.path.startswith(f"/api/models/{repo}/revision/"):
                listed = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
                return self.say(b"<html>" if self.server.fault == "garbage" else json.dumps(listed).encode())
            if self.path.startswith(f"/api/models/{repo}/tree/"):
                tree = [entry(name, body) for name, body in files.items()]
                return self.say(json.dumps(tree).encode())
            for revision in ("main", COMMIT):
                name = self.path.removeprefix(f"/{repo}/resolve/{revision}/")
                if name in files:
                    return self.say(files[name], cut=self.server.fault == "cut")
            if self.path.startswith(f"/{repo}/"):
                return self.refuse("EntryNotFound")
        return self.refuse("RepoNotFound")

    def say(self, body: bytes, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def refuse(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # huggingface_hub tries again several times, ever more patiently
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_repository_is_fetched_without_its_pickles_and_code(server: Hub, saved: Callable[[str], Path]) -> None:
    local = files_of(saved("gpt2"))
    strange = ["pytorch_model.bin", "model.pt", "modeling_x.py", "run.sh", "tf_model.h5", "flax_model.msgpack", "x.pkl"]
    server.repositories["someone/tiny"] = local | dict.fromkeys(strange, b"cos\nsystem\n") | {"README.md": b"# hello"}
    path = resolve("someone/tiny", endpoint=server.url)
    assert {p.name for p in path.iterdir()} == set(local) == server.given()
    ids = [[3, 1, 4, 1, 5]]
    assert np.array_equal(regard.load(path)(ids), regard.load(saved("gpt2"))(ids))


def test_load_goes_to_the_hub_by_itself(
    server: Hub, saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "fetch", lambda repo, file=None, **asked: fetch(repo, file, endpoint=server.url))
    server.repositories["someone/tiny-bert"] = files_of(saved("bert"))
    assert regard.load("someone/tiny-bert").family == "bert"


def test_a_downloaded_model_is_available_offline(
    server: Hub, saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repositories["someone/tiny"] = files_of(saved("llama"))
    first = resolve("someone/tiny", endpoint=server.url)
    server.asked.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert resolve("someone/tiny", endpoint=server.url) == first
    assert server.asked == []


def test_one_gguf_file_of_many(server: Hub) -> None:
    server.repositories["someone/ggufs"] = {
        "a-q8_0.gguf": b"GGUF a",
        "low/a-q4_0.gguf": b"GGUF b",
        "config.json": b"{}",
    }
    assert resolve("someone/ggufs:low/a-q4_0.gguf", endpoint=server.url).read_bytes() == b"GGUF b"
    assert server.given() == {"low/a-q4_0.gguf"}


@pytest.mark.parametrize("where", ["nobody/nothing", "nothing", "nobody/nothing:m.gguf", "someone/tiny:missing.gguf"])
def test_what_the_hub_does_not_have(server: Hub, where: str) -> None:
    server.repositories["someone/tiny"] = {"config.json": b"{}"}
    with pytest.raises(NotFound, match=r"it cannot be downloaded from the hub: it answered 404\.$"):
        resolve(where, endpoint=server.url)


@pytest.mark.parametrize("name", ["-bad/name", "bad--/na..me", "x/" + "y" * 200, "x" * 5000])
def test_a_name_that_no_repository_has(server: Hub, name: str) -> None:
    with pytest.raises(NotFound, match="it cannot be downloaded from the hub: nothing there has such a name"):
        resolve(name, endpoint=server.url)
    assert server.asked == []


@pytest.mark.parametrize(("fault", "says"), [("cut", "the download broke off"), ("garbage", "cannot be parsed")])
def test_a_hub_that_disconnects_or_answers_garbage(
    server: Hub, saved: Callable[[str], Path], fault: str, says: str
) -> None:
    server.repositories["someone/tiny"] = files_of(saved("gpt2"))
    server.fault = fault
    with pytest.raises(NotFound, match=f"it cannot be downloaded from the hub: .*{says}"):
        resolve("someone/tiny", endpoint=server.url)


def test_an_unreachable_hub(server: Hub) -> None:
    with socket.socket() as taken:  # a port that was free a moment ago
        taken.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for file in (None, "a.gguf"):
        with pytest.raises(NotFound, match="it could not be reached"):
            fetch("someone/tiny", file, endpoint=nowhere)
