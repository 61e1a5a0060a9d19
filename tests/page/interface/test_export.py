"""A run handed on as a file: what the browser says offline is what torch computed, and nothing in it becomes markup."""

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, Page, expect

import regard
from browser import CHROMIUM, Screen, number
from regard.api.trace import Trace
from regard.errors import TaskError
from regard.page import export, export_contents, precomputed
from regard.page.lenses import LensRequest, apply_lens
from regard.page.output import SamplingChoice, output

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium on this machine: make browser installs it"
)

SOURCE, TARGET = [7, 9, 12, 9, 33, 8], [3, 22, 6, 19]
WORDS = {"-∞": -math.inf, "∞": math.inf}
FAMILIES = ["gpt2-untied", "bert-mlm", "bart", "llama-gqa-tied", "mistral", "vaswani-fairseq"]
GPT = "Once upon a time there was a little"


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def screen(context: BrowserContext) -> Iterator[Screen]:
    """A tab without a network in which nothing may go wrong."""
    screen = Screen(context.new_page(), "")
    yield screen
    screen.page.close()
    assert screen.wrong == []
    assert screen.hosts <= {""}, "a file asks nobody"


@pytest.fixture
def opened(screen: Screen, tmp_path: Path) -> Callable[[Trace], Page]:
    def opened(trace: Trace, **state: Any) -> Page:
        screen.address = export.write_html(trace, tmp_path / "run.html").as_uri()
        return screen.visit(**state)

    return opened


@pytest.fixture(scope="module")
def toy() -> Trace:
    return regard.load("toy-gpt").trace(GPT)


def run_of(path: Path) -> Trace:
    model = regard.load(path)
    return model.trace(SOURCE, TARGET if hasattr(model.net, "encode") else None)


ASK = """async ([method, ...questions]) => {
  const { offline } = await import("regard/offline.js");
  window.backend ??= offline(document.getElementById("regard-data"));
  const spelt = (key, x) => typeof x === "number" && !Number.isFinite(x) ? (x < 0 ? "-∞" : "∞") : x;
  const refused = (error) => ({ error: error.message });
  const answers = await Promise.all(questions.map((given) => window.backend[method](...given).catch(refused)));
  for (const one of answers) if (one.values) one.values = [...one.values];
  return JSON.stringify(answers, spelt);
}"""


def ask(page: Page, method: str, *questions: list[Any]) -> list[Any]:
    """What the file's own backend answers."""
    return json.loads(page.evaluate(ASK, [method, *questions]))


def numbers(page: Page, run: str, name: str) -> torch.Tensor:
    (found,) = ask(page, "slice", [run, name])
    assert "error" not in found, found
    return torch.tensor([WORDS.get(x, x) for x in found["values"]]).reshape(found["shape"])


def same(got: Any, want: Any, rel: float = 1e-5) -> None:
    """Equal, numbers nearly so."""
    if isinstance(want, dict):
        assert got.keys() >= want.keys()
        for key in want:
            same(got[key], want[key], rel)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, rel)
    elif isinstance(want, float) and not isinstance(got, str):
        assert got == pytest.approx(want, rel=rel, abs=1e-6)
    else:
        assert got == want


# ── the numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_has_the_same_reason_offline(
    saved: Any, context: BrowserContext, tmp_path: Path, family: str
) -> None:
    trace, dice = run_of(saved(family)), random.Random(0)
    page = context.new_page()
    page.goto(trace.html(tmp_path / "run.html").as_uri())
    asked: list[Any] = [
        ["plain", name, [dice.randrange(n) for n in trace.shape(name)]] for name in trace.nodes() for _ in "12"
    ]
    weights = [name for node in trace.graph for name in node.inputs if name not in trace]
    asked += [["plain", name, [dice.randrange(n) for n in trace.tensor(name).shape]] for name in weights]
    for (_, name, index), got in zip(asked, ask(page, "why", *asked), strict=True):
        want = trace.why(name, index).to_json()
        assert got["agrees"], got
        for key in ("difference", "tolerance"):
            del want[key]
        same(got, want)


@pytest.mark.parametrize(("keep", "close"), [("base", 1e-5), ("rounded", 0.03)])
@pytest.mark.parametrize("family", ["gpt2", "bart", "qwen2"])
def test_nodes_that_are_not_stored_are_computed(
    saved: Any, opened: Any, monkeypatch: Any, family: str, keep: str, close: float
) -> None:
    monkeypatch.setattr(export_contents, "MAX_EXACT", 0)
    if keep == "rounded":
        monkeypatch.setattr(export_contents, "BUDGET", 0)
    trace = run_of(saved(family))
    kept = export_contents.select(trace)
    assert not kept.all
    assert not any(name.endswith((".scores", ".weights", ".Z", ".H", ".normalised", ".act")) for name in kept.names)
    page = opened(trace)
    for name in trace.nodes():
        got, want = numbers(page, "plain", name), trace.tensor(name)
        hidden = want.isinf()
        assert torch.equal(got.isinf(), hidden)
        size = want[~hidden].norm()
        assert (got - want)[~hidden].norm() <= close * size + 1e-6, name
    (why,) = ask(page, "why", ["plain", "decoder.1.attention.weights", [0, 2, 1]])
    assert why["agrees"]
    assert ("significant bits" in why["note"]) == (keep == "rounded")


EDITS = {
    "decoder.1.attention.head.1": "zero",
    "decoder.0.attention.scaling": "off",
    "decoder.0.attention.mask": "off",
    "decoder.1.residual_1": "off",
    "decoder.0.residual_2": "off",
    "decoder.1.norm_2": "off",
    "decoder.0.mlp.neuron.5": "zero",
    "positions": "off",
    "decoder.0.attention.weights[0, 3, 1]": {"set": 0.7},
}


@pytest.mark.parametrize("family", ["gpt2", "llama-gqa-tied", "bart"])
def test_edits_in_a_file_do_what_they_do_in_torch(saved: Any, opened: Any, family: str) -> None:
    trace = run_of(saved(family))
    page = opened(trace)
    assert ask(page, "fork", ["plain", {"decoder.0.attention.scores": {"scale": 2}}])[0]["error"]
    crossed = {"decoder.1.cross.head.0": "zero", "encoder.0.attention.head.2": "zero"} if family == "bart" else {}
    for place, what in (EDITS | crossed).items():
        edits = {place: what}
        changed = trace.edit(edits)
        (told,) = ask(page, "fork", ["plain", edits])
        for name in ("decoder.1.attention.weights", "logits", "probabilities"):
            torch.testing.assert_close(
                numbers(page, told["trace"], name), changed.tensor(name).float(), rtol=1e-4, atol=1e-5
            )
    both = {"decoder.1.attention.head.1": "zero", "decoder.0.attention.head.0": "zero"}
    (told,) = ask(page, "fork", ["plain", both])
    got, want = numbers(page, told["trace"], "logits"), trace.edit(both).tensor("logits")
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    (why,) = ask(page, "why", [told["trace"], "decoder.1.attention.Z", [1, 2, 0]])
    assert why["edited"]
    assert "Edited here" in why["note"]
    before, after = ([told["trace"], f"decoder.{i}.attention.weights", [1, 2, 0]] for i in (0, 1))
    untouched, touched = ask(page, "why", before, after)
    assert "Computed in this file" not in untouched["note"]
    assert "Computed in this file" in touched["note"]


# ── answers and lenses ──────────────────────────────────────────────────────────────────────────────────────────────

CHOICES = [
    SamplingChoice(),
    SamplingChoice(0.8, 40, 1.0, 0.0, 7),
    SamplingChoice(1.3, 0, 0.9, 0.0, 3),
    SamplingChoice(0.7, 0, 1.0, 0.02, 11),
    SamplingChoice(0.0, 0, 1.0, 0.0, 1),
]


def test_a_language_model_answers_offline_as_the_server_does(opened: Any) -> None:
    model = regard.load("toy-gpt")
    trace = model.trace(GPT, max_new_tokens=3, temperature=0.9, seed=4)
    page = opened(trace)
    for choice in CHOICES:
        for position in (None, 4, len(trace.ids) - 2):
            given = {key: value for key, value in vars(choice).items() if value is not None}
            (got,) = ask(page, "output", ["plain", given | ({} if position is None else {"position": position})])
            same(got, output(model, trace, position, choice), 1e-6)


@pytest.mark.parametrize(
    ("name", "text"),
    [("toy-bert", "The movie was [MASK]."), ("toy-bert-sentiment", "boring"), ("toy-bert-tags", "The old man saw")],
)
def test_encoders_answer_offline_as_the_server_does(opened: Any, name: str, text: str) -> None:
    model = regard.load(name)
    trace = model.trace(model.tokenizer.encode(text, allow_control=True))
    page = opened(trace)
    (got,) = ask(page, "output", ["plain", {}])
    same(got, output(model, trace, None, SamplingChoice()), 1e-6)
    for lens in ("heads", "logit_lens", "ablation", "rollout"):
        (got,) = ask(page, "lens", ["plain", lens, {"token": 1}])
        same(got, apply_lens(trace, lens, LensRequest(token=1)), 1e-3)


def test_lenses_of_a_translator_are_the_servers(opened: Any) -> None:
    trace = regard.load("toy-translate").trace("the European Economic Area")
    page = opened(trace)
    last = len(trace.target_ids or []) - 1
    best = int(trace.tensor("logits")[last].argmax())
    site = {"site": "decoder.1.cross", "head": 2}
    asked: list[tuple[str, Any]] = [
        ("heads", {}),
        ("logit_lens", {"token": 2}),
        ("contribution", site),
        ("ablation", {"token": last}),
    ]
    asked += [("attribution", {"token": last, "id": best}), ("rollout", {"stack": "decoder"})]
    for name, given in asked:
        (got,) = ask(page, "lens", ["plain", name, given])
        same(got, json.loads(json.dumps(apply_lens(trace, name, LensRequest(**given)))), 1e-4)
    (told,) = ask(page, "fork", ["plain", {"decoder.1.cross.head.2": "zero"}])
    assert "choose A" in ask(page, "lens", [told["trace"], "logit_lens", {}])[0]["error"]


@pytest.fixture
def large(monkeypatch: Any) -> None:
    """Every model counts as one that is too large to take its weights and its vocabulary along."""
    for module, name, value in (
        (export_contents, "FEW_PARAMETERS", 0),
        (export_contents, "MAX_EXACT", 0),
        (export_contents, "BUDGET", 0),
        (precomputed, "SMALL_VOCABULARY", 10),
        (precomputed, "LIKELIEST", 50),
    ):
        monkeypatch.setattr(module, name, value)


def test_a_file_lists_what_can_be_switched_off(large: None, opened: Any, toy: Trace, monkeypatch: Any) -> None:
    assert "Heads can be switched off here" in opened(toy).inner_text(".timeline")
    monkeypatch.setattr(precomputed, "without_heads", lambda *given: None)  # as of a model without answers
    words = opened(toy).inner_text("#footer")
    assert "another text takes regard itself".capitalize() in words
    assert "switched off" not in words
    assert "Switch something off" not in words


def test_a_large_model_stores_its_predictions(large: None, opened: Any, toy: Trace) -> None:
    model = regard.load("toy-gpt")
    page = opened(toy)
    (got,) = ask(page, "output", ["plain", {"temperature": 0.7}])
    want = output(model, toy, None, SamplingChoice(temperature=0.7))
    same(got["rows"], want["rows"][:50], 1e-3)
    assert got["vocabulary"] == want["vocabulary"]
    assert got["kept"] == pytest.approx(want["kept"], rel=0.03)  # the others are counted in groups
    assert got["sum"] == pytest.approx(want["sum"], rel=1e-3)
    (cut,) = ask(page, "output", ["plain", {"top_k": 60}])
    assert cut["kept"] == 60
    edits = {"decoder.2.attention.head.1": "zero"}
    (told,) = ask(page, "fork", ["plain", edits])
    (got,) = ask(page, "output", [told["trace"], {}])
    want = output(model, toy.edit(edits), None, SamplingChoice())
    same(got["rows"], want["rows"][:50], 1e-4)
    id, last = want["rows"][0]["id"], len(toy.ids) - 1
    (why,) = ask(page, "why", ["plain", "probabilities", [last, id]])
    assert why["value"] == pytest.approx(float(toy["probabilities"][last, id]), rel=1e-5)
    assert sum(term["value"] for term in why["terms"]) + why["rest"]["sum"] == pytest.approx(1)
    (why,) = ask(page, "why", ["plain", "decoder.0.mlp.up", [2, 5]])
    assert "weights are not in this file" in why["note"]
    assert "6 significant bits" in why["note"]
    assert why["value"] == pytest.approx(float(toy["decoder.0.mlp.up"][2, 5]), rel=0.02)
    assert (
        "weights that are not in this file" in ask(page, "slice", [told["trace"], "decoder.3.attention.Q"])[0]["error"]
    )
    assert ask(page, "fork", ["plain", {"decoder.0.attention.scaling": "off"}])[0]["error"].startswith(
        "This file cannot"
    )


def test_large_files_open_at_every_stage(large: None, opened: Any, screen: Screen, toy: Trace) -> None:
    page = opened(toy)
    for stage in ("tokens", "attention", "heads", "mlp", "residual", "output"):
        page.locator(".tab", has_text=re.compile(stage, re.I)).click()
        screen.drawn(stage)
        assert screen.errors() == []
    said = page.inner_text("#footer")
    assert "without its model's weights, its numbers rounded to 8 significant bits" in said
    assert "the 50 likeliest of 800 tokens" in said


def test_an_edited_run_is_exported_with_its_edits(opened: Any, monkeypatch: Any, toy: Trace) -> None:
    monkeypatch.setattr(export_contents, "MAX_EXACT", 0)
    edited = toy.edit({"decoder.1.attention.head.2": "zero"})
    page = opened(edited)
    for name in ("decoder.1.attention.Z", "decoder.3.attention.weights", "logits"):
        torch.testing.assert_close(numbers(page, "plain", name), edited.tensor(name), rtol=1e-4, atol=1e-5)
    assert ask(page, "why", ["plain", "decoder.1.attention.Z", [2, 5, 0]])[0]["edited"]
    assert "decoder.1.attention.head.2" in page.inner_text("#footer")
    assert "cannot honour" in ask(page, "fork", ["plain", {"decoder.0.attention.head.0": "zero"}])[0]["error"]


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────────────

RUNS = {"toy-gpt": GPT, "toy-bert": "The movie was [MASK].", "toy-translate": "the European Economic Area"}


@pytest.mark.parametrize("name", RUNS)
def test_a_file_opens_from_disk_at_every_stage(opened: Any, screen: Screen, name: str) -> None:
    model = regard.load(name)
    trace = model.trace(model.tokenizer.encode(RUNS[name], allow_control=True))
    page = opened(trace)
    expect(page.locator("#text")).to_have_js_property("readOnly", True)
    assert "another text takes regard itself" in page.inner_text("#footer")
    tables = ["Tokens", "Attention", "Heads", "MLP", "Residual", "Output"]
    assert page.locator(".tab").all_inner_texts() == ["← Scene", *tables]
    for tab in tables:
        page.locator(".tab", has_text=tab).click()
        screen.drawn(tab.lower())
        assert screen.errors() == []


def test_down_to_a_weight_and_back(opened: Any, screen: Screen, toy: Trace) -> None:
    page = opened(toy, node="decoder.1.attention.weights", index=[2, 3, 1])
    way = ["masked", "scores", "dots", "Q", "W_q.weight"]
    for level, operand in enumerate(way):
        node, at = screen.explained()
        assert screen.captured() == pytest.approx(float(toy[node][at]), rel=1e-7, abs=1e-9)
        recomputed = number(page.inner_text(".check dd >> nth=1"))
        assert recomputed == pytest.approx(toy.why(node, at).recomputed, rel=1e-7, abs=1e-9)
        assert page.locator(".agrees").count() == 1
        expect(page.locator(".trail a")).to_have_count(level)
        page.locator(f'#drawer .term-factors a[title*="attention.{operand}["]').first.click()
        page.wait_for_function("n => new URLSearchParams(location.hash.slice(1)).get('node').endsWith(n)", arg=operand)
    node, at = screen.explained()
    assert screen.captured() == pytest.approx(float(toy[node][at]), rel=1e-7)
    screen.press(*["Backspace"] * len(way))
    expect(page.locator(".trail a")).to_have_count(0)


def test_a_head_is_switched_off_and_back_on(opened: Any, screen: Screen, toy: Trace) -> None:
    page = opened(toy, stage="output", site="decoder.0.attention", head=1)
    first = page.inner_text("#panel-output table tbody tr >> nth=0")
    page.get_by_role("button", name="Edit…").click()
    page.get_by_role("button", name="head 1 off").click()
    page.wait_for_function("t => document.querySelector('#panel-output table tbody tr')?.innerText !== t", arg=first)
    screen.drawn("output")
    want = toy.edit({"decoder.0.attention.head.1": "zero"})["logits"][-1].max()
    assert number(page.inner_text("#panel-output table tbody tr >> nth=0").split()[1]) == pytest.approx(
        float(want), abs=0.006
    )
    assert "head 1" in page.inner_text(".chip")
    page.locator(".chip button").click()
    page.wait_for_function("t => document.querySelector('#panel-output table tbody tr')?.innerText === t", arg=first)


HOSTILE = [
    "</script><script>hacked=1</script>",
    "<!--<script>",
    "<img src=x onerror=hacked=1>",
    "\u2028hacked=1//",
    "]]>&lt;b&gt;\x00",
    "\ud800",
    '"><iframe srcdoc=x>',
]


def test_tokens_and_names_are_only_ever_text(screen: Screen, tmp_path: Path, toy: Trace, monkeypatch: Any) -> None:
    monkeypatch.setattr(toy, "tokens", [HOSTILE[i % len(HOSTILE)] for i in range(len(toy.tokens))])
    file = export.write_html(toy, tmp_path / "x.html", name=HOSTILE[0], text=HOSTILE[2])
    screen.address = file.as_uri()
    page = screen.visit(stage="tokens", node="decoder.0.attention.Z", index=[0, 6, 1])
    assert screen.tokens()[0] == HOSTILE[0]
    assert page.input_value("#text") == HOSTILE[2]
    for stage in ("attention", "heads", "residual", "output"):
        page.locator(".tab", has_text=re.compile(stage, re.I)).click()
        screen.drawn(stage)
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img, iframe, body script").count() == 0
    assert file.read_text().count("<script") == 3


def test_the_policy_forbids_every_connection(opened: Any, screen: Screen, toy: Trace) -> None:
    page = opened(toy)
    refused = page.evaluate("fetch('https://example.org/').then(() => 'sent', (error) => error.name)")
    assert refused == "TypeError"
    assert screen.hosts == {""}
    assert any("connect-src 'none'" in said for said in screen.wrong)
    screen.wrong.clear()


def embedded(file: Path) -> dict[str, Any]:
    found = re.search(r'id="regard-data">(.*?)</script>', file.read_text(), re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_file_has_the_names_that_the_run_has(tmp_path: Path) -> None:
    plain = regard.load("toy-gpt").trace("Once  upon\na time")
    for trace in (plain, plain.edit({"token.1": "zero"})):
        data = embedded(trace.html(tmp_path / "x.html"))
        assert data["model"]["name"] == data["card"]["name"] == data["trace"]["model"] == "toy-gpt"
        assert data["trace"]["text"] == "Once  upon\na time"
    assert 'title="A run of toy-gpt on' in plain._repr_html_()
    ids = embedded(regard.load("toy-gpt").trace(plain.ids).html(tmp_path / "x.html"))
    assert ids["trace"]["text"] == regard.load("toy-gpt").tokenizer.decode(plain.ids).strip()


def test_progress_counts_heads(saved: Any, tmp_path: Path) -> None:
    trace, heard = regard.load(saved("bart")).trace(SOURCE, TARGET), []
    trace.html(tmp_path / "x.html", progress=lambda done, total: heard.append((done, total)))
    heads = [site.heads for site in trace.graph.sites]
    assert heard == [(sum(heads[: i + 1]), sum(heads)) for i in range(len(heads))]


# ── notebooks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_notebook_shows_a_sandboxed_frame(screen: Screen, tmp_path: Path, toy: Trace) -> None:
    shown = toy._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" ')
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8><p id=own>cell</p>{shown}", "utf-8")
    screen.page.goto((tmp_path / "notebook.html").as_uri())
    inside = screen.page.frame_locator("iframe")
    inside.locator(".scene[data-shown]:not([aria-busy])").wait_for()
    inside.locator(".thing.answer").first.click()
    inside.locator("#panel-output").wait_for()
    expect(inside.locator("#panel-output table tbody tr").first).to_contain_text("boy")
    assert screen.page.inner_text("#own") == "cell"


def test_a_run_that_is_too_large_is_refused(monkeypatch: Any, toy: Trace, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "MAX_FRAME", 1000)
    assert re.fullmatch(r"<p>This run takes \d+ MB, too much for a notebook; .* to a file\.</p>", toy._repr_html_())
    for name in ("MAX_EXACT", "BUDGET", "MAX_BYTES"):
        monkeypatch.setattr(export_contents, name, 0)
    assert "too much for one page" in toy._repr_html_()
    with pytest.raises(TaskError, match="give a shorter text"):
        toy.html(tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_toy_models_stay_small(toy: Trace, tmp_path: Path) -> None:
    assert toy.html(tmp_path / "x.html").stat().st_size < 4.5e6


def test_a_recurrent_network_is_exported_too(saved, tmp_path):
    trace = regard.load(saved("gru")).trace(SOURCE, TARGET)
    kept = export_contents.contents(trace, "gru", "text")
    assert kept["model"]["recurrent"]
    assert [stack["name"] for stack in kept["model"]["stacks"]] == ["encoder", "decoder"]
    assert {"encoder.reader.H", "decoder.states", "decoder.cross.scores", "logits"} <= kept["nodes"].keys()
    assert {"decoder.cell.weight_ih", "encoder.reader.gru.weight_hh_l0_reverse"} <= kept["weights"].keys()
    assert trace.html(tmp_path / "run.html").exists()
