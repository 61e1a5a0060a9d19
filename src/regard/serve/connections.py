"""The connections of a server: how long each may take, how many there may be, and which one goes when there is no room.

uvicorn's protocol has one timeout, for idleness between two requests, and one limit, beyond which everybody gets a 503.
Here every wait for a client has an end: for its headers, its body, its next request, and for it to read what it asked for.
A connection that waits for its client is closed when a new one needs the room, the one that has been silent longest first:
thousands that say nothing keep nobody out.
"""

import asyncio
import ipaddress
import json
import logging
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from regard.serve.answer import error_object

TICK = 0.5  # seconds between two looks at all connections
QUIET = 10.0  # seconds in which a remark is made once
LEAST_READ = 4 << 10  # bytes that a client takes within the time that it has to read, or it reads nothing
STALLED = 5.0  # seconds without reading after which a connection may have to make room

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Limits:
    """Times are in seconds."""

    connections: int = 1024
    keep_alive: float = 75.0  # between two requests; proxies and clients let go earlier, after 60 or less
    headers: float = 20.0  # from the connection on, or from the first byte of a later request
    body: float = 20.0  # and one more for every `body_rate` bytes that have come
    body_rate: int = 16 << 10
    body_most: float = 150.0
    unread_body: float = 5.0  # for the rest of a body that was refused, so that the refusal can be read
    write: float = 60.0  # in which the client must take something of what waits for it
    unsent: int = 256 << 20  # bytes that wait for all clients together

    def of_address(self, address: str) -> int:
        """Connections from one address. On loopback are proxies and load tests; others still find room beside them."""
        loopback = address == "::1" or address.startswith("127.")
        return max(1, self.connections * 3 // 4 if loopback else self.connections // 4)


class Phase(Enum):
    """What a connection waits for. In this order they make room for others; one that is being answered never does."""

    SILENT = "a request"
    UNREAD = "the rest of a body that was refused"
    HEADERS = "the rest of the headers"
    BODY = "the rest of the body"
    ANSWER = "the answer, which is the server's turn"


class Table:
    """The connections that are open."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[Connection] = set()
        self.by_address: Counter[str] = Counter()
        self._waiting: dict[Phase, dict[Connection, None]] = {phase: {} for phase in Phase}  # each from the oldest on
        self._room = asyncio.Event()
        self._said: dict[str, float] = {}

    async def admit(self, connection: "Connection") -> bool:
        """Wait until there is room for it. False: its address has all that it may have, and is served on each."""
        address, most = connection.address, self.limits.of_address(connection.address)
        if self.by_address[address] >= most:
            self.remark(
                "An address has %d connections, the most for one: new ones replace silent ones or are cut.", most
            )
            if not (self.make_room(address) or await self.make_room_later(address)):
                return False
        while len(self.open) >= self.limits.connections:
            self.remark("All %d connections are taken: new ones wait, or replace silent ones.", self.limits.connections)
            if not (self.make_room() or await self.make_room_later()):
                self._room.clear()
                await self._room.wait()
        self.open.add(connection)
        self.by_address[address] += 1
        return True

    def make_room(self, address: str | None = None) -> bool:
        """Close the connection that has waited longest for its client (of this address); False if there is none."""
        waiting = (c for phase in Phase if phase is not Phase.ANSWER for c in self._waiting[phase])
        mine = (c for c in waiting if address in (None, c.address) and not c.unsent)
        found = next(mine, None) or self._stalled(address)
        if found is None:
            return False
        self.remove(found)
        found.transport.abort()
        return True

    async def make_room_later(self, address: str | None = None) -> bool:
        """When connections that were accepted a moment ago have begun, they are silent too."""
        await turns()
        return self.make_room(address)

    def _stalled(self, address: str | None) -> "Connection | None":
        """Who has not read for the longest time, if that is long enough to say so."""
        now = asyncio.get_running_loop().time()
        mine = [c for c in self.open if address in (None, c.address) and c.unsent and now - c.read_at > STALLED]
        return min(mine, key=lambda connection: connection.read_at, default=None)

    def place(self, connection: "Connection", phase: Phase) -> None:
        if connection in self.open:
            self._waiting[connection.phase].pop(connection, None)
            self._waiting[phase][connection] = None

    def remove(self, connection: "Connection") -> None:
        if connection not in self.open:
            return
        self.open.remove(connection)
        self._waiting[connection.phase].pop(connection, None)
        self.by_address[connection.address] -= 1
        if not self.by_address[connection.address]:
            del self.by_address[connection.address]
        self._room.set()

    def relieve(self) -> None:
        """What waits for clients that do not read takes memory: beyond a limit, who has read nothing longest goes."""
        held = {connection: connection.unsent for connection in self.open if connection.unsent}
        total = sum(held.values())
        for connection in sorted(held, key=lambda connection: connection.read_at):
            if total <= self.limits.unsent:
                return
            total -= held[connection]
            self.remark(
                "%.0f MB wait for clients that do not read them: connections are cut.", self.limits.unsent / 1e6
            )
            connection.transport.abort()

    async def watch(self) -> None:
        """End what takes too long, as long as the server runs."""
        while True:
            await asyncio.sleep(TICK)
            now = asyncio.get_running_loop().time()
            for connection in list(self.open):
                if connection.transport is not None:
                    connection.check(now)

    def remark(self, words: str, *given: Any) -> None:
        """In the log, once in a while however often it happens."""
        if time.monotonic() - self._said.get(words, -QUIET) >= QUIET:
            self._said[words] = time.monotonic()
            log.warning(words, *given)


class Outgoing:
    """A transport that counts what it was given to send."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.given = transport, 0

    def write(self, data: bytes) -> None:
        self.given += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(H11Protocol):
    """uvicorn's, which knows what it waits for and since when."""

    def __init__(self, table: Table, address: str, **given: Any) -> None:
        super().__init__(**given)
        self.table, self.address = table, address
        self.phase, self.since, self.taken = Phase.SILENT, self.loop.time(), 0
        self.read_at, self._read = self.since, 0  # when the client last took something, and how much by then
        self._counted: Any = None  # the request that the phase belongs to

    @property
    def unsent(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Outgoing(transport))  # type: ignore[arg-type]
        self.table.place(self, self.phase)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.taken += len(data)
        super().data_received(data)
        self._turn()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._turn()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.table.relieve()

    def _turn(self) -> None:
        """Begin to count anew if something else is waited for now."""
        phase, state = Phase.ANSWER, self.conn.their_state
        if state is h11.IDLE:
            phase = Phase.HEADERS if self.conn.trailing_data[0] else Phase.SILENT
        elif state is h11.SEND_BODY:
            phase = Phase.UNREAD if self.cycle.response_complete else Phase.BODY
        if phase is self.phase and self.cycle is self._counted:
            return
        first = phase is Phase.HEADERS and self.cycle is None  # these have been waited for since the connection
        self.table.place(self, phase)
        self.phase, self._counted, self.taken = phase, self.cycle, 0
        self.since = self.since if first else self.loop.time()

    def check(self, now: float) -> None:
        """End it if its client has had all the time there is."""
        sent = self.transport.given - self.unsent  # type: ignore[attr-defined]
        if not self.unsent or sent >= self._read + LEAST_READ:
            self.read_at, self._read = now, sent
        if now - self.read_at > self.table.limits.write:
            self.transport.abort()
        elif not self.transport.is_closing() and now - self.since > self._patience():
            self._give_up()

    def _patience(self) -> float:
        limits = self.table.limits
        if self.phase is Phase.ANSWER or self.flow.read_paused:
            return float("inf")
        if self.phase is Phase.SILENT:
            return limits.headers if self.cycle is None else limits.keep_alive
        if self.phase is Phase.BODY:
            return min(limits.body + self.taken / limits.body_rate, limits.body_most)
        return limits.headers if self.phase is Phase.HEADERS else limits.unread_body

    def _give_up(self) -> None:
        if self.phase in (Phase.HEADERS, Phase.BODY):
            what = "headers" if self.phase is Phase.HEADERS else "body"
            self._refuse(408, f"The {what} of the request did not come in time.")
        else:
            self.timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "What was sent is not a request as HTTP/1.1 writes it.")

    def _refuse(self, status: int, sentence: str) -> None:
        """The last words on this connection, unless an answer is under way already."""
        body = json.dumps({"error": error_object(status, sentence)}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        answer = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        with suppress(h11.LocalProtocolError):
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


async def turns() -> None:
    """Let the event loop begin what has been accepted, and close what has been cut."""
    for _ in range(3):
        await asyncio.sleep(0)


def address_of(peer: Any) -> str:
    """Who is counted together: an IPv4 address, or the 64 bits of an IPv6 network, which is one customer's."""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (ValueError, IndexError):
        return str(peer)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(address.ipv4_mapped or ipaddress.ip_address(int(address) >> 64 << 64))
    return str(address)
