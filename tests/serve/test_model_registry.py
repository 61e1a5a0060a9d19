"""The model registry: which models it lists, and how many it keeps loaded."""

import os
import shutil
from typing import Any

import pytest

from regard.api import Model
from regard.errors import ConfigError, NotFound, RegardError
from regard.lru import LRU
from regard.serve.model_registry import ModelRegistry
from regard.store.hub import BUNDLED
from regard.text import tokenizer


def test_the_least_recently_used_is_evicted_by_count_and_by_bytes():
    cache: Any = LRU(3, lambda: 100, lambda items: sum(map(len, items)))
    for name in ("a", "b", "c"):
        assert cache.put(name, name * 10) == []
    cache.get("a")
    assert cache.put("d", "d" * 10) == ["b" * 10]
    assert cache.put("e", "e" * 75) == ["c" * 10]  # 10 + 10 + 75 fit
    assert cache.put("f", "f" * 90) == ["a" * 10, "d" * 10, "e" * 75]
    assert cache.put("g", "g" * 900) == ["f" * 90]
    assert cache.get("g") == "g" * 900, "the newest stays however large it is"
    assert len(cache) == 1


def test_items_that_grow_are_measured_again():
    most = 100
    cache: Any = LRU(3, lambda: most, lambda items: sum(map(len, items)))
    first, second = ["a"] * 10, ["b"] * 10
    cache.put("first", first)
    cache.put("second", second)
    first += ["a"] * 50
    assert cache.evict() == []
    second += ["b"] * 50
    assert cache.evict() == [first]
    most = 10
    assert cache.evict() == [], "the last stays however large it is"
    assert cache.nbytes == 60


def test_a_model_that_grows_evicts_the_least_recently_used():
    """Tracing makes its network, in addition to the native engine's weights."""
    registry = ModelRegistry(max_bytes=10**9)
    evicted: list[Model] = []
    registry.on_evict.append(evicted.append)
    bert, gpt = registry.model("toy-bert"), registry.model("toy-gpt")
    registry.max_bytes = registry.nbytes + 1000
    registry.evict()
    assert evicted == []
    assert gpt.net is not None
    registry.evict()
    assert evicted == [bert]


def test_a_given_model_is_listed_first_and_only_once(tmp_path):
    (tmp_path / "toy-gpt").symlink_to(BUNDLED / "toy-gpt")
    (tmp_path / "mine").symlink_to(BUNDLED / "toy-bert")
    registry = ModelRegistry(["toy-translate", tmp_path / "mine"])
    assert next(iter(registry.entries)) == "toy-translate"
    assert {"toy-gpt", "toy-bert", "toy-bert-tags"} <= set(registry.entries)


def test_two_directories_of_the_same_name_get_different_names(tmp_path):
    for side in "ab":
        shutil.copytree(BUNDLED / "toy-gpt", tmp_path / side / "toy-gpt")
    registry = ModelRegistry([str(tmp_path / "a" / "toy-gpt"), str(tmp_path / "b" / "toy-gpt")])
    assert list(registry.entries)[:2] == ["toy-gpt-2", "toy-gpt-3"]
    assert registry.entries["toy-gpt-3"].path == tmp_path / "b" / "toy-gpt"


def test_a_model_is_loaded_from_the_files_that_are_open(monkeypatch, tmp_path):
    """Its vocabulary is read once; files that were modified since are opened again."""
    read: list[str] = []
    real = tokenizer.load_tokenizer

    def counted(path, config):
        read.append(path.name)
        return real(path, config)

    monkeypatch.setattr(tokenizer, "load_tokenizer", counted)
    place = tmp_path / "mine"
    shutil.copytree(BUNDLED / "toy-gpt", place)
    registry = ModelRegistry([place], max_models=1)
    first = registry.model("mine")
    assert first.opened is registry.entry("mine").opened
    assert read == ["mine"]
    registry.model("toy-bert")
    again = registry.model("mine")
    assert again is not first
    assert again.tokenizer is first.tokenizer
    assert read == ["mine", "toy-bert"]
    registry.model("toy-bert")
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    os.utime(weights, ns=(0, 1))
    assert registry.model("mine").opened is not first.opened
    assert registry.model("mine").generate("The", max_new_tokens=3) == again.generate("The", max_new_tokens=3)
    assert read == ["mine", "toy-bert", "mine"]


def test_what_is_not_a_model_is_refused_at_once(tmp_path):
    with pytest.raises(NotFound, match=r"There is no file or directory './nowhere'"):
        ModelRegistry(["./nowhere"])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RegardError):
        ModelRegistry([tmp_path])


def test_models_are_evicted_beyond_max_models():
    registry, evicted = ModelRegistry(max_models=2), []
    registry.on_evict.append(lambda model: evicted.append(model.name))
    first = registry.model("toy-gpt")
    assert registry.model("toy-gpt") is first
    registry.model("toy-bert")
    assert evicted == []
    registry.model("toy-bert-tags")
    assert evicted == ["toy-gpt"]
    assert 1.7e6 < first.nbytes < 2e6  # 912,128 weights in 2 bytes, as they are in the file and the engine reads them
    before = first.nbytes
    assert first.net is not None
    assert first.nbytes > before + 3.6e6  # and in 4, for traces
    assert registry.model("toy-gpt") is not first


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../toy-gpt", "gpt2", "owner/model", str(BUNDLED / "toy-gpt"), "", "\x00"]
)
def test_a_path_is_not_a_model_name(client, name):
    for answer in (
        client.get("/api/model", params={"name": name}),
        client.post("/api/trace", json={"model": name, "text": "a"}),
        client.post("/api/generate", json={"model": name, "text": "a"}),
    ):
        assert answer.status_code == 404
        assert answer.json()["error"].startswith("There is no model")


def test_the_list_says_what_each_model_is(client):
    models = {each["name"]: each for each in client.get("/api/models").json()["models"]}
    assert models["toy-gpt"]["kind"] == "decoder"
    assert (models["toy-translate"]["kind"], models["toy-translate"]["head"]) == ("encoder-decoder", "lm")
    assert (models["toy-bert-tags"]["kind"], models["toy-bert-tags"]["head"]) == ("encoder", "tag")
    assert all(each["examples"] and each["about"] and each["family"] for each in models.values())
    assert "[MASK]" in models["toy-bert"]["examples"][0]


def test_a_damaged_model_is_left_out_of_the_list(page, tmp_path):
    from starlette.testclient import TestClient

    from regard.serve.app import make_app

    shutil.copytree(BUNDLED / "toy-gpt", tmp_path / "mine")
    registry = ModelRegistry([tmp_path / "mine"])
    del registry.entries["mine"].__dict__["opened"]
    (tmp_path / "mine" / "config.json").write_text("{")
    with TestClient(make_app(registry, page=page), base_url="http://localhost") as client:
        assert "mine" not in [each["name"] for each in client.get("/api/models").json()["models"]]
        answer = client.get("/api/model", params={"name": "mine"})
    assert answer.status_code == 400
    assert "config.json" in answer.json()["error"]
    with pytest.raises(ConfigError):
        registry.model("mine")


def test_the_structure_of_each_kind_of_model(client):
    gpt = client.get("/api/model", params={"name": "toy-gpt"}).json()
    assert (gpt["parameters"], gpt["d"], gpt["context"], gpt["labels"]) == (912_128, 128, 128, [])
    (stack,) = gpt["stacks"]
    assert stack == {
        "name": "decoder",
        "layers": 4,
        "heads": 4,
        "kv_heads": 4,
        "d_k": 32,
        "d_ff": 512,
        "wiring": "pre",
        "norm": "layer",
        "positions": "learned",
        "activation": "gelu_tanh",
        "gated": False,
        "mask": "causal",
        "cross": False,
        "window": None,
        "final_norm": True,
    }
    encoder, decoder = client.get("/api/model", params={"name": "toy-translate"}).json()["stacks"]
    assert (encoder["name"], encoder["mask"], encoder["cross"]) == ("encoder", "none", False)
    assert (decoder["name"], decoder["mask"], decoder["cross"]) == ("decoder", "causal", True)
    assert client.get("/api/model", params={"name": "toy-bert-sentiment"}).json()["labels"] == [
        "negative",
        "neutral",
        "positive",
    ]
