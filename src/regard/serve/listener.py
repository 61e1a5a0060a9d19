"""uvicorn with connections that end (`connections.py`): `Server(app, limits, …).run(sockets=[door])`.

Connections are accepted here and not by asyncio, which takes as many as come and, without a file descriptor left, fails and
tries again as fast as it can. Here a full table pauses: who comes then waits in the system's backlog.
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

from regard.serve.connections import Connection, Limits, Table, address_of, turns

BACKLOG = 1024
PAUSE = 0.1  # seconds until accepting is tried again
TOGETHER = 32  # connections that are accepted before anything else is done
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MOST_HEADERS = 256 << 10  # headers above the guard's own limit still get an answer in words


class Listener:
    """Accepts what comes to a socket, as long as the table has room. To uvicorn it is what asyncio calls a server."""

    def __init__(self, door: socket.socket, table: Table, make: Any) -> None:
        self.door, self.table, self._make = door, table, make
        door.setblocking(False)
        door.listen(BACKLOG)
        self._beginning: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._accepting])

    async def _accept(self) -> None:
        loop, accepted = asyncio.get_running_loop(), 0
        while True:
            try:
                peer, address = await loop.sock_accept(self.door)
            except OSError as problem:
                await self._pause(problem)
                continue
            connection = self._make(address_of(address))
            try:
                admitted = await self.table.admit(connection)
            except asyncio.CancelledError:
                peer.close()
                raise
            if not admitted:
                peer.close()
                continue
            task = loop.create_task(self._begin(peer, connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
            accepted += 1
            if accepted % TOGETHER == 0:
                await asyncio.sleep(0)

    async def _begin(self, peer: socket.socket, connection: Connection) -> None:
        try:
            # An answer's last packet must not wait for the client to confirm the one before it, which takes 40 ms. asyncio
            # sees to that only if the listening socket was made with the number of TCP, and most are made with 0.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, peer)
        except OSError:  # gone already
            peer.close()
            self.table.remove(connection)

    async def _pause(self, problem: OSError) -> None:
        if problem.errno == errno.ECONNABORTED:  # only this one
            return
        if problem.errno in FULL:
            self.table.remark("There is no file descriptor for a new connection: it waits, or replaces a silent one.")
            if self.table.make_room():
                await turns()
                return
        else:
            self.table.remark("A connection could not be accepted: %s.", problem.strerror)
        await asyncio.sleep(PAUSE)


class Server(uvicorn.Server):
    """uvicorn's, which takes its connections through listeners."""

    def __init__(self, app: ASGIApp, limits: Limits, **more: Any) -> None:
        self.limits = limits
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=MOST_HEADERS,
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
        self.servers = [Listener(door, table, make) for door in sockets or []]  # type: ignore[misc]
        self.started = True


def affordable(connections: int) -> int:
    """So many, or as many as this process may have: a quarter of its file descriptors is for other files."""
    try:
        import resource
    except ImportError:  # not a Unix
        return connections
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if most == resource.RLIM_INFINITY else min(connections, max(16, most * 3 // 4))
