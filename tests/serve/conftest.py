"""Fixtures: a live server with models for completions, chat and embeddings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import serving
from serving_fixtures import client, page

__all__ = ["client", "page"]


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serving.make_chat_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="session")
def live(chat_model: Path, page: Path) -> Iterator[str]:
    """The address of a server with a model for completions, one for chat and one for embeddings."""
    models = ["toy-gpt", chat_model, "toy-bert"]
    with serving.running(serving.server_of(models, page, slots=4, queue=16)) as address:
        yield address
