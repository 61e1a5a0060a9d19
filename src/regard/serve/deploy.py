"""The server as a Ray Serve application: `serve run regard.serve.deploy:app models=smollm2`.

In: the arguments after the colon, all of them text. Out: what `serve run` and `serve deploy` start: replicas of the same
server that `regard serve` starts, each with its models, slots and queue. Ray takes the connections, spreads the requests
over replicas and replaces one that dies. The key is taken from REGARD_API_KEY where the command is given.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULTS = {"models": "", "host": "127.0.0.1", "replicas": "1", "cpus": "1", "gpus": "0", "slots": "8", "queue": "64"}


def app(given: Mapping[str, str]) -> Any:
    """models: names with commas between them. host: where Ray's proxies listen; 0.0.0.0 for all addresses of a machine.
    replicas: how many servers, each with so many cpus and gpus. slots and queue: of each model in each."""
    from ray import serve

    if unknown := sorted(set(given) - set(DEFAULTS)):
        raise ConfigError(f"There is no argument {unknown[0]!r}; there are {', '.join(DEFAULTS)}.")
    said = {**DEFAULTS, **given}
    numbers = {name: whole(name, said[name]) for name in ("replicas", "cpus", "gpus", "slots", "queue")}
    names = [name.strip() for name in said["models"].split(",") if name.strip()]
    host, key = said["host"], os.environ.get("REGARD_API_KEY")

    def build() -> "FastAPI":
        return make(names, host, key, numbers)

    # Each replica has queues of its own, and answers 429 when they are full; Ray should not queue in front of them.
    room = numbers["slots"] + numbers["queue"] + 16
    deployment: Any = serve.deployment(
        serve.ingress(build)(),
        name="regard",
        num_replicas=numbers["replicas"],
        max_ongoing_requests=room,
        ray_actor_options={"num_cpus": numbers["cpus"], "num_gpus": numbers["gpus"]},
    )
    return deployment.bind()


def make(names: list[str], host: str, key: str | None, numbers: Mapping[str, int]) -> "FastAPI":
    """The server of one replica, in that replica's process."""
    from regard.engine.threads import use_threads
    from regard.serve.engines import Engines
    from regard.serve.openai import make_server
    from regard.serve.shelf import Shelf

    threads = max(1, numbers["cpus"])
    use_threads(threads)
    shelf = Shelf(names)
    engines = Engines(shelf, slots=numbers["slots"], queue=numbers["queue"], threads=threads)
    shelf.warm(shelf.named[0])
    return make_server(engines, host=host, key=key)


def whole(name: str, value: str) -> int:
    if not (str(value).isascii() and str(value).isdecimal()):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number.")
    return int(value)
