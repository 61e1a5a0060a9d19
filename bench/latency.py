"""The server's latency without the model's: a short completion over a keep-alive connection.

The peer is the same request over a new connection each time, to the same server; also compared is the same call in process.
A server whose last packet waits for the client to confirm the one before it (no TCP_NODELAY) is 40 ms slower over a kept
connection than over a new one, on which the first packets are confirmed at once.
"""

import http.client
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import regard
from bench.load import served
from bench.versus import Comparison, Measured, alternate, seconds

ASK: dict[str, Any] = {"model": "toy-gpt", "prompt": "The old king", "temperature": 0, "max_tokens": 1}
TIMES = 20


def comparisons() -> Iterator[Comparison | Measured]:
    model = regard.load("toy-gpt")
    with served("toy-gpt", slots=2, queue=8, context=128, threads=None) as (_, address):
        host = address.removeprefix("http://")
        keep_alive = http.client.HTTPConnection(host)

        def over_keep_alive() -> float:
            begin = time.perf_counter()
            for _ in range(TIMES):
                complete(keep_alive)
            return TIMES / (time.perf_counter() - begin)

        def over_new() -> float:
            begin = time.perf_counter()
            for _ in range(TIMES):
                complete_on_new_connection(host)
            return TIMES / (time.perf_counter() - begin)

        what = "the server, toy-gpt, completions of one token, one after the other over a kept connection"
        yield alternate(f"{what} (peer: over a new one each)", "req/s", over_keep_alive, over_new, aim=1.0)
        model.generate(ASK["prompt"], max_new_tokens=1, temperature=0)
        pairs = [
            (
                seconds(lambda: complete(keep_alive)),
                seconds(lambda: model.generate(ASK["prompt"], max_new_tokens=1, temperature=0)),
            )
            for _ in range(10 * TIMES)
        ]
        asked, called = (statistics.median(side) for side in zip(*pairs, strict=True))
        what = f"… one of them, {1000 * asked:.1f} ms, beyond the same call in a process, {1000 * called:.1f} ms"
        yield Measured(what, 1000 * (asked - called), 10, "ms")
        keep_alive.close()


def complete(connection: http.client.HTTPConnection) -> None:
    connection.request("POST", "/v1/completions", json.dumps(ASK), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert json.loads(answer.read())["choices"], answer.status


def complete_on_new_connection(host: str) -> None:
    connection = http.client.HTTPConnection(host)
    complete(connection)
    connection.close()
