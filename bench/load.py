"""`python -m bench.load [--model smollm2]`: load test of the server, with every answer compared to the one without load.

Many streams: a server runs in its own process, and a fifth of the clients disconnect early. Prompts and answers have all
lengths; some prompts have a common prefix, some are prefilled in several pieces. **Every answer's tokens, text and
log-probabilities must be, to the bit, those that the same request gives when it is the only one.** Printed: wrong answers,
slots and queue entries still in use at the end, the server's memory over time, time to first token and between tokens.

Overload: a server without a queue gets requests first from as many clients as it has slots (it is *at capacity*: every slot
busy, none refused), then from twice as many, which retry sooner than Retry-After. The rest must get a 429, and an accepted
request must take less than three times what it took at capacity.

Bad neighbours, in their own process: a thousand idle connections, opened again when they are closed, and eight clients that
send prompts as long as a body may be: of words, which are tokenised in pieces; then of Chinese without spaces to split it
at, to a server with all of the model's context. Meanwhile no accepted stream may stall for longer than half a second,
/health must respond within 0.2 s on new connections, and every answer must be right. Times in which this process itself
was stalled are not the server's and are subtracted.

The exit code is 1 if anything fails.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import torch

import regard
from bench.memory import resident
from regard.api import Model
from regard.engine.scheduler import Scheduler
from regard.serve.openai import MAX_BODY

STORY = (
    "The old king and the old woman went to the village because a little girl had lost a red ring near the tall tree. "
    "Three children want to build a little boat. They ran to the hills and the sky was dark and the birds sang. "
)
CHINESE = "很久以前有一位老国王和一位老妇人因为一个小女孩在大树旁边丢了一枚红色的戒指所以他们一起走到村子里去找它"
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.45)  # lengths of prompts, as shares of the context
LENGTHS = (1, 3, 8, 20, 45)  # tokens of an answer
DISTINCT = 30  # requests, sent again and again
SLOWEST = 3.0  # times what an answer takes at capacity
RETRY_DELAY = 0.25  # seconds after which a refused client retries, though Retry-After is one at least
SAMPLES = 8  # of the server's memory
TICK = 0.1  # seconds
SILENT, LONG = 1000, 8  # idle connections, and clients with long prompts
MAX_GAP, MAX_HEALTH = 0.5, 0.2  # seconds


@dataclass
class Expected:
    """A request and its answer without load."""

    request: dict[str, Any]
    text: str
    tokens: list[str]
    logprobs: list[float]


def sample_requests(model: Model, context: int, count: int) -> list[dict[str, Any]]:
    """Requests of all lengths, greedy and sampled; every other prompt has a prefix in common with another one."""
    story = model.tokenizer.encode(STORY * (1 + context // 20))
    found = []
    for i in range(count):
        length = max(1, int(SHARES[i % len(SHARES)] * context))
        ids = story[:length] if i % 2 else story[i : i + length]
        request: dict[str, Any] = {"prompt": ids, "max_tokens": LENGTHS[(i * 3 + i // 5) % len(LENGTHS)]}
        sampled = {"temperature": 0.9, "seed": i, "top_p": 0.95, "repetition_penalty": 1.1}
        found.append(request | ({"temperature": 0} if i % 3 == 0 else sampled))
    return found


def serial_reference(model: Model, context: int, distinct: int = DISTINCT) -> list[Expected]:
    """Each request's answer from a scheduler of its own, without any other request."""
    found = []
    for request in sample_requests(model, context, distinct):
        scheduler = Scheduler(model.slots(1, context), model.tokenizer)
        given = {key: value for key, value in request.items() if key not in ("prompt", "max_tokens")}
        rows = model.rows(request["prompt"], context=context, max_new_tokens=request["max_tokens"], **given)
        (answer,) = scheduler.answers(rows)
        scheduler.close()
        found.append(Expected(request, answer.text, model.tokenizer.pieces(answer.ids), answer.logprobs))
    return found


@dataclass
class Load:
    """`streams` clients that send one request after the other; `cancelled` is the share that disconnects early."""

    address: str
    model: str
    expected: list[Expected]
    streams: int
    cancelled: float
    patient: bool = True  # wait as long as Retry-After says
    finished: int = 0
    disconnected: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)  # seconds to the first token
    next: list[float] = field(default_factory=list)  # seconds from one token to the next
    whole: list[float] = field(default_factory=list)  # seconds to the last token, of those that did not disconnect
    asked: int = 0
    longest_stall: float = 0.0  # the longest stall of this process itself, in seconds

    async def run(self, *, seconds: float | None = None, requests: int | None = None) -> None:
        end = time.monotonic() + (seconds or 1e9)
        limits = httpx.Limits(max_connections=self.streams, max_keepalive_connections=self.streams)
        async with httpx.AsyncClient(base_url=self.address, timeout=600, limits=limits) as client:

            async def worker() -> None:
                while time.monotonic() < end and (requests is None or self.asked < requests):
                    number, self.asked = self.asked, self.asked + 1
                    await self._one(client, number)

            clock = asyncio.create_task(self._measure_stalls())
            await asyncio.gather(*(worker() for _ in range(self.streams)))
            clock.cancel()

    async def _measure_stalls(self) -> None:
        """Measure how long this process is stalled, since that time is not the server's."""
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(TICK)
            self.longest_stall = max(self.longest_stall, time.perf_counter() - begin - TICK)

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        case = self.expected[number * 7 % len(self.expected)]
        disconnects = (number * 2654435761 >> 7) % 1000 < 1000 * self.cancelled
        request = case.request | {"model": self.model, "stream": True, "logprobs": 0}
        text, tokens, logprobs, begin = "", list[str](), list[float](), time.perf_counter()
        async with client.stream("POST", "/v1/completions", json=request) as answer:
            if answer.status_code == 429:
                self.refused += 1
                seconds = int(answer.headers["Retry-After"])
                await asyncio.sleep(seconds if self.patient else RETRY_DELAY)
                return
            if answer.status_code != 200:
                self.wrong.append(f"{case.request} was answered with {answer.status_code}")
                return
            last = time.perf_counter()  # the response begins with its first token
            self.first.append(last - begin)
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                text += choice["text"]
                if choice["logprobs"]:
                    now = time.perf_counter()
                    if tokens:
                        self.next.append(now - last)
                    last = now
                    tokens += choice["logprobs"]["tokens"]
                    logprobs += choice["logprobs"]["token_logprobs"]
                if disconnects and len(tokens) >= 1 + number % 5 and len(tokens) < len(case.tokens):
                    self.disconnected += 1
                    self._compare(case, text, tokens, logprobs, partial=True)
                    return
        self.finished += 1
        self.whole.append(time.perf_counter() - begin)
        self._compare(case, text, tokens, logprobs, partial=False)

    def _compare(self, case: Expected, text: str, tokens: list[str], logprobs: list[float], partial: bool) -> None:
        n = len(tokens) if partial else len(case.tokens)
        same = tokens == case.tokens[:n] and logprobs == case.logprobs[:n]
        if not same or not (case.text.startswith(text) if partial else text == case.text):
            self.wrong.append(f"{case.request}: {text!r} instead of {case.text!r}")


def share(times: list[float], part: float) -> float:
    return sorted(times)[min(int(part * len(times)), len(times) - 1)] if times else float("nan")


def numbers(address: str) -> dict[str, float]:
    lines = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
    return {n: float(v) for n, _, v in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@contextmanager
def served(model: str, slots: int, queue: int, context: int, threads: int | None) -> Iterator[tuple[int, str]]:
    """A server's process id and address."""
    code = "from regard.cli.main import run; run()"
    flags = ["--port", "0", "--slots", str(slots), "--queue", str(queue), "--context", str(context)]
    flags += ["--threads", str(threads)] if threads else []
    command = [sys.executable, "-c", code, "serve", model, *flags]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None, "the server did not start"
        yield server.pid, found[0].removesuffix("/v1")
    finally:
        server.terminate()
        server.wait(60)


async def watched(load: Load, pid: int, seconds: float) -> list[float]:
    """Run the load; samples of the server's memory."""
    sizes: list[float] = []

    async def look() -> None:
        for _ in range(SAMPLES):
            await asyncio.sleep(seconds / SAMPLES)
            sizes.append(resident(pid))

    await asyncio.gather(load.run(seconds=seconds), look())
    return sizes


def spread(times: list[float]) -> str:
    return f"p50 {share(times, 0.5):.3f} s, p99 {share(times, 0.99):.3f} s"


def many(given: argparse.Namespace, expected: list[Expected]) -> bool:
    """More streams than slots, none refused, some disconnected early; whether all answers were right."""
    with served(given.model, given.slots, given.streams, given.context, given.threads) as (pid, address):
        asyncio.run(Load(address, given.model, expected, 1, 0.0).run(requests=1))  # the model is loaded now
        load = Load(address, given.model, expected, given.streams, given.cancelled)
        sizes = asyncio.run(watched(load, pid, given.seconds))
        after = numbers(address)
    taken = sum(value for name, value in after.items() if name.startswith(("regard_slots_busy", "regard_waiting")))
    print(f"{given.streams} streams, {given.slots} slots of {given.context} tokens, {given.seconds:g} s")
    print(f"  answers: {load.finished} whole, {load.disconnected} cut off by the client, {load.refused} refused")
    print(f"  wrong: {len(load.wrong)}; slots and queue entries still in use: {taken:g}")
    print(f"  time to first token: {spread(load.first)}; between tokens: {spread(load.next)}")
    print(f"  longest that the client itself stood still: {load.longest_stall:.2f} s")
    print(f"  resident memory of the server over time: {', '.join(f'{size:.0f}' for size in sizes)} MB")
    for line in load.wrong[:5]:
        print(f"  {line}")
    return not load.wrong and not taken and not load.refused and load.finished > 0


def too_many(given: argparse.Namespace, expected: list[Expected]) -> bool:
    """As many streams as slots, then twice as many; whether the rest were refused and the accepted ones not slowed."""
    longest = [max(expected, key=lambda case: len(case.tokens))]  # all the same, so that times can be compared
    seconds = min(max(given.seconds / 5, 5.0), 30.0)
    with served(given.model, given.slots, 0, given.context, given.threads) as (_, address):
        asyncio.run(Load(address, given.model, longest, 1, 0.0).run(requests=1))
        full, double = (Load(address, given.model, longest, n * given.slots, 0.0, patient=False) for n in (1, 2))
        asyncio.run(full.run(seconds=seconds))
        asyncio.run(double.run(seconds=seconds))
    slower = [share(double.whole, part) / share(full.whole, part) for part in (0.5, 0.99)]
    print(f"at capacity, {given.slots} streams for {seconds:g} s: {full.finished} answers, {spread(full.whole)} each")
    print(f"twice as many: {double.finished} accepted, {double.refused} refused (429), {spread(double.whole)} each")
    print(f"  an accepted answer takes {slower[0]:.2f} times as long (p50), {slower[1]:.2f} times (p99)")
    held = max(full.longest_stall, double.longest_stall)
    print(f"  wrong: {len(full.wrong) + len(double.wrong)}; longest that the client itself stood still: {held:.2f} s")
    return max(slower) < SLOWEST and double.refused > 0 and not full.wrong and not double.wrong


def neighbours(address: str, model: str, seconds: float, text: str) -> None:
    """Runs in its own process: idle connections, and prompts as long as a body may be."""
    raise_limit()
    host, _, port = address.removeprefix("http://").partition(":")
    end = time.monotonic() + seconds

    async def silent() -> None:
        while time.monotonic() < end:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port))
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), end - time.monotonic())  # until it is closed
                writer.close()
            await asyncio.sleep(1)

    async def long() -> None:
        request = {"model": model, "prompt": "", "max_tokens": 1}
        request["prompt"] = text * ((MAX_BODY - len(json.dumps(request))) // len(json.dumps(text)))
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json"}
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            while time.monotonic() < end:
                with suppress(httpx.HTTPError):
                    await client.post("/v1/completions", content=body, headers=headers)

    async def both() -> None:
        await asyncio.gather(*(silent() for _ in range(SILENT)), *(long() for _ in range(LONG)))

    asyncio.run(both())


def raise_limit() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclass
class Health:
    """Requests /health again and again, on a new connection each time."""

    address: str
    times: list[float] = field(default_factory=list)
    failed: int = 0

    async def run(self, seconds: float) -> None:
        host, _, port = self.address.removeprefix("http://").partition(":")
        request = f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(request)
                answer = await reader.read()
                writer.close()
                self.failed += not answer.startswith(b"HTTP/1.1 200 ")
            except OSError:
                self.failed += 1
            self.times.append(time.perf_counter() - begin)
            await asyncio.sleep(0.05)


def bad_neighbours(
    given: argparse.Namespace, expected: list[Expected], text: str = STORY, context: int | None = None
) -> bool:
    """Streams and /health next to idle connections and the longest prompts; whether none had to wait for those."""
    seconds = min(max(given.seconds / 5, 5.0), 60.0)
    with served(given.model, given.slots, given.streams, context or given.context, given.threads) as (pid, address):
        asyncio.run(Load(address, given.model, expected, 1, 0.0).run(requests=1))
        load, health = Load(address, given.model, expected, given.streams, given.cancelled), Health(address)

        async def all_together() -> None:
            await asyncio.gather(load.run(seconds=seconds), health.run(seconds))

        start = multiprocessing.get_context("spawn").Process(
            target=neighbours, args=(address, given.model, seconds + 4, text)
        )
        start.start()
        time.sleep(2)  # until they are connected
        asyncio.run(all_together())
        start.join()
        size = resident(pid)
    gap, slowest = max(load.next, default=0.0) - load.longest_stall, max(health.times, default=0.0) - load.longest_stall
    print(f"next to {SILENT} idle connections and {LONG} clients with prompts of {MAX_BODY / 1e6:.1f} MB ", end="")
    print(f"({text[:12]}…), {seconds:g} s")
    print(f"  answers: {load.finished} whole, {load.disconnected} cut off by the client, {load.refused} refused")
    print(f"  wrong: {len(load.wrong)}; resident memory of the server: {size:.0f} MB")
    print(f"  between tokens: {spread(load.next)}, most {max(load.next, default=0.0):.3f} s (aim: {MAX_GAP} s)")
    print(
        f"  /health, new connections: {spread(health.times)}, most {max(health.times, default=0.0):.3f} s (aim: ",
        end="",
    )
    print(f"{MAX_HEALTH} s), failed {health.failed} of {len(health.times)}")
    print(f"  longest that the client itself stood still: {load.longest_stall:.2f} s")
    for line in load.wrong[:5]:
        print(f"  {line}")
    right = not load.wrong and not health.failed and load.finished > 0
    return right and gap <= MAX_GAP and slowest <= MAX_HEALTH


def chinese_neighbours(given: argparse.Namespace, expected: list[Expected]) -> bool:
    """The same with prompts without spaces, with the model's whole context."""
    return bad_neighbours(given, expected, CHINESE, given.positions)


PARTS = {"many": many, "too-many": too_many, "neighbours": bad_neighbours, "chinese": chinese_neighbours}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="toy-gpt")
    options.add_argument("--streams", type=int, default=64)
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--slots", type=int, default=16)
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--threads", type=int)
    options.add_argument("--cancelled", type=float, default=0.2)
    options.add_argument("--only", choices=PARTS, help="one part instead of all")
    given = options.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    model = regard.load(given.model)
    given.positions = model.spec.context
    given.context = min(given.context, given.positions)
    print(f"{given.model}; load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
    expected = serial_reference(model, given.context)
    raise_limit()
    right = [part(given, expected) for name, part in PARTS.items() if given.only in (None, name)]
    print("passed" if all(right) else "FAILED")
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
