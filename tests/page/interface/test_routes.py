"""The data of the page: what HTTP says is what the library says, for every kind of model."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import regard
from regard.page.trace_sessions import TraceSessions, total_bytes
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry

RUNS = {
    "toy-gpt": "One day the cat",
    "toy-bert": "The movie was [MASK] and I loved it.",
    "toy-bert-sentiment": "The story was quite boring.",
    "toy-bert-tags": "The old man saw a small dog.",
    "toy-translate": "the European Economic Area",
}


@pytest.mark.parametrize("name", RUNS)
def test_every_node_is_served_as_in_the_trace(look, numbers, name):
    told, model = look(name, RUNS[name]), regard.load(name)
    ids = model.tokenizer.encode(RUNS[name], allow_control=name == "toy-bert")
    own = model.trace(ids)
    assert told["tokens"] == own.tokens
    assert (told["ids"], told["target_ids"]) == (own.ids, own.target_ids)
    assert [n["name"] for n in told["nodes"]] == own.nodes()
    for node in told["nodes"]:
        got = numbers(told["trace"], node["name"])
        assert list(got.shape) == node["shape"]
        assert len(node["axes"]) == len(node["shape"])
        np.testing.assert_allclose(got, own[node["name"]], rtol=1e-4, atol=1e-4, err_msg=node["name"])


@pytest.mark.parametrize("name", RUNS)
def test_a_derivation_goes_down_to_a_weight(client, look, name):
    """From a logit through nodes as long as there are any, and then into a weight."""
    told = look(name, RUNS[name])
    shapes = {node["name"]: node["shape"] for node in told["nodes"]}
    node, index, seen = "logits", [0] * len(shapes["logits"]), list[str]()
    while True:
        asked = {"node": node, "index": ",".join(map(str, index))}
        why = client.get(f"/api/trace/{told['trace']}/why", params=asked).json()
        assert why["agrees"], why
        if why["op"] == "weight":
            break
        seen.append(node)
        operands = [f for term in why["terms"] for f in term["factors"] if f["node"]]
        next_one = min(operands, key=lambda f: f["node"] not in shapes)
        node, index = next_one["node"], next_one["index"]
    assert len(set(seen)) >= 4
    assert node not in shapes


def test_why_is_that_of_the_library(client, look):
    told = look("toy-gpt", RUNS["toy-gpt"])
    own = regard.load("toy-gpt").trace(RUNS["toy-gpt"]).why("decoder.1.attention.weights", (2, 3, 1))
    asked = {"node": "decoder.1.attention.weights", "index": "2,3,1"}
    why = client.get(f"/api/trace/{told['trace']}/why", params=asked).json()
    assert why["symbols"] == own.symbols
    assert why["value"] == pytest.approx(own.value, rel=1e-5)
    assert len(why["terms"]) == min(12, len(own.terms))
    few = client.get(f"/api/trace/{told['trace']}/why", params=asked | {"most": 2}).json()
    assert len(few["terms"]) == 2
    assert few["rest"]["count"] == len(own.terms) - 2


def test_a_masked_score_can_be_sent(client, look):
    told = look("toy-gpt", RUNS["toy-gpt"])
    asked = {"node": "decoder.0.attention.masked", "index": "0,0,1"}
    assert client.get(f"/api/trace/{told['trace']}/why", params=asked).json()["value"] == "-∞"


def test_a_weight_can_be_sliced_in_the_lectures_orientation(look, numbers):
    told, model = look("toy-gpt", RUNS["toy-gpt"]), regard.load("toy-gpt")
    W = numbers(told["trace"], "decoder.2.mlp.up.weight", "3:5,:")
    net: Any = model.net
    np.testing.assert_array_equal(W, net.decoder[2].mlp.up.weight.T[3:5].numpy())


def test_sites_of_a_translation(look):
    told = look("toy-translate", RUNS["toy-translate"])
    sites = {site["site"]: site for site in told["sites"]}
    assert sites["decoder.1.cross"] == {
        "site": "decoder.1.cross",
        "kind": "cross",
        "stack": "decoder",
        "layer": 1,
        "heads": 4,
        "queries": "target",
        "keys": "source",
        "steps": [f"decoder.1.cross.{step}" for step in ("dots", "scores", "weights")],
        "weights": "decoder.1.cross.weights",
        "masked": None,
        **{letter: f"decoder.1.cross.{letter}" for letter in "QKVZM"},
    }
    assert sites["encoder.0.attention"]["kind"] == "self"
    assert "".join(told["target_tokens"][1:]) == "la zone économique européenne"
    assert len(told["steps"]) >= len(told["target_ids"]) - 1


def test_generated_text_is_traced_with_its_steps(client, look):
    wish = {"max_new_tokens": 6, "temperature": 0.8, "top_k": 40, "seed": 7}
    told, model = look("toy-gpt", RUNS["toy-gpt"], generate=wish), regard.load("toy-gpt")
    prompt = model.tokenizer.encode(RUNS["toy-gpt"])
    (answer,) = model.answers(prompt, **wish)[0]
    assert told["ids"] == [*prompt, *answer.ids]
    assert [step["id"] for step in told["steps"]] == answer.ids
    for step in told["steps"]:
        place = {"position": step["position"] - 1, "temperature": 0.8, "top_k": 40, "seed": 7}
        out = client.get(f"/api/trace/{told['trace']}/output", params=place).json()
        assert out["drawn"]["id"] == step["id"], "the output stage draws what generation drew"


def test_a_target_can_be_given(look):
    told = look("toy-translate", RUNS["toy-translate"], target="la zone", generate={"max_new_tokens": 3})
    assert told["steps"] == [], "there is nothing left to write"
    assert "zone" in "".join(told["target_tokens"])


# ── edits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fork_is_the_edited_run_and_back(client, look, numbers):
    told = look("toy-gpt", RUNS["toy-gpt"])
    edits = {"decoder.1.attention.head.2": "zero", "decoder.0.attention.scaling": "off"}
    fork = client.post(f"/api/trace/{told['trace']}/fork", json={"edits": edits}).json()
    own = regard.load("toy-gpt").trace(RUNS["toy-gpt"]).edit(edits)
    assert fork["trace"] != told["trace"]
    assert fork["edits"] == edits
    np.testing.assert_allclose(numbers(fork["trace"], "logits"), own["logits"], rtol=1e-4, atol=1e-4)
    assert not numbers(fork["trace"], "decoder.1.attention.Z", "2").any()
    again = client.post(f"/api/trace/{fork['trace']}/fork", json={"edits": {}}).json()
    np.testing.assert_array_equal(numbers(again["trace"], "logits"), numbers(told["trace"], "logits"))
    same = look("toy-gpt", RUNS["toy-gpt"], edits=edits)
    np.testing.assert_allclose(numbers(same["trace"], "logits"), numbers(fork["trace"], "logits"), atol=1e-4)


def test_two_runs_are_compared(client, look):
    a = look("toy-gpt", RUNS["toy-gpt"])["trace"]
    b = client.post(f"/api/trace/{a}/fork", json={"edits": {"decoder.3.mlp.out": "zero"}}).json()["trace"]
    found = client.get("/api/compare", params={"a": a, "b": b}).json()
    changes = {each["name"]: each["change"] for each in found["nodes"]}
    assert changes["decoder.3.mlp.out"] == 1
    assert changes["decoder.3.attention.weights"] == 0
    assert changes["logits"] > 0
    assert found["align"] == [[i, i] for i in range(len(found["align"]))]
    first = found["output"][0]
    assert abs(first["a"] - first["b"]) >= abs(found["output"][-1]["a"] - found["output"][-1]["b"])


@pytest.mark.parametrize(
    "edits",
    [
        {"nowhere": "zero"},
        {"decoder.0.attention.head.99": "zero"},
        {"token.0": "explode"},
        {"token.0": {"from": "x"}},
        {"token.0": None},
        {"token.0": []},
        {"": "zero"},
        {"token.0": {"set": "nan"}},
        {"token.0": {"scale": "1e999"}},
    ],
)
def test_an_invalid_edit_is_refused(client, look, edits):
    told = look("toy-gpt", RUNS["toy-gpt"])
    answer = client.post(f"/api/trace/{told['trace']}/fork", json={"edits": edits})
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"].endswith(".")


# ── lenses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lenses_are_those_of_the_library(client, look):
    from regard.explain import lens

    told, own = look("toy-gpt", RUNS["toy-gpt"]), regard.load("toy-gpt").trace(RUNS["toy-gpt"])

    def ask(name, **more):
        answer = client.get(f"/api/trace/{told['trace']}/lens", params={"name": name, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    heads = ask("heads")["sites"]["decoder.2.attention"]
    scores = lens.head_scores(own)["decoder.2.attention"]
    np.testing.assert_allclose(heads["entropy"], scores.entropy, atol=1e-4)
    assert scores.previous is not None
    np.testing.assert_allclose(heads["previous"], scores.previous, atol=1e-4)
    rows = ask("logit_lens", token=1)["rows"]
    assert [row["node"] for row in rows] == ["embed.out", *(f"decoder.{i}.out" for i in range(4))]
    assert rows[-1]["top"][0][1] == int(own["logits"][1].argmax())
    rollout = ask("rollout")
    np.testing.assert_allclose(np.reshape(rollout["values"], rollout["shape"]).sum(-1), 1, atol=1e-5)
    early = ask("rollout", stack="decoder", layer=1)
    np.testing.assert_allclose(
        np.reshape(early["values"], early["shape"]), lens.attention_rollout(own, "decoder", 1), atol=1e-6
    )
    apart = ask("disagreement")["sites"]["decoder.1.attention"]
    assert apart[2] == pytest.approx(lens.contribution(own, "decoder.1.attention", 2).disagreement, abs=1e-4)
    found = ask("contribution", site="decoder.0.attention", head=1)
    np.testing.assert_allclose(found["weights"], own["decoder.0.attention.weights"][1], atol=1e-4)
    parts = ask("attribution", token=2, id=5)
    assert parts["id"] == 5
    assert math.isclose(sum(p["value"] for p in parts["parts"]) + parts["bias"], parts["total"], abs_tol=1e-3)
    assert parts["total"] == pytest.approx(float(own["logits"][2, 5]), abs=1e-3)
    effects = ask("ablation")["sites"]
    np.testing.assert_allclose(effects["decoder.3.attention"], lens.ablation(own)["decoder.3.attention"], atol=1e-3)
    alone = ask("ablation", site="decoder.3.attention")["sites"]
    assert alone == {"decoder.3.attention": effects["decoder.3.attention"]}, "a site can be asked for by itself"
    gradient = ask("gradient", token=2)
    assert len(gradient["values"]) == len(told["tokens"])
    assert gradient["values"][3:] == [0.0] * (len(told["tokens"]) - 3), "what comes later has no say"


def test_gradients_after_generation_of_a_translation(client, look):
    """Weights laid out for decoding can still be differentiated through."""
    told = look("toy-translate", RUNS["toy-translate"])
    answer = client.get(f"/api/trace/{told['trace']}/lens", params={"name": "gradient"})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["target_values"]) == len(told["target_ids"])


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_output_from_logits_to_the_drawn_token(client, look):
    told, model = look("toy-gpt", RUNS["toy-gpt"]), regard.load("toy-gpt")
    settings = {"temperature": 0.7, "top_k": 10, "top_p": 0.9, "seed": 3}
    out = client.get(f"/api/trace/{told['trace']}/output", params=settings).json()
    logits = torch.from_numpy(model(told["ids"])[0, -1]).double()
    P = (logits / 0.7).softmax(-1)
    assert (out["kind"], out["vocabulary"], len(out["rows"])) == ("next", 800, 200)
    top = out["rows"][0]
    assert top["id"] == int(P.argmax())
    assert top["probability"] == pytest.approx(float(P.max()), rel=1e-4)
    assert math.exp(top["scaled"] - out["highest"]) / out["sum"] == pytest.approx(top["probability"], rel=1e-9)
    kept = [row for row in out["rows"] if row["kept"]]
    assert len(kept) == out["kept"] <= 10
    assert sum(row["final"] for row in kept) == pytest.approx(1)
    (answer,) = model.answers(told["ids"], max_new_tokens=1, **settings)[0]
    assert out["drawn"]["id"] == answer.ids[0]
    greedy = client.get(f"/api/trace/{told['trace']}/output", params={"temperature": 0}).json()
    assert (greedy["kept"], greedy["drawn"]["id"]) == (1, top["id"])
    assert client.get(f"/api/trace/{told['trace']}/output").json()["drawn"] is None


def test_masks_classes_and_tags(client, look):
    def output(name, **more):
        return client.get(f"/api/trace/{look(name, RUNS[name])['trace']}/output", params=more).json()

    mask = output("toy-bert")
    filled: Any = regard.load("toy-bert").fill(RUNS["toy-bert"])
    assert (mask["kind"], mask["rows"][0]["id"]) == ("mask", filled[0]["id"])
    assert mask["rows"][0]["probability"] == pytest.approx(filled[0]["probability"], rel=1e-3)
    moods = output("toy-bert-sentiment")
    classified = regard.load("toy-bert-sentiment").classify(RUNS["toy-bert-sentiment"])[0]
    assert (moods["kind"], [row["piece"] for row in moods["rows"]]) == ("class", list(classified))
    tags = output("toy-bert-tags", position=1)
    assert (tags["kind"], tags["rows"][0]["piece"]) == ("tags", "DET")


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": "nan"},
        {"temperature": -1},
        {"top_p": 0},
        {"top_k": -1},
        {"position": 999},
        {"position": -1},
        {"seed": "x"},
        {"top_p": 2},
        {"min_p": "inf"},
    ],
)
def test_settings_out_of_range_are_refused(client, look, wrong):
    answer = client.get(f"/api/trace/{look('toy-gpt', RUNS['toy-gpt'])['trace']}/output", params=wrong)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"text": ""}, "The text is empty"),
        ({"text": "a" * 20_001}, "at most 20000 characters"),
        ({"text": "cat " * 500}, "tokens; with toy-gpt, at most 128 can be traced"),
        ({"text": "a", "generate": {"surprise": 1}}, "generate has 'surprise'"),
        ({"text": "a", "generate": {"temperature": "hot"}}, "temperature is 'hot'"),
        ({"text": "a", "generate": {"num_beams": 64}}, "generate has 'num_beams'"),
        ({"text": "\ud800"}, "text: "),
        ({"text": "a", "edits": {str(i): "zero" for i in range(201)}}, "edits"),
    ],
)
def test_runs_beyond_the_limits_are_refused(client, wish, words):
    import json

    body = json.dumps({"model": "toy-gpt", **wish})
    answer = client.post("/api/trace", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]


def test_control_tokens_in_a_text_are_text(look):
    told = look("toy-gpt", "a <|endoftext|> b")
    assert 0 not in told["ids"]


def test_trace_ids_cannot_be_guessed_and_unknown_ones_are_refused(client, look):
    ids = {look("toy-gpt", text)["trace"] for text in ("a", "b", "c")}
    assert len(ids) == 3
    assert all(len(id) >= 24 for id in ids)
    for route in ("slice?node=logits", "why?node=logits&index=0,0", "output", "lens?name=heads", "export"):
        answer = client.get(f"/api/trace/nothing/{route}")
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            "That run is no longer stored here; run the text again.",
        )


@pytest.mark.parametrize(
    ("route", "status"),
    [
        ("slice?node=nowhere", 404),
        ("slice?node=logits&at=999", 400),
        ("slice?node=net.spec", 404),
        ("slice", 400),
        ("why?node=logits&index=0", 400),
        ("why?node=logits&index=0,99999", 400),
        ("why?node=nowhere&index=0", 404),
        ("lens?name=nothing", 404),
        ("lens?name=contribution", 400),
        ("lens?name=rollout&layer=4", 404),
        ("lens?name=rollout&layer=-1", 404),
        ("lens?name=ablation&site=decoder.9.attention", 404),
        ("lens?name=gates", 400),
        ("lens?name=logit_lens&token=99", 404),
        ("slice?node=__class__.weight", 404),
        ("lens?name=attribution&id=-1", 404),
    ],
)
def test_unknown_nodes_and_lenses_are_refused(client, look, route, status):
    answer = client.get(f"/api/trace/{look('toy-gpt', RUNS['toy-gpt'])['trace']}/{route}")
    assert answer.status_code == status, answer.text
    assert answer.json()["error"].endswith(".")


def test_old_traces_are_evicted_and_dropped_with_their_model(monkeypatch):
    sessions = TraceSessions(ModelRegistry(max_models=1), max_traces=2)
    first, second = sessions.run("toy-gpt", "a"), sessions.run("toy-gpt", "b")
    sessions.find(first.id)
    third = sessions.run("toy-gpt", "c")
    assert sessions.find(first.id) is first
    with pytest.raises(regard.RegardError):
        sessions.find(second.id)
    fourth = sessions.run("toy-bert", "d")
    assert sessions.find(fourth.id) is fourth
    for gone in (first, third):
        with pytest.raises(regard.RegardError):
            sessions.find(gone.id)


def test_nbytes_is_the_memory_of_a_trace():
    session = TraceSessions(ModelRegistry()).run("toy-gpt", "One day the cat")
    assert session.trace.nbytes >= sum(
        session.trace[name].nbytes for name in ("logits", "embed.out", "decoder.0.attention.weights")
    )
    assert session.trace.nbytes < 20e6
    assert total_bytes([session]) == session.trace.nbytes


def test_memory_limits_apply_as_traces_grow(page):
    """Twelve runs that fit when they are made, and do not when all of their blocks have been computed."""
    text = "The old king and the old woman went to the village because a little girl had lost a red ring. " * 2
    app = make_app(ModelRegistry(), page=page)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        sessions = app.state.sessions
        runs = [client.post("/api/trace", json={"model": "toy-gpt", "text": f"{i} {text}"}).json() for i in range(12)]
        sessions.max_bytes = 2 * sessions.nbytes
        asked = [node["name"] for node in runs[0]["nodes"] if node["name"].endswith("attention.scores")]
        assert asked
        for run in runs:
            for node in asked:
                client.get(f"/api/trace/{run['trace']}/slice", params={"node": node, "at": "0,0"})
                assert sessions.nbytes <= sessions.max_bytes
        kept = [client.get(f"/api/trace/{run['trace']}/slice?node=logits&at=0,0").status_code == 200 for run in runs]
        assert 0 < sum(kept) < len(runs)


def test_the_capacity_for_traces_follows_from_the_servers_memory(monkeypatch):
    monkeypatch.setattr("regard.page.trace_sessions.available_memory", lambda: 100 << 30)
    registry = ModelRegistry(max_bytes=2 << 30)
    sessions = TraceSessions(registry)
    assert sessions.capacity() == 2 << 30
    session = sessions.run("toy-gpt", "One day the cat")
    assert sessions.capacity() == (2 << 30) - registry.nbytes
    assert session.trace.memory_limit <= 1 << 30
    registry.max_bytes = 4 * 1000
    assert sessions.capacity() == 1000
    assert sessions.trace_capacity() == 500
    registry.max_bytes = 100 << 30
    assert sessions.capacity() == 3 << 30
    monkeypatch.setattr("regard.page.trace_sessions.available_memory", lambda: 1000)
    assert sessions.capacity() == sessions.nbytes + 500


def test_edited_traces_share_the_trace_they_were_made_from():
    sessions = TraceSessions(ModelRegistry())
    session = sessions.run("toy-gpt", "One day the cat")
    edited = [sessions.fork(session, {f"decoder.{i}.attention.scaling": "off"}) for i in range(3)]
    assert sessions.nbytes == session.trace.nbytes + sum(each.trace.nbytes for each in edited)


def test_lessons_are_listed_and_worked(client):
    names = [each["name"] for each in client.get("/api/lessons").json()]
    assert "three-inputs" in names
    told = client.get("/api/lesson", params={"name": "three-inputs"}).json()
    assert told["steps"][1]["value"] == [[1.0, 0.0, 2.0], [2.0, 2.0, 2.0], [2.0, 1.0, 3.0]]
    assert client.get("/api/lesson", params={"name": "nothing"}).status_code == 404


def test_two_requests_at_once_see_their_own_numbers(client, look, numbers):
    from concurrent.futures import ThreadPoolExecutor

    texts = [f"One day the cat {word}" for word in ("sat", "ran", "saw", "had", "was", "went")]
    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda t: client.post("/api/trace", json={"model": "toy-gpt", "text": t}).json(), texts))
    model = regard.load("toy-gpt")
    for text, each in zip(texts, told, strict=True):
        own = model(model.tokenizer.encode(text))[0]
        np.testing.assert_allclose(numbers(each["trace"], "logits"), own, rtol=1e-4, atol=1e-4)


def test_a_worksheet_of_the_run(client, look):
    wish = {"trace": look("toy-gpt", RUNS["toy-gpt"])["trace"], "seed": 3, "level": "weights"}
    sheet = client.post("/api/worksheet", json=wish).json()["html"]
    assert sheet.startswith("<!doctype html>")
    assert client.post("/api/worksheet", json=wish).json()["html"] == sheet
    assert client.post("/api/worksheet", json=wish | {"seed": 4}).json()["html"] != sheet
    assert client.post("/api/worksheet", json=wish | {"level": "nothing"}).status_code == 400


@pytest.mark.parametrize(
    ("format", "key", "begins"),
    [("check", "html", "<!doctype"), ("moodle", "xml", "<?xml"), ("gift", "gift", "$CATEGORY")],
)
def test_a_worksheet_in_another_format(client, look, format, key, begins):
    wish = {"trace": look("toy-gpt", RUNS["toy-gpt"])["trace"], "format": format, "students": 2}
    answer = client.post("/api/worksheet", json=wish)
    assert list(answer.json()) == [key]
    assert answer.json()[key].startswith(begins)
    assert "toy" in answer.json()[key]
    refused = client.post("/api/worksheet", json=wish | {"part": "key"})
    assert refused.status_code == 400
    assert "only the format html has parts" in refused.text


def test_a_trace_can_be_downloaded_as_a_file(client, look):
    answer = client.get(f"/api/trace/{look('toy-gpt', RUNS['toy-gpt'])['trace']}/export")
    assert answer.status_code == 200, answer.text[:300]
    assert answer.headers["content-disposition"] == 'attachment; filename="regard.html"'
    assert "Content-Security-Policy" in answer.text
    assert "regard-data" in answer.text
