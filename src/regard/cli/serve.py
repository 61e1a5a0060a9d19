"""`regard serve`: the OpenAI-compatible HTTP server, which also serves the page."""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from regard.cli.console import Cache, print_stderr, progress
from regard.cli.view import address_of, listen
from regard.errors import RegardError

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from fastapi import FastAPI

    from regard.serve.connections import Limits

DRAIN = 30  # seconds that running requests have to finish after SIGTERM
CONNECTIONS = 1024


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to serve; without any, all bundled and installed ones.", metavar="MODEL"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0 is any free port.", min=0, max=65535, metavar="N")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(help="Clients must send this API key.", metavar="KEY", envvar="REGARD_API_KEY", show_envvar=True),
    ] = None,
    slots: Annotated[
        int, typer.Option(help="Sequences that a model generates in one batch.", min=1, max=1024, metavar="N")
    ] = 8,
    queue: Annotated[
        int, typer.Option(help="Requests that may wait for a slot; more get 429.", min=0, max=65536, metavar="N")
    ] = 64,
    context: Annotated[
        int | None, typer.Option(help="Maximum context in tokens; else the model's own.", min=2, metavar="N")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads; else all cores.", min=1, max=1024, metavar="N")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(help="GB for weights and KV caches; else half of the free memory.", min=0.01, metavar="GB"),
    ] = None,
    cache: Cache = None,
    connections: Annotated[
        int | None,
        typer.Option(
            help="Open connections, half of them with a request; else 1024 or more.", min=16, max=65536, metavar="N"
        ),
    ] = None,
    keep_alive: Annotated[
        float,
        typer.Option(
            help="Seconds that an idle connection is kept open between requests.", min=0, max=86400, metavar="SECONDS"
        ),
    ] = 75,
) -> None:
    """Serve models over HTTP with an OpenAI-compatible API. The page of `regard view` is served too.

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
    host = host.strip("[]")  # as an IPv6 address is written in a URL
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads must not spin on the cores that generate
    with progress("Opening", "parts"):
        from regard.engine.threads import use_threads

        if threads:
            use_threads(threads)  # before numpy is imported, which reads it then
        from regard.page.training_frames import TrainingRuns
        from regard.serve.access_log import log_json_lines
        from regard.serve.connections import Limits
        from regard.serve.model_registry import ModelRegistry
        from regard.serve.openai import make_server
        from regard.serve.served_models import ServedModels
        from regard.serve.uvicorn_server import connection_limit

        registry = ModelRegistry(models or [], max_bytes=None if memory is None else int(memory * 1e9), cache=cache)
        served = ServedModels(registry, slots=slots, queue=queue, context=context, threads=threads)
        max_connections = connection_limit(connections or max(CONNECTIONS, 2 * (slots + queue)))
        app = make_server(
            served, host=host, key=api_key, runs=TrainingRuns([], Path("runs")), max_requests=max_connections // 2
        )
    sock = listen(host, port, any_port=False)
    print(f"regard serves {', '.join(registry.served_names)} at {address_of(sock, host, None, None)}v1", flush=True)
    if api_key is None and host not in ("127.0.0.1", "localhost", "::1"):
        print_stderr("Anyone who can reach this address can use the server: give --api-key to restrict it.")
    log_json_lines(sys.stderr)
    registry.warm(registry.served_names[0])
    if connections is not None and max_connections < connections:
        print_stderr(
            f"This process may open files for {max_connections} connections, not {connections}: see ulimit -n."
        )
    serve(app, sock, Limits(connections=max_connections, keep_alive=keep_alive))


def serve(app: "FastAPI", sock: "socket.socket", limits: "Limits") -> NoReturn:
    """Serve until SIGTERM or Ctrl-C; then no new connections are accepted and running requests are finished."""
    import signal
    import warnings

    from regard.serve import uvicorn_server

    class Server(uvicorn_server.Server):
        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            if self.should_exit:  # the second signal: exit at once
                os._exit(128 + sig)
            super().handle_exit(sig, frame)

    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends it again when all is done
    warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited")  # Ctrl-C before its first step
    with suppress(KeyboardInterrupt):
        Server(app, limits, log_config=None, timeout_graceful_shutdown=DRAIN).run(sockets=[sock])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
