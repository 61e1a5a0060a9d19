"""A server among bad clients: whatever they do, honest requests get the answers they get alone, and nothing is left behind.

For about twenty seconds, or as many as REGARD_SOAK_SECONDS says, with another seed each time. A failure names its seed, for
REGARD_SOAK_SEED, and the scripts that did it (see `storm.py`). Add those to `cases.json`: they are performed first then.
"""

import asyncio
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import serving
import storm

SECONDS = float(os.environ.get("REGARD_SOAK_SECONDS", "20"))
CLIENTS, HONEST = 24, 3  # at the same time
MOST = 50  # scripts a second
GROWTH = 1500  # MB that memory may grow: --memory, and what an allocator keeps
CASES = Path(__file__).parent / "cases.json"

pytestmark = pytest.mark.soak


class Server:
    """A real one, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int, errors: Path) -> None:
        self.process, self.port, self.errors = process, port, errors

    def ask(self, method: str, path: str, wish: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            body = None if wish is None else json.dumps(wish)
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def answer(self, path: str, wish: Any) -> Any:
        """When there is room for it, without what differs from one time to the next."""
        while True:
            status, body = self.ask("POST", path, wish)
            if status not in (429, 503):
                break
            time.sleep(0.2)
        return status, {key: value for key, value in json.loads(body).items() if key not in ("id", "created")}

    def taken(self) -> float:
        _, text = self.ask("GET", "/metrics")
        found = re.findall(r"^regard_(?:slots_busy|waiting)\{.*\} (\S+)$", text.decode(), re.M)
        return sum(map(float, found))

    def memory(self) -> float:
        """Megabytes in use; 0 where the system does not tell."""
        try:
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        except OSError:
            return 0.0
        return int(found[1]) / 1000 if found else 0.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("storm")
    chat = serving.make_chat_model(folder)
    with started(["toy-gpt", "toy-bert", "toy-translate", str(chat)], folder) as server:
        yield server


@contextmanager
def started(models: list[str], folder: Path) -> Iterator[Server]:
    flags = ["--port", "0", "--slots", "4", "--queue", "16", "--memory", "1", "--threads", "2"]
    command = [sys.executable, "-c", "from regard.cli.main import run; run()", "serve", *models, *flags]
    errors = folder / "stderr"
    with errors.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, cwd=folder)
        try:
            assert process.stdout is not None
            found = re.search(r"http://[\d.]+:(\d+)/", process.stdout.readline())
            assert found is not None, errors.read_text()
            yield Server(process, int(found[1]), errors)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


class Storm:
    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.rng = server, random.Random(seed)
        self.alone = [(path, wish, server.answer(path, wish)) for path, wish in storm.ASKED]
        self.performed, self.honest = 0, 0
        self.failed: list[storm.Script] = []  # to which something was answered that is nobody's fault but the server's
        self.last: deque[storm.Script] = deque(maxlen=4 * CLIENTS)
        self.wrong: list[str] = []

    async def run(self, seconds: float, scripts: list[storm.Script] | None = None) -> None:
        """`scripts`: these and no others."""
        end = time.monotonic() + seconds
        left = None if scripts is None else deque(scripts)

        def going_on() -> bool:
            alive = self.server.process.poll() is None and not self.failed and not self.wrong
            return alive and time.monotonic() < end and (left is None or bool(left)) and self.performed < MOST * seconds

        async def bad() -> None:
            while going_on():
                script = storm.made(self.rng) if left is None else left.popleft()
                self.performed += 1
                self.last.append(script)
                statuses = await storm.perform(script, "127.0.0.1", self.server.port)
                if any(status >= 500 and status != 503 for status in statuses):
                    self.failed.append(script)

        async def honest(turn: int) -> None:
            while going_on() and scripts is None:
                path, wish, expected = self.alone[turn % len(self.alone)]
                try:
                    found = await asyncio.to_thread(self.server.answer, path, wish)
                except OSError as problem:
                    found = repr(problem)
                self.honest += 1
                turn += HONEST
                if found != expected:
                    self.wrong.append(f"{path} {wish}: {found} instead of {expected}")

        await asyncio.gather(*(bad() for _ in range(CLIENTS)), *(honest(i) for i in range(HONEST)))

    def report(self) -> str:
        """What is needed to do it again."""
        scripts = self.failed[:3] or (list(self.last) if self.server.process.poll() is not None else [])
        return f"{self.wrong[:1]} {json.dumps(scripts)[:20_000]} {self.server.errors.read_text()[-2000:]}"


def check_what_is_left(server: Server, before: float, seed: str) -> None:
    assert server.process.poll() is None, seed
    serving.until(lambda: server.taken() == 0, 60)
    times = []
    for _ in range(5):
        begin = time.monotonic()
        assert server.ask("GET", "/health")[0] == 200, seed
        times.append(time.monotonic() - begin)
    assert min(times) < 2, seed
    assert server.memory() < before + GROWTH, seed
    said = server.errors.read_text()
    assert "Traceback" not in said, (seed, said[said.index("Traceback") - 500 :][:5000])
    assert '"event": "failed"' not in said, seed


def test_cases_that_did_harm_once(server: Server) -> None:
    storming = Storm(server, 0)
    before = server.memory()
    cases = json.loads(CASES.read_text())
    serving.run_async(storming.run(600, cases))
    assert not storming.failed, storming.report()
    check_what_is_left(server, before, "cases.json")


def test_a_storm_leaves_nothing_behind(server: Server) -> None:
    seed = int(os.environ.get("REGARD_SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
    told = f"REGARD_SOAK_SEED={seed}"
    storming = Storm(server, seed)
    before = server.memory()
    serving.run_async(storming.run(SECONDS))
    assert not storming.wrong, f"{told}: {storming.report()}"
    assert not storming.failed, f"{told}: {storming.report()}"
    assert server.process.poll() is None, f"{told}: the server ended. {storming.report()}"
    assert storming.performed > CLIENTS, told
    assert storming.honest > 0, told
    check_what_is_left(server, before, told)


def test_it_ends_when_it_is_asked_to(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(90) == 0
