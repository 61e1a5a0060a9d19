"""`regard serve`: models behind the OpenAI-compatible interface, with the page beside it."""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from regard.cli.say import Cache, progress, remark
from regard.cli.view import address_of, listen
from regard.errors import RegardError

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from fastapi import FastAPI

    from regard.serve.connections import Limits

DRAIN = 30  # seconds that answers have to come to their end after SIGTERM
CONNECTIONS = 1024


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to serve; without any, those bundled and installed.", metavar="MODEL"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Where to listen; 0 is any free port.", min=0, max=65535, metavar="N")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(help="Who asks must know it.", metavar="KEY", envvar="REGARD_API_KEY", show_envvar=True),
    ] = None,
    slots: Annotated[int, typer.Option(help="Texts each model writes side by side.", min=1, max=1024, metavar="N")] = 8,
    queue: Annotated[int, typer.Option(help="Answers that may wait for a slot.", min=0, max=65536, metavar="N")] = 64,
    context: Annotated[
        int | None, typer.Option(help="Longest text in tokens; else the model's own limit.", min=2, metavar="N")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads that compute; else all cores.", min=1, max=1024, metavar="N")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(help="GB for weights and caches; else half of what is free.", min=0.01, metavar="GB"),
    ] = None,
    cache: Cache = None,
    connections: Annotated[
        int | None,
        typer.Option(help="Clients connected at once, half of them asking; else 1024.", min=16, max=65536, metavar="N"),
    ] = None,
    keep_alive: Annotated[
        float,
        typer.Option(help="Seconds a connection stays between two requests.", min=0, max=86400, metavar="SECONDS"),
    ] = 75,
) -> None:
    """Serve models to programs. They are asked as OpenAI's are, and the page is there too.

    regard serve smollm2
    regard serve toy-gpt toy-bert --port 9000
    regard serve path/to/model --slots 16 --context 2048 --memory 8
    regard serve smollm2 --host 0.0.0.0 --api-key "a long secret"
    """
    if api_key is not None and not (
        api_key and api_key == api_key.strip() and api_key.isascii() and api_key.isprintable()
    ):
        raise RegardError("--api-key must be printable ASCII, at least one character, without spaces around it.")
    if memory is not None and not math.isfinite(memory):
        raise RegardError(f"--memory is {memory}: it must be a number of GB.")
    host = host.strip("[]")  # as an IPv6 address stands in a URL
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads must not spin on the cores that write
    with progress("Opening", "parts"):
        from regard.engine.threads import use_threads
        from regard.serve.connections import Limits
        from regard.serve.engines import Engines
        from regard.serve.frames import Runs
        from regard.serve.journal import log_as_lines
        from regard.serve.listener import affordable
        from regard.serve.openai import make_server
        from regard.serve.shelf import Shelf

        if threads:
            use_threads(threads)
        shelf = Shelf(models or [], most_bytes=None if memory is None else int(memory * 1e9), cache=cache)
        engines = Engines(shelf, slots=slots, queue=queue, context=context, threads=threads)
        most = affordable(connections or max(CONNECTIONS, 2 * (slots + queue)))
        app = make_server(engines, host=host, key=api_key, runs=Runs([], Path("runs")), most_requests=most // 2)
    door = listen(host, port, another=False)
    print(f"regard serves {', '.join(shelf.named)} at {address_of(door, host, None, None)}v1", flush=True)
    if api_key is None and host not in ("127.0.0.1", "localhost", "::1"):
        remark("Whoever reaches this address may use it: give --api-key to change that.")
    log_as_lines(sys.stderr)
    shelf.warm(shelf.named[0])
    if connections is not None and most < connections:
        remark(f"This process may open files for {most} connections, not {connections}: see ulimit -n.")
    serve(app, door, Limits(connections=most, keep_alive=keep_alive))


def serve(app: "FastAPI", door: "socket.socket", limits: "Limits") -> NoReturn:
    """Until SIGTERM or Ctrl-C, after which nobody new is taken and who is here is still served."""
    import signal
    import warnings

    from regard.serve import listener

    class Server(listener.Server):
        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            if self.should_exit:  # asked a second time: at once
                os._exit(128 + sig)
            super().handle_exit(sig, frame)

    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends it again when all is done
    warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited")  # Ctrl-C before its first step
    with suppress(KeyboardInterrupt):
        Server(app, limits, log_config=None, timeout_graceful_shutdown=DRAIN).run(sockets=[door])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
