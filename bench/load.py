"""`python -m bench.load`: many streams of mixed lengths at once, a fifth of them cut off, each compared with itself alone.

A server runs in a process of its own; every answer's tokens, text and log-probabilities must be those that the same request
gives when it is the only one. Printed: wrong answers, slots and places that are still taken at the end, the server's memory
on the way, and how long the first token took. Then twice as many as fit: the rest must be refused, the others not slowed.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import torch

import regard
from regard.api import Model
from regard.engine.schedule import Scheduler

TEXTS = (
    "The old king and the old woman",
    "Sara",
    "Three children want to build a little boat. They ran to the hills and the sky was dark and the birds sang.",
    "Three children want to build a little boat. Then they swam in the river",
    "The old king and the old woman went to the village because a little girl had lost a red ring near the tall tree",
)
LENGTHS = (1, 3, 8, 20, 45)


@dataclass
class Expected:
    """A request and what it gives alone."""

    wish: dict[str, Any]
    text: str
    tokens: list[str]
    logprobs: list[float]


def wishes(count: int) -> list[dict[str, Any]]:
    """Requests of all lengths, greedy and sampled."""
    found = []
    for i in range(count):
        wish: dict[str, Any] = {"prompt": TEXTS[i % len(TEXTS)], "max_tokens": LENGTHS[(i * 3 + i // 5) % len(LENGTHS)]}
        sampled = {"temperature": 0.9, "seed": i, "top_p": 0.95, "repetition_penalty": 1.1}
        found.append(wish | ({"temperature": 0} if i % 3 == 0 else sampled))
    return found


def serial_reference(model: Model, distinct: int = 24) -> list[Expected]:
    """Each request served with nobody else there, now or before."""
    found = []
    for wish in wishes(distinct):
        scheduler = Scheduler(model.lanes(1, model.spec.context), model.tokenizer)
        given = {key: value for key, value in wish.items() if key not in ("prompt", "max_tokens")}
        rows = model.rows(model.tokenizer.encode(wish["prompt"]), max_new_tokens=wish["max_tokens"], **given)
        (answer,) = scheduler.answers(rows)
        scheduler.close()
        found.append(Expected(wish, answer.text, model.tokenizer.pieces(answer.ids), answer.logprobs))
    return found


@dataclass
class Load:
    """`streams` clients that ask one request after the other; `cancelled` is the share that leaves before the end."""

    address: str
    model: str
    expected: list[Expected]
    streams: int
    cancelled: float
    finished: int = 0
    left: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)  # seconds to the first token
    whole: list[float] = field(default_factory=list)  # seconds to the last, of those that stayed
    asked: int = 0

    async def run(self, *, seconds: float | None = None, requests: int | None = None) -> None:
        end = time.monotonic() + (seconds or 1e9)
        limits = httpx.Limits(max_connections=self.streams, max_keepalive_connections=self.streams)
        async with httpx.AsyncClient(base_url=self.address, timeout=600, limits=limits) as client:

            async def worker() -> None:
                while time.monotonic() < end and (requests is None or self.asked < requests):
                    number, self.asked = self.asked, self.asked + 1
                    await self._one(client, number)

            await asyncio.gather(*(worker() for _ in range(self.streams)))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        case = self.expected[number * 7 % len(self.expected)]
        leaves = (number * 2654435761 >> 7) % 1000 < 1000 * self.cancelled
        wish = case.wish | {"model": self.model, "stream": True, "logprobs": 0}
        text, tokens, logprobs, begin = "", list[str](), list[float](), time.perf_counter()
        async with client.stream("POST", "/v1/completions", json=wish) as answer:
            if answer.status_code == 429:
                self.refused += 1
                await asyncio.sleep(int(answer.headers["Retry-After"]))
                return
            if answer.status_code != 200:
                self.wrong.append(f"{case.wish} was answered with {answer.status_code}")
                return
            self.first.append(time.perf_counter() - begin)
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                text += choice["text"]
                if choice["logprobs"]:
                    tokens += choice["logprobs"]["tokens"]
                    logprobs += choice["logprobs"]["token_logprobs"]
                if leaves and len(tokens) >= 1 + number % 5 and len(tokens) < len(case.tokens):
                    self.left += 1
                    self._compare(case, text, tokens, logprobs, partial=True)
                    return
        self.finished += 1
        self.whole.append(time.perf_counter() - begin)
        self._compare(case, text, tokens, logprobs, partial=False)

    def _compare(self, case: Expected, text: str, tokens: list[str], logprobs: list[float], partial: bool) -> None:
        n = len(tokens) if partial else len(case.tokens)
        same = tokens == case.tokens[:n] and logprobs == case.logprobs[:n]
        if not same or not (case.text.startswith(text) if partial else text == case.text):
            self.wrong.append(f"{case.wish}: {text!r} instead of {case.text!r}")


def share(times: list[float], part: float) -> float:
    return sorted(times)[min(int(part * len(times)), len(times) - 1)] if times else float("nan")


def resident(pid: int) -> float:
    """Megabytes."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024  # type: ignore[index]


def numbers(address: str) -> dict[str, float]:
    lines = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
    return {n: float(v) for n, _, v in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def start(model: str, slots: int, queue: int, threads: int | None) -> tuple[subprocess.Popen[str], str]:
    code = "from regard.cli.main import run; run()"
    flags = ["serve", model, "--port", "0", "--slots", str(slots), "--queue", str(queue)]
    flags += ["--threads", str(threads)] if threads else []
    server = subprocess.Popen(
        [sys.executable, "-c", code, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    found = re.search(r"http://\S+", server.stdout.readline())
    assert found is not None, "the server did not start"
    return server, found[0].removesuffix("/v1")


async def watched(load: Load, pid: int, seconds: float) -> list[float]:
    """Run the load; the server's memory, four times on the way."""
    sizes: list[float] = []

    async def look() -> None:
        for _ in range(4):
            await asyncio.sleep(seconds / 4)
            sizes.append(resident(pid))

    await asyncio.gather(load.run(seconds=seconds), look())
    return sizes


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="toy-gpt")
    options.add_argument("--streams", type=int, default=64)
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--slots", type=int, default=16)
    options.add_argument("--threads", type=int)
    options.add_argument("--cancelled", type=float, default=0.2)
    given = options.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    expected = serial_reference(regard.load(given.model))
    server, address = start(given.model, given.slots, given.streams, given.threads)
    try:
        load = Load(address, given.model, expected, given.streams, given.cancelled)
        sizes = asyncio.run(watched(load, server.pid, given.seconds))
        after = numbers(address)
        taken = sum(value for name, value in after.items() if name.startswith(("regard_slots_busy", "regard_waiting")))
        print(
            f"{given.streams} streams, {given.slots} slots, {given.seconds:g} s, load before {os.getloadavg()[0]:.1f}"
        )
        print(f"answers: {load.finished} whole, {load.left} cut off by the client, {load.refused} refused")
        print(f"wrong: {len(load.wrong)}; slots and places still taken: {taken:g}")
        print(f"time to first token: p50 {share(load.first, 0.5):.3f} s, p99 {share(load.first, 0.99):.3f} s")
        print(f"resident memory of the server on the way: {', '.join(f'{size:.0f}' for size in sizes)} MB")
        for line in load.wrong[:5]:
            print(line)
        overload(given.model, expected, given.slots, given.threads)
    finally:
        server.terminate()
        server.wait(60)
    sys.exit(bool(load.wrong or taken))


def overload(model: str, expected: list[Expected], slots: int, threads: int | None) -> None:
    """As many streams as fit, then twice as many: how long accepted ones take, and that the others are refused."""
    server, address = start(model, slots, 0, threads)
    longest = [max(expected, key=lambda case: len(case.tokens))]  # all alike, so that times can be compared
    try:
        asyncio.run(Load(address, model, longest, 1, 0.0).run(requests=3))  # the model is loaded now
        full, double = (Load(address, model, longest, n, 0.0) for n in (slots, 2 * slots))
        asyncio.run(full.run(requests=4 * slots))
        asyncio.run(double.run(requests=8 * slots))
        ratio = share(double.whole, 0.5) / share(full.whole, 0.5)
        print(f"twice capacity: {double.finished} accepted, {double.refused} refused (429), {len(double.wrong)} wrong;")
        print(f"accepted ones take {ratio:.2f} times what they take at capacity")
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
