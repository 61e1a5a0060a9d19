"""How a server ends: answers come to their end, a second signal does not wait, and what is not ready is told so."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import serving
from regard.serve import guard

KEY = "a key that nobody knows"
ASK = {"model": "toy-gpt", "prompt": "The old king", "temperature": 0, "max_tokens": 8}
LONG = ASK | {"max_tokens": 120, "logit_bias": {"0": -100}}  # the end token is out of reach


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
def test_sigterm_lets_answers_come_to_their_end(tmp_path):
    command = [sys.executable, "-c", "from regard.cli.main import run; run()", "serve", "toy-gpt", "--port", "0"]
    environment = os.environ | {"REGARD_API_KEY": KEY}
    with (tmp_path / "log").open("w+") as log:
        flags = ["--threads", "1"]
        server = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0].removesuffix("/v1")
        try:
            headers = {"Authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=address, timeout=60, headers=headers) as client:
                with client.stream("POST", "/v1/completions", json=LONG | {"stream": True}) as answer:
                    lines = answer.iter_lines()
                    next(lines)
                    server.send_signal(signal.SIGTERM)
                    rest = [line for line in lines if line]
                assert rest[-1] == "data: [DONE]"
                assert len(rest) >= 100
                with pytest.raises(httpx.TransportError):
                    serving.until(lambda: client.get("/health").status_code != 200)
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
        log.seek(0)
        written = log.read()
    assert KEY not in written
    asked = [json.loads(line) for line in written.splitlines() if "/v1/completions" in line]
    assert [line["completion_tokens"] for line in asked] == [120]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path, sign):
    code = "import time; from regard.cli import serve; from regard.engine.slots import NativeSlots as lanes\n"
    code += "lanes.feed = lambda self, pieces: time.sleep(600)\n"  # an answer that never comes to its end
    code += "from regard.cli.main import run; run()"
    with (tmp_path / "log").open("w+") as log:
        command = [sys.executable, "-c", code, "serve", "toy-gpt", "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0].removesuffix("/v1")
        try:
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(httpx.post, f"{address}/v1/completions", json=ASK, timeout=60)
                busy = 'regard_slots_busy{model="toy-gpt"} 1'
                serving.until(lambda: busy in httpx.get(f"{address}/metrics", timeout=60).text)
                server.send_signal(sign)
                with pytest.raises(subprocess.TimeoutExpired):
                    server.wait(1)
                server.send_signal(sign)
                assert server.wait(10) == 128 + sign
                assert isinstance(asked.exception(60), httpx.TransportError)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
        log.seek(0)
        assert "Traceback" not in log.read()


def test_an_answer_that_the_end_came_before_is_a_503():
    """uvicorn cancels what has not come to its end in time."""
    sent = list[dict[str, Any]]()

    async def forever(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def cut_off() -> None:
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [(b"host", b"127.0.0.1")]}
        asked = asyncio.create_task(guard.Guard(forever, "127.0.0.1")(scope, receive, send))
        await asyncio.sleep(0.01)
        asked.cancel()
        await asked

    serving.run_async(cut_off())
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["type"] == "server_error"
