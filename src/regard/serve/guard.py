"""What every request passes before it reaches a route, and every answer on its way out.

A page anywhere on the web can send requests to a server on the same machine, and a name of its own can be made to point
there (DNS rebinding). So a request must name this server as its host, must not come from another site, and must be small.
If there is a key, every path but /health wants it: as a bearer token from programs, as a password from browsers. An answer
says that it is what it claims to be and may be used by this site only. What goes wrong unforeseen becomes a
sentence too, never a traceback.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
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
MOST_HEADERS = 32 << 10
MOST_REQUESTS = 512  # that are answered at the same time, or wait inside
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
    def __init__(
        self,
        app: ASGIApp,
        host: str,
        *,
        key: str | None = None,
        most_body: int = MOST_BODY,
        most_requests: int = MOST_REQUESTS,
    ) -> None:
        self.app, self.host, self.most_body, self.most_requests = app, host, most_body, most_requests
        self.busy = 0  # requests that have come whole and are being answered
        self._key = None if key is None else digest(key.encode())

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
            status, sentence = problem
            headers = {"WWW-Authenticate": challenge(scope["path"])} if status == 401 else {}
            headers |= {"Connection": "close"} if status == 400 else {}  # where the next request begins, nobody knows
            code = "invalid_api_key" if status == 401 else None
            answer = refusal(status, sentence, path=scope["path"], code=code, headers=headers)
            await answer(scope, receive, send_guarded)
            return
        inner = (
            {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        )  # whoever sends it leaves out the body
        coming = Coming(self, receive, counted=scope["path"] != "/health")  # which is answered however busy all are
        try:
            if not has_body(scope):
                coming.take_turn()
            await self.app(inner, coming.receive, send_guarded)
        except HTTPException as full:
            answer = refusal(full.status_code, full.detail, path=scope["path"], headers=full.headers)
            await answer(scope, receive, send_guarded)
        except asyncio.CancelledError:  # the server ends, and the time that answers had is over
            if begun:
                raise
            sentence = "The server is stopping, and the answer was not ready in time: ask again in a moment."
            await refusal(503, sentence, path=scope["path"])(scope, receive, send_guarded)
        except Exception as unforeseen:
            what = type(unforeseen).__name__
            facts = {"event": "failed", "method": scope["method"], "error": what}  # for logs that may hold no text
            log.error("%s %s failed: %s: %s", scope["method"], scope["path"], what, unforeseen, extra={"facts": facts})
            log.debug("where it failed", exc_info=unforeseen)
            if not begun:
                sentence = "Something inside went wrong with this request."
                await refusal(500, sentence, path=scope["path"])(scope, receive, send_guarded)
        finally:
            coming.end_turn()
            scope["route"] = inner.get("route")

    def objection(self, scope: Scope) -> tuple[int, str] | None:
        """The status and sentence with which a request is turned away, if it is."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if "transfer-encoding" in headers and ("content-length" in headers or scope.get("http_version") == "1.0"):
            return 400, "The request says the length of its body in two ways, which may disagree: send it in one."
        if not self.is_us(host):
            return 421, "This server answers only to its own name; open it under the address it printed."
        if origin is not None and not same_site(origin, host):
            return 403, "Requests from other sites are refused."
        if scope["path"] not in ("/", "") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return 403, "Requests from other sites are refused."
        if len(scope["path"]) + len(scope.get("query_string", b"")) > MOST_ADDRESS:
            return 414, f"The address is longer than {MOST_ADDRESS:,} bytes."
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADERS:
            return 431, f"The headers are longer than {MOST_HEADERS:,} bytes."
        if self._key is not None and scope["path"] != "/health" and not self.knows(headers.get("authorization", "")):
            return 401, "This server wants its key: send it as Authorization: Bearer KEY."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.most_body:
            return 413, f"A request may have at most {self.most_body:,} bytes."
        return None

    def knows(self, authorization: str) -> bool:
        """Whether the key is in the header, as a bearer token or a password; in the same time whatever is there."""
        scheme, _, given = authorization.partition(" ")
        offered = given.strip().encode()
        if scheme.lower() == "basic":
            try:
                offered = base64.b64decode(offered, validate=True).partition(b":")[2]
            except binascii.Error:
                offered = b""
        right = hmac.compare_digest(digest(offered), self._key or b"")
        return right and scheme.lower() in ("bearer", "basic")

    def is_us(self, host: str) -> bool:
        """Whether a Host header names this server: loopback, or where it was told to listen."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or (name == self.host.lower() and name not in EVERY_ADDRESS):
            return True
        if self._key is not None and self.host not in LOOPBACK:
            return True  # a page elsewhere does not know the key, under whatever name it finds this server
        return self.host in EVERY_ADDRESS and (is_address(name) or name == socket.gethostname().lower())


def is_address(name: str) -> bool:
    """Numbers cannot be made to point elsewhere, as names can."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def digest(key: bytes) -> bytes:
    """Of the same length for every key, so that comparing tells nothing of the length either."""
    return hashlib.sha256(key).digest()


def challenge(path: str) -> str:
    """How to send the key: a browser that opens the page asks its user for it."""
    return 'Basic realm="regard", charset="UTF-8"' if path == "/" else "Bearer"


def same_site(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # not an address
        return False


def has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class Coming:
    """A request's body as it comes: counted, for who does not say its length or says it wrong.

    When all of it is there the request takes its turn. Before, it is its client that is waited for, and clients that send
    slowly must not use up the turns of others.
    """

    def __init__(self, guard: Guard, receive: Receive, counted: bool) -> None:
        self.guard, self._receive, self.counted = guard, receive, counted
        self.total, self.has_turn = 0, False

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self.total += len(message.get("body", b""))
        if self.total > self.guard.most_body:
            raise HTTPException(413, f"A request may have at most {self.guard.most_body:,} bytes.")
        if message["type"] == "http.request" and not message.get("more_body"):
            self.take_turn()
        return message

    def take_turn(self) -> None:
        if self.has_turn or not self.counted:
            return
        if self.guard.busy >= self.guard.most_requests:
            sentence = f"{self.guard.busy} requests are being answered, the most at once: try again in a moment."
            raise HTTPException(503, sentence, {"Retry-After": "1"})
        self.guard.busy += 1
        self.has_turn = True

    def end_turn(self) -> None:
        self.guard.busy -= self.has_turn
        self.has_turn = False


def seal(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Content-Security-Policy", NOTHING_ALLOWED)
    headers.setdefault("Cache-Control", "no-store")
