"""The server as a function, on the bundled models: requests in, answers out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import serving
from regard.serve.app import make_app
from regard.serve.shelf import Shelf

HERE = "http://127.0.0.1:8899"
PAGE = """<!doctype html><title>page</title>
<script type="importmap">{"imports": {"regard/": "/page/"}}</script>
<script type="module" src="/page/main.js"></script>
"""


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "page"
    (folder / "panels").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "main.js").write_text("export default 1;\n")
    (folder / "panels" / "x.js").write_text("export default 2;\n")
    (folder.parent / "secret.js").write_text("secret\n")
    return folder


@pytest.fixture(scope="session")
def client(page: Path) -> Iterator[TestClient]:
    with TestClient(make_app(Shelf(), page=page), base_url=HERE) as client:
        yield client


@pytest.fixture(scope="session")
def look(client: TestClient) -> Callable[..., dict[str, Any]]:
    """`look(model, text, …)`: the answer of /api/trace, made once for equal questions."""
    made: dict[str, dict[str, Any]] = {}

    def trace(model: str, text: str, **more: Any) -> dict[str, Any]:
        key = repr((model, text, more))
        if key not in made:
            answer = client.post("/api/trace", json={"model": model, "text": text, **more})
            assert answer.status_code == 200, answer.text
            made[key] = answer.json()
        return made[key]

    return trace


@pytest.fixture(scope="session")
def numbers(client: TestClient) -> Callable[..., np.ndarray]:
    """`numbers(id, node, at)`: a slice as an array."""

    def get(id: str, node: str, at: str | None = None) -> np.ndarray:
        answer = client.get(f"/api/trace/{id}/slice", params={"node": node} | ({"at": at} if at else {}))
        assert answer.status_code == 200, answer.text
        shape = [int(n) for n in answer.headers["x-shape"].split(",") if n]
        return np.frombuffer(answer.content, "<f4").reshape(shape)

    return get


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serving.make_chat_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="session")
def live(chat_model: Path, page: Path) -> Iterator[str]:
    """The address of a server with a model that continues, one that chats and one that embeds."""
    models = ["toy-gpt", chat_model, "toy-bert"]
    with serving.running(serving.server_of(models, page, slots=4, queue=16)) as address:
        yield address
