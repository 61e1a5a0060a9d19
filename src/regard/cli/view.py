"""`regard view`: the page, on models and training runs of this machine."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from regard.cli.say import progress, remark, show_warnings
from regard.errors import RegardError, quoted

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

CONNECTIONS = 256


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to offer besides the bundled and installed ones.", metavar="MODEL"),
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option(help="A training run to replay; may be given again.", metavar="DIR")
    ] = None,
    text: Annotated[str | None, typer.Option(help="The text to begin with.", metavar="TEXT")] = None,
    port: Annotated[int, typer.Option(help="Where to listen; if it is taken, another one.", min=0, max=65535)] = 8899,
    host: Annotated[str, typer.Option(help="The address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Look inside models on a page. Every number can be asked why it is so, and changed.

    regard view
    regard view toy-translate --text "the European Economic Area"
    regard view path/to/model runs/book --run runs/book
    regard view smollm2 --port 9000 --no-browser
    """
    show_warnings()
    host = host.strip("[]")  # as an IPv6 address stands in a URL
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads must not spin on the browser's cores
    with progress("Opening", "parts"):
        from regard.serve.app import make_app
        from regard.serve.frames import Runs
        from regard.serve.shelf import Shelf

        shelf = Shelf(models or [])
        app = make_app(shelf, runs=Runs(run or [], Path("runs")), host=host, most_requests=CONNECTIONS // 4)
    first = next(iter(shelf.offers), None)
    door = listen(host, port)
    address = address_of(door, host, first if models else None, text)
    print(f"regard is open at {address}", flush=True)
    remark("Ctrl-C closes it.")
    if not no_browser:
        open_browser(address)
    if first is not None:
        shelf.warm(first)
    serve(app, door)


def listen(host: str, port: int, *, another: bool = True) -> "socket.socket":
    """A socket at the port; if somebody has it, at `another` that is free, or a refusal."""
    import errno
    import socket

    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise RegardError(f"--host {quoted(host)} is not an address of this machine.") from None
    family, _, _, _, place = places[0]
    try:
        return bound(family, place)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE and another:
            with suppress(OSError):
                door = bound(family, (place[0], 0, *place[2:]))
                remark(f"Port {port} is taken, so it is port {door.getsockname()[1]}.")
                return door
        if problem.errno == errno.EADDRINUSE:
            raise RegardError(f"Port {port} is taken; give another --port.") from None
        if problem.errno == errno.EACCES:
            raise RegardError(f"Port {port} may not be used by this user; give --port above 1023.") from None
        raise RegardError(f"Nothing can listen on {quoted(host)}, port {port}: {problem.strerror}.") from None


def bound(family: int, place: "tuple[Any, ...]") -> "socket.socket":
    import socket

    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name != "nt":
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(place)
        door.listen(128)
    except OSError:
        door.close()
        raise
    return door


def address_of(door: "socket.socket", host: str, model: str | None, text: str | None) -> str:
    """What to open: the page with the model and text in it."""
    from urllib.parse import urlencode

    name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    state = urlencode({key: value for key, value in (("model", model), ("text", text)) if value})
    return f"http://{name}:{door.getsockname()[1]}/" + (f"#{state}" if state else "")


def open_browser(address: str) -> None:
    import webbrowser

    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32")
    if not screen or not webbrowser.open(address):
        remark("There is no browser to open here: open the address yourself.")


def serve(app: "FastAPI", door: "socket.socket") -> NoReturn:
    """Until Ctrl-C. A thread may be computing then, which Python cannot end in good order, and nothing of it is kept."""
    import warnings

    from regard.serve.connections import Limits
    from regard.serve.listener import Server, affordable

    limits = Limits(connections=affordable(CONNECTIONS))
    warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited")  # Ctrl-C before its first step
    with suppress(KeyboardInterrupt):
        Server(app, limits, log_level="warning", timeout_graceful_shutdown=2).run(sockets=[door])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
