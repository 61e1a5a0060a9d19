"""The page's own files: `/` and `/page/…`, from one folder of the package and nowhere else.

The page runs under a Content-Security-Policy that allows its own files and nothing inline. The import map must be
inline in index.html, so its hash is in the policy, computed from the bytes that are sent.
"""

import base64
import hashlib
import re
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from regard.errors import NotFound, quoted
from regard.page import WEB

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
INLINE = re.compile(rb"<script\b[^>]*\btype=[\"']?importmap[\"']?[^>]*>(.*?)</script>", re.S | re.I)
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


def page_router(folder: Path = WEB) -> APIRouter:
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return send(request, folder, "index.html")

    @router.get("/page/{path:path}", include_in_schema=False)
    async def file(request: Request, path: str) -> Response:
        return send(request, folder, path)

    return router


def send(request: Request, folder: Path, path: str) -> Response:
    """A file as it is now, or 304 if the browser has it already (by ETag)."""
    content = read(folder, path)
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": policy(content)}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers | {"Content-Type": TYPES[Path(path).suffix]})


def read(folder: Path, path: str) -> bytes:
    missing = NotFound(f"The page has no file {quoted(path)}.")
    try:
        file = (folder / path).resolve()
        if file.suffix not in TYPES or not file.is_relative_to(folder.resolve()):
            raise missing
        return file.read_bytes()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        raise missing from None


def policy(content: bytes) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in INLINE.findall(content)]
    scripts = " ".join([POLICY["script-src"], *(f"'sha256-{each}'" for each in hashes)])
    return "; ".join(f"{directive} {sources}" for directive, sources in (POLICY | {"script-src": scripts}).items())
