"""Tracing: latencies of the page, and what a trace costs. SmolLM2, 64 tokens, float32.

The page's data comes over a real socket from a server in this process. The peer is `transformers` with
`output_attentions=True`. A trace has these too, and every other activation: on demand, or (`sites=["*"]`) cached at once.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import torch
import transformers

from bench.generation import SMOLLM2
from bench.versus import Comparison, Measured, Share, alternate, seconds
from regard.api import Model, load

N = 64
TEXT = (
    "A sentence goes through the house in one direction, and every room adds something to it: first the words become "
    "numbers, then every word looks at the others and takes from them what it needs, again and again, until the last room "
    "says which word comes next, and somebody at the window asks why it was this word and not another of all there are."
)


def comparisons() -> Iterator[Comparison | Measured | Share]:
    yield from costs(load("smollm2"))  # first: each of a server's threads starts PyTorch threads of its own, which stay
    with serving("smollm2") as (model, page):
        yield from waits(model, page)


@contextmanager
def serving(name: str) -> Iterator[tuple[Model, httpx.Client]]:
    """The loaded model, and a client of the server that serves it."""
    import uvicorn

    from regard.serve.app import make_app
    from regard.serve.model_registry import ModelRegistry

    registry = ModelRegistry()
    model = registry.model(name)
    server = uvicorn.Server(uvicorn.Config(make_app(registry), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield model, client
    server.should_exit = True
    thread.join()


def waits(model: Model, page: httpx.Client) -> Iterator[Measured]:
    texts = itertools.cycle(cut(model, f"{word} {TEXT}") for word in ("Once", "Twice", "Here", "There", "Now"))

    def run() -> dict[str, Any]:
        told: dict[str, Any] = get(page.post("/api/trace", json={"model": "smollm2", "text": next(texts)})).json()
        return told

    def first_picture() -> None:
        picture(run()["trace"], "decoder.0.attention.weights")

    def picture(id: str, node: str) -> None:
        get(page.get(f"/api/trace/{id}/slice", params={"node": node}))

    def ask(node: str, index: str) -> None:
        get(page.get(f"/api/trace/{told['trace']}/why", params={"node": node, "index": index}))

    yield Measured("the page, SmolLM2, 64 tokens: text to first picture", median(first_picture), 1.5)
    told = run()
    asked = [("logits", "63,400"), ("probabilities", "63,400")]
    for i in range(0, 30, 3):
        asked += [(f"decoder.{i}.attention.weights", f"{i % 9},63,{i}"), (f"decoder.{i}.mlp.out", f"63,{i}")]
    whys = [median(partial(ask, *each), 3) for each in asked]
    yield Measured(f"… why, the slowest of {len(asked)} numbers in all layers", max(whys), 0.1)
    layers = [seconds(partial(picture, told["trace"], f"decoder.{i}.attention.weights")) for i in range(30)]
    yield Measured("… another layer's attention, the slowest of 30", max(layers), 0.1)
    weights = [seconds(partial(picture, told["trace"], f"decoder.{i}.attention.W_q.weight")) for i in range(30)]
    yield Measured("… another layer's W_q, the slowest of 30", max(weights), 0.1)


def costs(model: Model) -> Iterator[Comparison | Share]:
    ids = model.tokenizer.encode(cut(model, TEXT))

    def run() -> None:
        model(ids)

    def weights() -> None:
        trace = model.trace(ids)
        assert len([trace[name] for name in trace.nodes() if name.endswith(".weights")]) == 30

    def everything() -> None:
        trace = model.trace(ids, sites=["*"])
        assert len([trace[name] for name in trace.nodes()]) > 700

    rate, whole = rates(weights, run), rates(everything, run)
    yield Share("SmolLM2, a traced run of 64 tokens, of an untraced one's time", rate.theirs / rate.ours, at_most=2.0)
    yield Share("… with every intermediate kept and taken", whole.theirs / whole.ours, at_most=2.0)
    theirs = transformers.LlamaForCausalLM._from_config(SMOLLM2, attn_implementation="eager").eval()
    batch = torch.tensor([ids])

    @torch.inference_mode()
    def attentions() -> None:
        assert len(theirs(batch, output_attentions=True, use_cache=False).attentions) == 30

    what = "SmolLM2-135M, float32, attention weights"
    yield rates(weights, attentions, f"{what}, the rest on demand (theirs: nothing else)")
    yield rates(everything, attentions, f"{what} and every other intermediate (theirs: nothing else)", 1.0)


def rates(ours: Callable[[], Any], theirs: Callable[[], Any], what: str = "", aim: float | None = None) -> Comparison:
    return alternate(what, "tok/s", lambda: N / seconds(ours), lambda: N / seconds(theirs), rounds=35, aim=aim)


def median(work: Callable[[], None], rounds: int = 5) -> float:
    work()
    return statistics.median(seconds(work) for _ in range(rounds))


def cut(model: Model, text: str) -> str:
    """The beginning of the text with the right number of tokens."""
    short = model.tokenizer.decode(model.tokenizer.encode(text)[:N])
    assert len(model.tokenizer.encode(short)) == N
    return short


def get(answer: httpx.Response) -> httpx.Response:
    answer.raise_for_status()
    return answer
