"""The guard: middleware that checks every request before a route sees it, and adds security headers to every response.

A page anywhere on the web can send requests to a server on the same machine, and a name of its own can be made to point
there (DNS rebinding). So a request must name this server as its host, must not come from another site, and must be small.
If there is a key, every path but /health requires it: as a bearer token from programs, as a password from browsers. The
headers of a response forbid content sniffing and use by other sites. An unexpected exception becomes a one-sentence 500,
never a traceback.
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

from regard.page.json_response import error_response

MAX_BODY = 256 << 10
MAX_ADDRESS = 16 << 10  # path and query
MAX_HEADERS = 32 << 10
MAX_REQUESTS = 512  # in progress at the same time, queued ones included
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
DEFAULT_POLICY = "default-src 'none'; frame-ancestors 'none'"  # unless a response has a policy of its own

log = logging.getLogger("regard")


class Guard:
    """The middleware. host: the address the server listens on. key: the API key, if requests must send one."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        *,
        key: str | None = None,
        max_body: int = MAX_BODY,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self.app, self.host, self.max_body, self.max_requests = app, host, max_body, max_requests
        self.busy = 0  # requests that were received completely and are being answered
        self._key = None if key is None else digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def send_secured(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                add_security_headers(message)
            await send(message)

        problem = self.rejection(scope)
        if problem is not None:
            status, message = problem
            headers = {"WWW-Authenticate": challenge(scope["path"])} if status == 401 else {}
            headers |= {"Connection": "close"} if status == 400 else {}  # where the next request begins is not certain
            code = "invalid_api_key" if status == 401 else None
            answer = error_response(status, message, path=scope["path"], code=code, headers=headers)
            await answer(scope, receive, send_secured)
            return
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope  # uvicorn leaves out the body
        body = LimitedBody(self, receive, counted=scope["path"] != "/health")  # which is answered under any load
        try:
            if not has_body(scope):
                body.acquire()
            await self.app(inner, body.receive, send_secured)
        except HTTPException as full:
            answer = error_response(full.status_code, full.detail, path=scope["path"], headers=full.headers)
            await answer(scope, receive, send_secured)
        except asyncio.CancelledError:  # the server is stopping and its grace period is over
            if begun:
                raise
            message = "The server is stopping, and the answer was not ready in time: ask again in a moment."
            await error_response(503, message, path=scope["path"])(scope, receive, send_secured)
        except Exception as unforeseen:
            what = type(unforeseen).__name__
            facts = {"event": "failed", "method": scope["method"], "error": what}  # the JSON log has no request content
            log.error("%s %s failed: %s: %s", scope["method"], scope["path"], what, unforeseen, extra={"facts": facts})
            log.debug("traceback of the failure", exc_info=unforeseen)
            if not begun:
                message = "Something inside went wrong with this request."
                await error_response(500, message, path=scope["path"])(scope, receive, send_secured)
        finally:
            body.release()
            scope["route"] = inner.get("route")

    def rejection(self, scope: Scope) -> tuple[int, str] | None:
        """The status and message with which a request is rejected, or None."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if "transfer-encoding" in headers and ("content-length" in headers or scope.get("http_version") == "1.0"):
            return 400, "The request gives the length of its body in two ways, which may disagree: send it in one."
        if not self.is_own_host(host):
            return 421, "This server answers only to its own name; open it under the address it printed."
        if origin is not None and not same_site(origin, host):
            return 403, "Requests from other sites are refused."
        if scope["path"] not in ("/", "") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return 403, "Requests from other sites are refused."
        if len(scope["path"]) + len(scope.get("query_string", b"")) > MAX_ADDRESS:
            return 414, f"The address is longer than {MAX_ADDRESS:,} bytes."
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADERS:
            return 431, f"The headers are longer than {MAX_HEADERS:,} bytes."
        needs_key = self._key is not None and scope["path"] != "/health"
        if needs_key and not self.is_authorized(headers.get("authorization", "")):
            return 401, "This server requires its key: send it as Authorization: Bearer KEY."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.max_body:
            return 413, f"A request may have at most {self.max_body:,} bytes."
        return None

    def is_authorized(self, authorization: str) -> bool:
        """Whether the header has the key, as a bearer token or a password. Takes the same time whatever was sent."""
        scheme, _, credentials = authorization.partition(" ")
        sent = credentials.strip().encode()
        if scheme.lower() == "basic":
            try:
                sent = base64.b64decode(sent, validate=True).partition(b":")[2]
            except binascii.Error:
                sent = b""
        equal = hmac.compare_digest(digest(sent), self._key or b"")
        return equal and scheme.lower() in ("bearer", "basic")

    def is_own_host(self, host: str) -> bool:
        """Whether a Host header names this server: a loopback name, or the address it listens on."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or (name == self.host.lower() and name not in ANY_ADDRESS):
            return True
        if self._key is not None and self.host not in LOOPBACK:
            return True  # a page elsewhere does not have the key, whatever name it uses for this server
        return self.host in ANY_ADDRESS and (is_address(name) or name == socket.gethostname().lower())


def is_address(name: str) -> bool:
    """Whether it is an IP address, which cannot be rebound as a name can."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def digest(key: bytes) -> bytes:
    """A hash, so that what is compared has the same length for every key and its length is not leaked."""
    return hashlib.sha256(key).digest()


def challenge(path: str) -> str:
    """The WWW-Authenticate header: for the page, Basic, so that a browser asks its user for the key."""
    return 'Basic realm="regard", charset="UTF-8"' if path == "/" else "Bearer"


def same_site(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # not an address
        return False


def has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class LimitedBody:
    """A request's body, limited as it is received, since a client may send no length or a wrong one.

    Only when it is complete does the request count towards `max_requests`: clients that send slowly must not use up the
    capacity for others.
    """

    def __init__(self, guard: Guard, receive: Receive, counted: bool) -> None:
        self.guard, self._receive, self.counted = guard, receive, counted
        self.total, self.acquired = 0, False

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self.total += len(message.get("body", b""))
        if self.total > self.guard.max_body:
            raise HTTPException(413, f"A request may have at most {self.guard.max_body:,} bytes.")
        if message["type"] == "http.request" and not message.get("more_body"):
            self.acquire()
        return message

    def acquire(self) -> None:
        if self.acquired or not self.counted:
            return
        if self.guard.busy >= self.guard.max_requests:
            message = f"{self.guard.busy} requests are being answered, the maximum: try again in a moment."
            raise HTTPException(503, message, {"Retry-After": "1"})
        self.guard.busy += 1
        self.acquired = True

    def release(self) -> None:
        self.guard.busy -= self.acquired
        self.acquired = False


def add_security_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Content-Security-Policy", DEFAULT_POLICY)
    headers.setdefault("Cache-Control", "no-store")
