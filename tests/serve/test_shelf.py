"""Which models are offered, and how many are held."""

import pytest

from regard.api import Model
from regard.errors import ConfigError, NotFound, RegardError
from regard.serve.bounded import Bounded
from regard.serve.shelf import Shelf
from regard.store.hub import BUNDLED


def test_the_oldest_goes_by_count_and_by_weight():
    kept = Bounded(3, lambda: 100, lambda things: sum(map(len, things)))
    for name in ("a", "b", "c"):
        assert kept.put(name, name * 10) == []
    kept.get("a")
    assert kept.put("d", "d" * 10) == ["b" * 10]
    assert kept.put("e", "e" * 75) == ["c" * 10]  # 10 + 10 + 75 fit
    assert kept.put("f", "f" * 90) == ["a" * 10, "d" * 10, "e" * 75]
    assert kept.put("g", "g" * 900) == ["f" * 90]
    assert kept.get("g") == "g" * 900, "the newest stays however large it is"
    assert len(kept) == 1


def test_what_grows_is_weighed_again():
    kept, most = Bounded(3, lambda: most, lambda things: sum(map(len, things))), 100
    first, second = ["a"] * 10, ["b"] * 10
    kept.put("first", first)
    kept.put("second", second)
    first += ["a"] * 50
    assert kept.settle() == []
    second += ["b"] * 50
    assert kept.settle() == [first]
    most = 10
    assert kept.settle() == [], "the last stays however large it is"
    assert kept.nbytes == 60


def test_a_model_that_grows_makes_the_one_used_longest_ago_go():
    """Its network is made when it is looked into, beside what writes."""
    shelf = Shelf(most_bytes=10**9)
    gone: list[Model] = []
    shelf.on_drop.append(gone.append)
    bert, gpt = shelf.model("toy-bert"), shelf.model("toy-gpt")
    shelf.most_bytes = shelf.nbytes + 1000
    shelf.settle()
    assert gone == []
    assert gpt.net is not None
    shelf.settle()
    assert gone == [bert]


def test_a_given_model_stands_first_and_is_not_offered_twice(tmp_path):
    (tmp_path / "toy-gpt").symlink_to(BUNDLED / "toy-gpt")
    (tmp_path / "mine").symlink_to(BUNDLED / "toy-bert")
    shelf = Shelf(["toy-translate", tmp_path / "mine"])
    assert next(iter(shelf.offers)) == "toy-translate"
    assert {"toy-gpt", "toy-bert", "toy-bert-tags"} <= set(shelf.offers)


def test_two_directories_of_the_same_name_are_told_apart(tmp_path):
    import shutil

    for side in "ab":
        shutil.copytree(BUNDLED / "toy-gpt", tmp_path / side / "toy-gpt")
    shelf = Shelf([str(tmp_path / "a" / "toy-gpt"), str(tmp_path / "b" / "toy-gpt")])
    assert list(shelf.offers)[:2] == ["toy-gpt-2", "toy-gpt-3"]
    assert shelf.offers["toy-gpt-3"].path == tmp_path / "b" / "toy-gpt"


def test_what_is_not_a_model_is_refused_at_once(tmp_path):
    with pytest.raises(NotFound, match=r"There is no file or directory './nowhere'"):
        Shelf(["./nowhere"])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RegardError):
        Shelf([tmp_path])


def test_models_make_room_and_take_their_runs_with_them():
    shelf, gone = Shelf(most=2), []
    shelf.on_drop.append(lambda model: gone.append(model.name))
    first = shelf.model("toy-gpt")
    assert shelf.model("toy-gpt") is first
    shelf.model("toy-bert")
    assert gone == []
    shelf.model("toy-bert-tags")
    assert gone == ["toy-gpt"]
    assert 1.7e6 < first.nbytes < 2e6  # 912,128 weights in 2 bytes, as they are in the file and the engine reads them
    before = first.nbytes
    assert first.net is not None
    assert first.nbytes > before + 3.6e6  # and in 4, for whoever looks inside
    assert shelf.model("toy-gpt") is not first


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../toy-gpt", "gpt2", "owner/model", str(BUNDLED / "toy-gpt"), "", "\x00"]
)
def test_a_request_names_no_path(client, name):
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
    import shutil

    from starlette.testclient import TestClient

    from regard.serve.app import make_app

    shutil.copytree(BUNDLED / "toy-gpt", tmp_path / "mine")
    shelf = Shelf([tmp_path / "mine"])
    del shelf.offers["mine"].__dict__["opened"]
    (tmp_path / "mine" / "config.json").write_text("{")
    with TestClient(make_app(shelf, page=page), base_url="http://localhost") as client:
        assert "mine" not in [each["name"] for each in client.get("/api/models").json()["models"]]
        answer = client.get("/api/model", params={"name": "mine"})
    assert answer.status_code == 400
    assert "config.json" in answer.json()["error"]
    with pytest.raises(ConfigError):
        shelf.model("mine")


def test_the_map_of_each_kind(client):
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
