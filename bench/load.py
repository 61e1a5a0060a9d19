"""`python -m bench.load [--model smollm2]`: many streams at once, a fifth of them cut off, each compared with itself alone.

A server runs in a process of its own. Prompts and answers have all lengths; some begin alike, some are read in several
pieces. **Every answer's tokens, text and log-probabilities must be, to the bit, those that the same request gives when it
is the only one.** Printed: wrong answers, slots and places that are still taken at the end, the server's memory on the
way, how long the first token took and the next ones.

Then too many: a server without a queue is asked first by as many clients as it has slots (it is *at capacity*: every slot
busy, nobody refused), then by twice as many, who come again sooner than they are told. The rest must get a 429, and an
accepted answer must take less than three times what it took at capacity.

Then bad neighbours, in a process of their own: a thousand connections that say nothing, opened again when they are closed,
and eight clients that send prompts as long as a body may be. Beside them no accepted stream may stand still for longer than
half a second, /health must be answered within 0.2 s on new connections, and every answer must be right. Times in which this
process itself stood still are not the server's and are taken off. The exit code is 1 if anything does not hold.
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
from regard.engine.schedule import Scheduler
from regard.serve.openai import MOST_BODY

STORY = (
    "The old king and the old woman went to the village because a little girl had lost a red ring near the tall tree. "
    "Three children want to build a little boat. They ran to the hills and the sky was dark and the birds sang. "
)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.45)  # of the room, that a prompt takes
LENGTHS = (1, 3, 8, 20, 45)  # tokens of an answer
DISTINCT = 30  # requests, asked again and again
SLOWEST = 3.0  # times what an answer takes at capacity
IMPATIENCE = 0.25  # seconds until who was refused comes again, though told to wait for one at least
SAMPLES = 8  # of the server's memory
TICK = 0.1  # seconds
SILENT, LONG = 1000, 8  # bad neighbours of both kinds
MOST_GAP, MOST_HEALTH = 0.5, 0.2  # seconds


@dataclass
class Expected:
    """A request and what it gives alone."""

    wish: dict[str, Any]
    text: str
    tokens: list[str]
    logprobs: list[float]


def wishes(model: Model, room: int, count: int) -> list[dict[str, Any]]:
    """Requests of all lengths, greedy and sampled; every other prompt begins as another one does."""
    story = model.tokenizer.encode(STORY * (1 + room // 20))
    found = []
    for i in range(count):
        length = max(1, int(SHARES[i % len(SHARES)] * room))
        ids = story[:length] if i % 2 else story[i : i + length]
        wish: dict[str, Any] = {"prompt": ids, "max_tokens": LENGTHS[(i * 3 + i // 5) % len(LENGTHS)]}
        sampled = {"temperature": 0.9, "seed": i, "top_p": 0.95, "repetition_penalty": 1.1}
        found.append(wish | ({"temperature": 0} if i % 3 == 0 else sampled))
    return found


def serial_reference(model: Model, room: int, distinct: int = DISTINCT) -> list[Expected]:
    """Each request served with nobody else there, now or before."""
    found = []
    for wish in wishes(model, room, distinct):
        scheduler = Scheduler(model.lanes(1, room), model.tokenizer)
        given = {key: value for key, value in wish.items() if key not in ("prompt", "max_tokens")}
        rows = model.rows(wish["prompt"], context=room, max_new_tokens=wish["max_tokens"], **given)
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
    patient: bool = True  # wait as long as a refusal says
    finished: int = 0
    left: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)  # seconds to the first token
    next: list[float] = field(default_factory=list)  # seconds from one token to the next
    whole: list[float] = field(default_factory=list)  # seconds to the last, of those that stayed
    asked: int = 0
    held_up: float = 0.0  # seconds that this process itself once stood still, whatever the server did

    async def run(self, *, seconds: float | None = None, requests: int | None = None) -> None:
        end = time.monotonic() + (seconds or 1e9)
        limits = httpx.Limits(max_connections=self.streams, max_keepalive_connections=self.streams)
        async with httpx.AsyncClient(base_url=self.address, timeout=600, limits=limits) as client:

            async def worker() -> None:
                while time.monotonic() < end and (requests is None or self.asked < requests):
                    number, self.asked = self.asked, self.asked + 1
                    await self._one(client, number)

            clock = asyncio.create_task(self._listen_to_the_clock())
            await asyncio.gather(*(worker() for _ in range(self.streams)))
            clock.cancel()

    async def _listen_to_the_clock(self) -> None:
        """Times are the server's only as long as the machine lets both of us run."""
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(TICK)
            self.held_up = max(self.held_up, time.perf_counter() - begin - TICK)

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        case = self.expected[number * 7 % len(self.expected)]
        leaves = (number * 2654435761 >> 7) % 1000 < 1000 * self.cancelled
        wish = case.wish | {"model": self.model, "stream": True, "logprobs": 0}
        text, tokens, logprobs, begin = "", list[str](), list[float](), time.perf_counter()
        async with client.stream("POST", "/v1/completions", json=wish) as answer:
            if answer.status_code == 429:
                self.refused += 1
                seconds = int(answer.headers["Retry-After"])
                await asyncio.sleep(seconds if self.patient else IMPATIENCE)
                return
            if answer.status_code != 200:
                self.wrong.append(f"{case.wish} was answered with {answer.status_code}")
                return
            last = time.perf_counter()  # the answer begins when its first token is there
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


def numbers(address: str) -> dict[str, float]:
    lines = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
    return {n: float(v) for n, _, v in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@contextmanager
def served(model: str, slots: int, queue: int, room: int, threads: int | None) -> Iterator[tuple[int, str]]:
    """A server's process and address."""
    code = "from regard.cli.main import run; run()"
    flags = ["--port", "0", "--slots", str(slots), "--queue", str(queue), "--context", str(room)]
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
    """Run the load; the server's memory on the way."""
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
    """More streams than slots, none refused, some cut off; whether all was right."""
    with served(given.model, given.slots, given.streams, given.context, given.threads) as (pid, address):
        asyncio.run(Load(address, given.model, expected, 1, 0.0).run(requests=1))  # the model is loaded now
        load = Load(address, given.model, expected, given.streams, given.cancelled)
        sizes = asyncio.run(watched(load, pid, given.seconds))
        after = numbers(address)
    taken = sum(value for name, value in after.items() if name.startswith(("regard_slots_busy", "regard_waiting")))
    print(f"{given.streams} streams, {given.slots} slots of {given.context} tokens, {given.seconds:g} s")
    print(f"  answers: {load.finished} whole, {load.left} cut off by the client, {load.refused} refused")
    print(f"  wrong: {len(load.wrong)}; slots and places still taken: {taken:g}")
    print(f"  time to first token: {spread(load.first)}; between tokens: {spread(load.next)}")
    print(f"  longest that the client itself stood still: {load.held_up:.2f} s")
    print(f"  resident memory of the server on the way: {', '.join(f'{size:.0f}' for size in sizes)} MB")
    for line in load.wrong[:5]:
        print(f"  {line}")
    return not load.wrong and not taken and not load.refused and load.finished > 0


def too_many(given: argparse.Namespace, expected: list[Expected]) -> bool:
    """As many streams as slots, then twice as many; whether the rest were refused and the accepted ones not slowed."""
    longest = [max(expected, key=lambda case: len(case.tokens))]  # all alike, so that times can be compared
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
    held = max(full.held_up, double.held_up)
    print(f"  wrong: {len(full.wrong) + len(double.wrong)}; longest that the client itself stood still: {held:.2f} s")
    return max(slower) < SLOWEST and double.refused > 0 and not full.wrong and not double.wrong


def neighbours(address: str, model: str, seconds: float) -> None:
    """In a process of its own: connections that say nothing, and prompts as long as may be."""
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
        wish = {"model": model, "prompt": "", "max_tokens": 1}
        wish["prompt"] = (STORY * (MOST_BODY // len(STORY) + 1))[: MOST_BODY - len(json.dumps(wish)) - 100]
        body = json.dumps(wish).encode()
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
    """/health asked again and again, on a new connection each time."""

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


def bad_neighbours(given: argparse.Namespace, expected: list[Expected]) -> bool:
    """Streams and /health beside silent connections and the longest prompts; whether none had to wait for those."""
    seconds = min(max(given.seconds / 5, 5.0), 60.0)
    with served(given.model, given.slots, given.streams, given.context, given.threads) as (pid, address):
        asyncio.run(Load(address, given.model, expected, 1, 0.0).run(requests=1))
        load, health = Load(address, given.model, expected, given.streams, given.cancelled), Health(address)

        async def all_together() -> None:
            await asyncio.gather(load.run(seconds=seconds), health.run(seconds))

        start = multiprocessing.get_context("spawn").Process(
            target=neighbours, args=(address, given.model, seconds + 4)
        )
        start.start()
        time.sleep(2)  # they are there
        asyncio.run(all_together())
        start.join()
        size = resident(pid)
    gap, slowest = max(load.next, default=0.0) - load.held_up, max(health.times, default=0.0) - load.held_up
    print(
        f"beside {SILENT} silent connections and {LONG} clients with prompts of {MOST_BODY / 1e6:.1f} MB, {seconds:g} s"
    )
    print(f"  answers: {load.finished} whole, {load.left} cut off by the client, {load.refused} refused")
    print(f"  wrong: {len(load.wrong)}; resident memory of the server: {size:.0f} MB")
    print(f"  between tokens: {spread(load.next)}, most {max(load.next, default=0.0):.3f} s (aim: {MOST_GAP} s)")
    print(
        f"  /health, new connections: {spread(health.times)}, most {max(health.times, default=0.0):.3f} s (aim: ",
        end="",
    )
    print(f"{MOST_HEALTH} s), failed {health.failed} of {len(health.times)}")
    print(f"  longest that the client itself stood still: {load.held_up:.2f} s")
    for line in load.wrong[:5]:
        print(f"  {line}")
    right = not load.wrong and not health.failed and load.finished > 0
    return right and gap <= MOST_GAP and slowest <= MOST_HEALTH


PARTS = {"many": many, "too-many": too_many, "neighbours": bad_neighbours}


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
    given.context = min(given.context, model.spec.context)
    print(f"{given.model}; load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
    expected = serial_reference(model, given.context)
    raise_limit()
    right = [part(given, expected) for name, part in PARTS.items() if given.only in (None, name)]
    print("all as it should be" if all(right) else "NOT as it should be")
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
