"""What the page asks the server for: traces, and slices of their numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from serving_fixtures import client, page

__all__ = ["client", "page"]


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
