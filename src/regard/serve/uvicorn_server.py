"""uvicorn with limited connections (`connections.py`): `Server(app, limits, …).run(sockets=[listening])`.

Connections are accepted here and not by asyncio, which accepts any number of them and, when no file descriptor is left,
fails and retries in a busy loop. Here accepting pauses when the table is full: new clients wait in the system's backlog.
"""

import asyncio
import errno
import socket
import sys
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from regard.serve.connections import Connection, Limits, Table, client_address, run_pending

BACKLOG = 1024
PAUSE = 0.1  # seconds before accepting is retried
ACCEPT_BATCH = 32  # connections accepted before the event loop runs other tasks
NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MAX_HEADERS = 256 << 10  # above the guard's own limit, so that it can answer with a message


class Listener:
    """Accepts the connections of a socket while the table admits them. To uvicorn it is an asyncio.Server."""

    def __init__(self, listening: socket.socket, table: Table, make: Any) -> None:
        self.listening, self.table, self._make = listening, table, make
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._starting: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._accepting])

    async def _accept(self) -> None:
        loop, accepted = asyncio.get_running_loop(), 0
        while True:
            try:
                peer, address = await loop.sock_accept(self.listening)
            except OSError as problem:
                await self._pause(problem)
                continue
            connection = self._make(client_address(address))
            try:
                admitted = await self.table.admit(connection)
            except asyncio.CancelledError:
                peer.close()
                raise
            if not admitted:
                peer.close()
                continue
            task = loop.create_task(self._start(peer, connection))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
            accepted += 1
            if accepted % ACCEPT_BATCH == 0:
                await asyncio.sleep(0)

    async def _start(self, peer: socket.socket, connection: Connection) -> None:
        try:
            # Nagle's algorithm would delay a response's last packet until the one before it is acknowledged (40 ms).
            # asyncio turns it off only for listening sockets created with proto=IPPROTO_TCP; most have 0 there.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, peer)
        except OSError:  # the client has disconnected already
            peer.close()
            self.table.remove(connection)

    async def _pause(self, problem: OSError) -> None:
        if problem.errno == errno.ECONNABORTED:  # concerns this connection only
            return
        if problem.errno in NO_RESOURCES:
            self.table.warn("There is no file descriptor for a new connection: it waits, or replaces an idle one.")
            if self.table.close_idle():
                await run_pending()
                return
        else:
            self.table.warn("A connection could not be accepted: %s.", problem.strerror)
        await asyncio.sleep(PAUSE)


class Server(uvicorn.Server):
    """uvicorn's server, with `Listener`s that accept its connections."""

    def __init__(self, app: ASGIApp, limits: Limits, **more: Any) -> None:
        self.limits = limits
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=MAX_HEADERS,
                timeout_keep_alive=limits.keep_alive,  # type: ignore[arg-type]
                **more,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        table = Table(self.limits)
        self._watching = asyncio.get_running_loop().create_task(table.watch())
        make = partial(
            Connection, table, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        self.servers = [Listener(listening, table, make) for listening in sockets or []]  # type: ignore[misc]
        self.started = True


def connection_limit(connections: int) -> int:
    """`connections`, or fewer if the process may not open so many: a quarter of its descriptors is for other files."""
    try:
        import resource
    except ImportError:  # not a Unix
        return connections
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if limit == resource.RLIM_INFINITY else min(connections, max(16, limit * 3 // 4))
