"""What every request passes before it reaches a route, and every answer on its way out.

A page anywhere on the web can send requests to a server on the same machine, and a name of its own can be made to point
there (DNS rebinding). So a request must name this server as its host, must not come from another site, and must be small;
an answer says that it is what it claims to be and may be used by this site only. What goes wrong unforeseen becomes a
sentence too, never a traceback.
"""

import ipaddress
import logging
import socket
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.answer import refusal

MOST_BODY = 256 << 10
MOST_ADDRESS = 16 << 10  # path and query
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
NOTHING_ALLOWED = "default-src 'none'; frame-ancestors 'none'"  # unless an answer brings a policy of its own

log = logging.getLogger("regard")


class Guard:
    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                seal(message)
            await send(message)

        problem = self.objection(scope)
        if problem is not None:
            await refusal(*problem)(scope, receive, send_guarded)
            return
        try:
            await self.app(scope, limited(receive), send_guarded)
        except Exception as unforeseen:
            log.error("%s %s failed: %s: %s", scope["method"], scope["path"], type(unforeseen).__name__, unforeseen)
            log.debug("where it failed", exc_info=unforeseen)
            if not begun:
                await refusal(500, "Something inside went wrong with this request.")(scope, receive, send_guarded)

    def objection(self, scope: Scope) -> tuple[int, str] | None:
        """The status and sentence with which a request is turned away, if it is."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.is_us(host):
            return 421, "This server answers only to its own name; open it under the address it printed."
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return 403, "Requests from other sites are refused."
        if scope["path"] not in ("/", "") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return 403, "Requests from other sites are refused."
        if len(scope["path"]) + len(scope.get("query_string", b"")) > MOST_ADDRESS:
            return 414, f"The address is longer than {MOST_ADDRESS:,} bytes."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_BODY:
            return 413, f"A request may have at most {MOST_BODY:,} bytes."
        return None

    def is_us(self, host: str) -> bool:
        """Whether a Host header names this server: loopback, or where it was told to listen."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or (name == self.host.lower() and name not in EVERY_ADDRESS):
            return True
        return self.host in EVERY_ADDRESS and (is_address(name) or name == socket.gethostname().lower())


def is_address(name: str) -> bool:
    """Numbers cannot be made to point elsewhere, as names can."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def limited(receive: Receive) -> Receive:
    """The body also counted as it comes, for who does not say its length or says it wrong."""
    total = 0

    async def receive_limited() -> MutableMapping[str, Any]:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MOST_BODY:
            raise HTTPException(413, f"A request may have at most {MOST_BODY:,} bytes.")
        return message

    return receive_limited


def seal(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Content-Security-Policy", NOTHING_ALLOWED)
    headers.setdefault("Cache-Control", "no-store")
