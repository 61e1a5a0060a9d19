"""The connections of a server: their timeouts, their number, and which one is closed when there are too many.

uvicorn's protocol has one timeout, for idleness between two requests, and one limit, beyond which every client gets a 503.
Here every wait for a client has a timeout: for its headers, its body, its next request, and for it to read the response.
When the limit is reached, a new connection replaces one that waits for its client, the longest idle first: thousands of
idle connections keep no other client out.
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

from regard.page.json_response import error_object

TICK = 0.5  # seconds between two checks of all connections
QUIET = 10.0  # seconds in which the same warning is logged once
MIN_READ = 4 << 10  # bytes; a client that reads less counts as one that reads nothing
STALLED = 5.0  # seconds without reading after which a connection may be closed in favour of a new one

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Limits:
    """Limits of a server's connections; times are in seconds."""

    connections: int = 1024
    keep_alive: float = 75.0  # between two requests; proxies and clients close theirs earlier, after 60 or less
    headers: float = 20.0  # since the connection was made, or since the first byte of a later request
    body: float = 20.0  # plus one more for every `body_rate` bytes received
    body_rate: int = 16 << 10
    max_body: float = 150.0
    unread_body: float = 5.0  # for the rest of a rejected body, so that the client can read the error
    write: float = 60.0  # in which the client must read some of the response
    unsent: int = 256 << 20  # bytes buffered for all clients together

    def per_address(self, address: str) -> int:
        """How many connections one address may have; more on loopback, for proxies and load tests, but never all."""
        loopback = address == "::1" or address.startswith("127.")
        return max(1, self.connections * 3 // 4 if loopback else self.connections // 4)


class Phase(Enum):
    """What a connection waits for. Connections are closed for new ones in this order; never while being answered."""

    IDLE = "a request"
    UNREAD = "the rest of a rejected body"
    HEADERS = "the rest of the headers"
    BODY = "the rest of the body"
    ANSWER = "the response, which the server computes"


class Table:
    """The open connections."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[Connection] = set()
        self.by_address: Counter[str] = Counter()
        self._waiting: dict[Phase, dict[Connection, None]] = {phase: {} for phase in Phase}  # oldest first
        self._freed = asyncio.Event()
        self._logged: dict[str, float] = {}

    async def admit(self, connection: "Connection") -> bool:
        """Wait until the connection may be opened. False: its address has reached its limit and all of them are busy."""
        address, limit = connection.address, self.limits.per_address(connection.address)
        if self.by_address[address] >= limit:
            self.warn("An address has %d connections, the limit: new ones replace idle ones or are closed.", limit)
            if not (self.close_idle(address) or await self.close_idle_later(address)):
                return False
        while len(self.open) >= self.limits.connections:
            self.warn("All %d connections are in use: new ones wait, or replace idle ones.", self.limits.connections)
            if not (self.close_idle() or await self.close_idle_later()):
                self._freed.clear()
                await self._freed.wait()
        self.open.add(connection)
        self.by_address[address] += 1
        return True

    def close_idle(self, address: str | None = None) -> bool:
        """Close the connection (of this address) that has waited longest for its client. False if there is none."""
        waiting = (c for phase in Phase if phase is not Phase.ANSWER for c in self._waiting[phase])
        closable = (c for c in waiting if address in (None, c.address) and not c.unsent)
        found = next(closable, None) or self._stalled(address)
        if found is None:
            return False
        self.remove(found)
        found.transport.abort()
        return True

    async def close_idle_later(self, address: str | None = None) -> bool:
        """The same after the event loop has started connections that were just accepted, which are idle too."""
        await run_pending()
        return self.close_idle(address)

    def _stalled(self, address: str | None) -> "Connection | None":
        """The connection whose client has not read for the longest time, if for more than `STALLED` seconds."""
        now = asyncio.get_running_loop().time()
        stalled = [c for c in self.open if address in (None, c.address) and c.unsent and now - c.read_at > STALLED]
        return min(stalled, key=lambda connection: connection.read_at, default=None)

    def set_phase(self, connection: "Connection", phase: Phase) -> None:
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
        self._freed.set()

    def limit_unsent(self) -> None:
        """Bound the memory of responses that clients do not read: close the connections that have not read for longest."""
        unsent = {connection: connection.unsent for connection in self.open if connection.unsent}
        total = sum(unsent.values())
        for connection in sorted(unsent, key=lambda connection: connection.read_at):
            if total <= self.limits.unsent:
                return
            total -= unsent[connection]
            self.warn("Clients do not read %.0f MB of responses: connections are closed.", self.limits.unsent / 1e6)
            connection.transport.abort()

    async def watch(self) -> None:
        """Close connections that exceed their timeouts, as long as the server runs."""
        while True:
            await asyncio.sleep(TICK)
            now = asyncio.get_running_loop().time()
            for connection in list(self.open):
                if connection.transport is not None:
                    connection.check(now)

    def warn(self, message: str, *values: Any) -> None:
        """Log a warning, at most once in `QUIET` seconds."""
        if time.monotonic() - self._logged.get(message, -QUIET) >= QUIET:
            self._logged[message] = time.monotonic()
            log.warning(message, *values)


class CountingTransport:
    """A transport that counts the bytes written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.written = transport, 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(H11Protocol):
    """uvicorn's HTTP protocol, which also knows what it waits for and since when."""

    def __init__(self, table: Table, address: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.table, self.address = table, address
        self.phase, self.since, self.received = Phase.IDLE, self.loop.time(), 0
        self.read_at, self._read = self.since, 0  # when the client last read something, and how much by then
        self._counted: Any = None  # the request that the phase belongs to

    @property
    def unsent(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CountingTransport(transport))  # type: ignore[arg-type]
        self.table.set_phase(self, self.phase)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)
        self._update_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.table.limit_unsent()

    def _update_phase(self) -> None:
        """Restart the timeout if the connection now waits for something else."""
        phase, state = Phase.ANSWER, self.conn.their_state
        if state is h11.IDLE:
            phase = Phase.HEADERS if self.conn.trailing_data[0] else Phase.IDLE
        elif state is h11.SEND_BODY:
            phase = Phase.UNREAD if self.cycle.response_complete else Phase.BODY
        if phase is self.phase and self.cycle is self._counted:
            return
        first = phase is Phase.HEADERS and self.cycle is None  # their timeout runs since the connection was made
        self.table.set_phase(self, phase)
        self.phase, self._counted, self.received = phase, self.cycle, 0
        self.since = self.since if first else self.loop.time()

    def check(self, now: float) -> None:
        """Close the connection if its client has exceeded a timeout."""
        sent = self.transport.written - self.unsent  # type: ignore[attr-defined]
        if not self.unsent or sent >= self._read + MIN_READ:
            self.read_at, self._read = now, sent
        if now - self.read_at > self.table.limits.write:
            self.transport.abort()
        elif not self.transport.is_closing() and now - self.since > self._timeout():
            self._time_out()

    def _timeout(self) -> float:
        limits = self.table.limits
        if self.phase is Phase.ANSWER or self.flow.read_paused:
            return float("inf")
        if self.phase is Phase.IDLE:
            return limits.headers if self.cycle is None else limits.keep_alive
        if self.phase is Phase.BODY:
            return min(limits.body + self.received / limits.body_rate, limits.max_body)
        return limits.headers if self.phase is Phase.HEADERS else limits.unread_body

    def _time_out(self) -> None:
        if self.phase in (Phase.HEADERS, Phase.BODY):
            what = "headers" if self.phase is Phase.HEADERS else "body"
            self._refuse(408, f"The {what} of the request did not come in time.")
        else:
            self.timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "The request is not valid HTTP/1.1.")

    def _refuse(self, status: int, message: str) -> None:
        """Send an error and close the connection; no error if a response has begun."""
        body = json.dumps({"error": error_object(status, message)}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        answer = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        with suppress(h11.LocalProtocolError):
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


async def run_pending() -> None:
    """Let the event loop start the connections just accepted, and finish closing others."""
    for _ in range(3):
        await asyncio.sleep(0)


def client_address(peer: Any) -> str:
    """The key by which clients are counted: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (ValueError, IndexError):
        return str(peer)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(address.ipv4_mapped or ipaddress.ip_address(int(address) >> 64 << 64))
    return str(address)
