"""`regard view`: the page, in a browser, on models and training runs of this machine."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from regard.cli.console import print_stderr, progress, show_warnings
from regard.errors import RegardError, quoted

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from regard.serve.model_registry import ModelRegistry
    from regard.teach.tour import Tour

CONNECTIONS = 256


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to show besides the bundled and installed ones.", metavar="MODEL"),
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option(help="A training run to replay; may be given several times.", metavar="DIR")
    ] = None,
    tour: Annotated[
        list[Path] | None,
        typer.Option(help="A tour of your own (YAML), which opens first; may be given several times.", metavar="FILE"),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The text to trace first.", metavar="TEXT")] = None,
    port: Annotated[
        int, typer.Option(help="The port to listen on; if it is taken, another one.", min=0, max=65535)
    ] = 8899,
    host: Annotated[str, typer.Option(help="The address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
) -> None:
    """Look inside models in the browser. Every number of a forward pass can be explained, and edited.

    regard view
    regard view toy-translate --text "the European Economic Area"
    regard view path/to/model runs/book --run runs/book
    regard view smollm2 --port 9000 --no-browser
    regard view --tour lecture-3.yaml
    """
    show_warnings()
    host = host.strip("[]")  # as an IPv6 address is written in a URL
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads must not spin on the browser's cores
    with progress("Opening", "parts"):
        from regard.page.training_frames import TrainingRuns
        from regard.serve.app import make_app
        from regard.serve.model_registry import ModelRegistry

        registry = ModelRegistry(models or [])
        tours = [checked_tour(path, registry) for path in tour or []]
        runs = TrainingRuns(run or [], Path("runs"))
        app = make_app(registry, runs=runs, tours=tours, host=host, max_requests=CONNECTIONS // 4)
    first = next(iter(registry.entries), None)
    sock = listen(host, port)
    opened = tours[0].name if tours and not text else None
    address = address_of(sock, host, first if models and not opened else None, text, opened)
    print(f"regard is open at {address}", flush=True)
    print_stderr("Ctrl-C closes it.")
    if not no_browser:
        open_browser(address)
    if first is not None:
        registry.warm(first)
    serve(app, sock)


def listen(host: str, port: int, *, any_port: bool = True) -> "socket.socket":
    """A listening socket at the port; if that is taken, at any free port, or with `any_port` false an error."""
    import errno
    import socket

    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise RegardError(f"--host {quoted(host)} is not an address of this machine.") from None
    family, _, _, _, address = addresses[0]
    try:
        return bound(family, address)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE and any_port:
            with suppress(OSError):
                sock = bound(family, (address[0], 0, *address[2:]))
                print_stderr(f"Port {port} is taken, so it is port {sock.getsockname()[1]}.")
                return sock
        if problem.errno == errno.EADDRINUSE:
            raise RegardError(f"Port {port} is taken; give another --port.") from None
        if problem.errno == errno.EACCES:
            raise RegardError(f"Port {port} may not be used by this user; give --port above 1023.") from None
        raise RegardError(f"Nothing can listen on {quoted(host)}, port {port}: {problem.strerror}.") from None


def bound(family: int, address: "tuple[Any, ...]") -> "socket.socket":
    import socket

    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name != "nt":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def checked_tour(path: Path, registry: "ModelRegistry") -> "Tour":
    """A teacher's tour, every view of it tried on the models of this machine."""
    from regard.teach.tour_file import check_tour, read_tour

    return check_tour(
        read_tour(path), registry.entries, lambda name, text, target: registry.model(name).trace(text, target)
    )


def address_of(sock: "socket.socket", host: str, model: str | None, text: str | None, tour: str | None = None) -> str:
    """The URL of the page, with the model and text, or the tour, in it."""
    from urllib.parse import urlencode

    name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    shown = (("model", model), ("text", text), ("tour", tour))
    state = urlencode({key: value for key, value in shown if value})
    return f"http://{name}:{sock.getsockname()[1]}/" + (f"#{state}" if state else "")


def open_browser(address: str) -> None:
    import webbrowser

    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32")
    if not screen or not webbrowser.open(address):
        print_stderr("There is no browser to open here: open the address yourself.")


def serve(app: "FastAPI", sock: "socket.socket") -> NoReturn:
    """Serve until Ctrl-C. The process then exits at once: Python cannot stop a thread that is computing."""
    import warnings

    from regard.serve.connections import Limits
    from regard.serve.uvicorn_server import Server, connection_limit

    limits = Limits(connections=connection_limit(CONNECTIONS))
    warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited")  # Ctrl-C before its first step
    with suppress(KeyboardInterrupt):
        Server(app, limits, log_level="warning", timeout_graceful_shutdown=2).run(sockets=[sock])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
