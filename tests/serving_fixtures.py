"""Fixtures of the server as a function, on the bundled models: for the tests of the server and of the page's data."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry

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
    with TestClient(make_app(ModelRegistry(), page=page), base_url=HERE) as client:
        yield client
