"""Connections that send nothing, too little, too much or too slowly: each is closed, and other clients are served."""

import asyncio
import logging
import os
import re
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

import serving
from regard.serve.connections import Connection, Limits, Phase, Table, client_address
from regard.serve.guard import Guard

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /read HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n"


class App:
    """Echoes the body. /wait waits until it is released, /large is 8 MB, /endless never ends."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["path"] == "/wait":
            self.waiting += 1
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        answer: Response = PlainTextResponse(f"{scope['path']} {len(body)}")
        if scope["path"] == "/large":
            answer = PlainTextResponse(b"a" * (8 << 20))
        if scope["path"] == "/endless":
            answer = StreamingResponse(endless())
        await answer(scope, receive, send)


async def endless() -> Any:
    while True:
        yield b"a" * 1000
        await asyncio.sleep(0.0001)


@contextmanager
def served(
    unread: int | None = None, max_requests: int = 512, **limits: Any
) -> Iterator[tuple[App, Callable[..., Any]]]:
    """An application, and how to connect to it."""
    app, doors = App(), list[socket.socket]()

    def connect(data: bytes = b"", small: bool = False) -> socket.socket:
        door = socket.socket()
        if small:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        door.settimeout(30)
        door.connect((host, int(port)))
        door.sendall(data)
        doors.append(door)
        return door

    guarded = Guard(app, "127.0.0.1", max_requests=max_requests)
    with serving.running(guarded, unread=unread, **limits) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        try:
            yield app, connect
        finally:
            app.go.set()
            for door in doors:
                door.close()


def rest(door: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    found = b""
    try:
        while part := door.recv(1 << 16):
            found += part
    except ConnectionError:
        pass
    return found


def answer(door: socket.socket) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found:
        part = door.recv(1 << 16)
        assert part, "closed without an answer"
        found += part
    return found


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_wait_for_a_client_has_a_timeout():
    """The first three wait in vain for a request, for the rest of the headers and for the rest of the body."""
    with served(headers=0.2, body=0.2, body_rate=1 << 20, keep_alive=0.2) as (_, connect):
        silent, headers, body, later = connect(), connect(GET[:-3]), connect(POST + b"abc"), connect(GET)
        assert rest(silent) == b""
        assert rest(headers).startswith(b"HTTP/1.1 408 ")
        said = rest(body)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b'{"error": {"message": "The body of the request did not come in time."' in said
        said = rest(later)  # between two requests
        assert said.startswith(b"HTTP/1.1 200 ")
        assert b"408" not in said


def test_sending_headers_byte_by_byte_does_not_extend_the_timeout():
    with served(headers=0.3) as (_, connect):
        send_until_closed(connect(GET[:-3] + b"X: "), b"a")


def test_blank_lines_do_not_extend_the_keep_alive():
    with served(keep_alive=0.3) as (_, connect):
        door = connect(GET)
        answer(door)
        send_until_closed(door, b"\r\n")


def send_until_closed(door: socket.socket, data: bytes) -> None:
    begin = time.monotonic()
    try:
        while time.monotonic() < begin + 30:
            door.sendall(data)
            time.sleep(0.02)
    except ConnectionError:
        return
    raise AssertionError("still open")


def test_a_body_that_arrives_fast_enough_gets_more_time():
    with served(body=1, body_rate=10, max_body=60) as (_, connect):
        door = connect(POST)
        for _ in range(10):
            door.sendall(b"a" * 100)
            time.sleep(0.2)
        assert answer(door).startswith(b"HTTP/1.1 200 ")


def test_the_rest_of_a_refused_body_is_not_read_for_ever():
    length = b"Content-Length: 100000000\r\n\r\n"
    with served(unread_body=0.2, body=60) as (_, connect):
        door = connect(b"POST /read HTTP/1.1\r\n" + HOST + length)
        assert rest(door).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", [b"/large", b"/endless"])
def test_a_client_that_does_not_read_is_disconnected(path):
    """Also after its response was computed: the unread bytes take memory."""
    with served(unread=4096, write=0.3) as (_, connect):
        door = connect(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", small=True)
        time.sleep(1.5)
        assert len(rest(door)) < 4 << 20


def test_a_client_that_reads_slowly_is_not_disconnected():
    with served(unread=4096, write=2) as (_, connect):
        door = connect(b"GET /endless HTTP/1.1\r\n" + HOST + b"\r\n", small=True)
        for _ in range(60):
            assert door.recv(2000)
            time.sleep(0.05)


def test_unread_bytes_of_all_clients_together_are_bounded():
    with served(unread=4096, unsent=20 << 20) as (_, connect):
        doors = [connect(b"GET /large HTTP/1.1\r\n" + HOST + b"\r\n", small=True) for _ in range(6)]
        time.sleep(0.5)
        ends = [connect(GET) for _ in range(3)]
        assert all(answer(door).startswith(b"HTTP/1.1 200 ") for door in ends)
        for door in doors:
            door.settimeout(2)
        whole = [len(read_all(door)) > 8 << 20 for door in doors]
        assert 1 <= sum(whole) <= 3


def read_all(door: socket.socket) -> bytes:
    found = b""
    try:
        while len(found) < 8 << 20 and (part := door.recv(1 << 20)):
            found += part
    except (ConnectionError, TimeoutError):
        pass
    return found


# ── number ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_idle_connections_are_closed_for_new_ones_oldest_first(caplog):
    with caplog.at_level(logging.WARNING), served(connections=16) as (_, connect):
        silent = [connect() for _ in range(60)]
        for _ in range(3):
            assert answer(connect(GET)).startswith(b"HTTP/1.1 200 ")
        assert all(rest(door) == b"" for door in silent[:40])
        assert answer_to(silent[-1], GET).startswith(b"HTTP/1.1 200 ")
    assert len([record for record in caplog.records if record.name == "regard"]) <= 2  # not one for each


def answer_to(door: socket.socket, data: bytes) -> bytes:
    door.sendall(data)
    return answer(door)


def test_connections_with_unfinished_bodies_are_closed_for_new_ones():
    with served(connections=16) as (_, connect):
        for _ in range(30):
            connect(POST)
        assert answer(connect(GET)).startswith(b"HTTP/1.1 200 ")


def test_an_address_does_not_take_every_connection():
    """12 of 16 are busy with its requests; a thirteenth is closed, and accepted once one of them is idle."""
    with served(connections=16) as (app, connect):
        busy = [connect(GET.replace(b"/health", b"/wait")) for _ in range(12)]
        serving.until(lambda: app.waiting == 12)
        assert rest(connect(GET)) == b""
        app.go.set()
        for door in busy:
            answer(door)
        assert answer(connect(GET)).startswith(b"HTTP/1.1 200 ")


def test_addresses_and_their_limits():
    limits = Limits(connections=100)
    assert [limits.per_address(a) for a in ("127.0.0.1", "::1", "10.0.0.7", "2001:db8::")] == [75, 75, 25, 25]
    assert client_address(("10.0.0.7", 1)) == "10.0.0.7"
    assert client_address(("::ffff:10.0.0.7", 1, 0, 0)) == "10.0.0.7"
    assert client_address(("2001:db8::1:2:3:4", 1, 0, 0)) == client_address(("2001:db8::5", 1, 0, 0)) == "2001:db8::"
    assert client_address(("fe80::1%eth0", 1, 0, 2)) == "fe80::"
    assert client_address(("::1", 1, 0, 0)) == "::1"


def test_a_new_connection_waits_while_all_are_busy():
    async def wait() -> None:
        table = Table(Limits(connections=4))
        there = [fake(f"10.0.0.{i}", Phase.ANSWER) for i in range(4)]
        for each in there:
            assert await table.admit(each)
        fifth = asyncio.ensure_future(table.admit(fake("10.0.0.9", Phase.IDLE)))
        await asyncio.sleep(0.05)
        assert not fifth.done()
        table.remove(there[2])
        assert await asyncio.wait_for(fifth, 30)
        assert len(table.open) == 4

    serving.run_async(wait())


def fake(address: str, phase: Phase) -> Any:
    class Fake(SimpleNamespace):
        __hash__ = object.__hash__  # type: ignore[assignment]

    return Fake(address=address, phase=phase, unsent=0, read_at=0.0, transport=None)


def test_requests_beyond_max_requests_get_503_but_not_health():
    """Requests whose bodies are incomplete do not count."""
    with served(max_requests=2) as (app, connect):
        slow = [connect(POST) for _ in range(5)]
        busy = [connect(GET.replace(b"/health", b"/wait")) for _ in range(2)]
        serving.until(lambda: app.waiting == 2)
        for data in (GET.replace(b"/health", b"/other"), POST + b"a" * 1000):
            refused = answer(connect(data))
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in refused
        assert answer(connect(GET)).startswith(b"HTTP/1.1 200 ")
        app.go.set()
        assert all(answer(door).startswith(b"HTTP/1.1 200 ") for door in busy)
        slow[0].sendall(b"a" * 1000)
        assert answer(slow[0]).startswith(b"HTTP/1.1 200 ")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of file descriptors")
def test_idle_connections_are_closed_when_file_descriptors_run_out():
    """In a process that may open 48 files. It logs this once, without a traceback and without a busy loop."""
    code = """
        import resource, socket, sys
        from starlette.responses import PlainTextResponse
        from regard.serve.connections import Limits
        from regard.serve.uvicorn_server import Server

        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
        door = socket.create_server(("127.0.0.1", 0))
        print(door.getsockname()[1], flush=True)
        Server(PlainTextResponse("well"), Limits(), log_config=None, lifespan="off").run(sockets=[door])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    server, silent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), []
    try:
        assert server.stdout is not None
        assert server.stderr is not None
        address = ("127.0.0.1", int(server.stdout.readline()))
        silent += [socket.create_connection(address, 30) for _ in range(100)]
        with httpx.Client(base_url=f"http://127.0.0.1:{address[1]}", timeout=30) as client:
            assert client.get("/").text == "well"
        before = used(server.pid)
        time.sleep(1)
        assert used(server.pid) - before < 0.5
    finally:
        for door in silent:
            door.close()
        server.kill()
        said = server.communicate()[1]
    assert "Traceback" not in said
    assert 1 <= len(said.splitlines()) <= 2, said


def used(pid: int) -> float:
    """Seconds of processor time; 0 where /proc does not exist."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ── framing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

CHUNKED = b"Transfer-Encoding: chunked\r\n"
SECOND = b"GET /second HTTP/1.1\r\n" + HOST + b"\r\n"
AMBIGUOUS = {
    "both": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "both, the other way round": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "a length with a sign": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +4\r\n\r\nabcd",
    "chunks twice": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
    "another encoding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "no number of bytes": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a signed number of bytes": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n+3\r\nabc\r\n0\r\n\r\n",
    "a chunk that is longer": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n3\r\nabcde0\r\n\r\n",
    "a chunk ended by LF": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n3\r\nabc\n0\r\n\r\n",
    "a space before the colon": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a header that begins with a space": b"GET / HTTP/1.1\r\n X: y\r\n" + HOST + b"\r\n",
    "CR alone": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rY: b\r\n\r\n",
    "NUL": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.fixture(scope="module")
def connect() -> Iterator[Callable[..., socket.socket]]:
    with served() as (_, connect):
        yield connect


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_request_with_an_ambiguous_length_closes_the_connection(connect, name):
    """Request smuggling: what one server takes for a body, another takes for the next request."""
    said = rest(connect(AMBIGUOUS[name] + SECOND))
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"400"]
    assert b'"error"' in said


def test_unusual_but_valid_requests_are_accepted(connect):
    """Repeated equal lengths, chunk extensions, folded headers, LF for CR LF, and pipelined requests."""
    before = [
        b"POST /1 HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /2 HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
        b"GET /3 HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
        b"GET /4 HTTP/1.1\nHost: 127.0.0.1\n\n",
        b"GET /5 HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n",  # which HTTP/1.0 does not have here
    ]
    said = rest(connect(b"".join(before) + SECOND))
    assert re.findall(rb"/\d \d", said) == [b"/1 4", b"/2 3", b"/3 0", b"/4 0", b"/5 0"]


def test_nagles_algorithm_is_off(monkeypatch):
    """Otherwise the last packet of a response waits 40 ms until the one before it is acknowledged."""
    found, made = [], Connection.connection_made

    def noted(self: Connection, transport: Any) -> None:
        made(self, transport)
        found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(Connection, "connection_made", noted)
    with served() as (_, connect):
        answer(connect(GET))
    assert found
    assert all(found)
