"""The server as a Ray Serve application: `serve run regard.serve.deploy:app models=smollm2`.

In: the arguments of the command, all of them strings. Out: what `serve run` and `serve deploy` start: replicas of the
server that `regard serve` starts, each with its own models, slots and queue. Ray accepts the connections, distributes the
requests over replicas and replaces one that dies. The key is read from REGARD_API_KEY on the machine that runs the command.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULTS = {"models": "", "host": "127.0.0.1", "replicas": "1", "cpus": "1", "gpus": "0", "slots": "8", "queue": "64"}


def app(arguments: Mapping[str, str]) -> Any:
    """The Ray Serve application. models: names separated by commas. host: where Ray's proxies listen; 0.0.0.0 for all
    addresses of a machine. replicas: how many servers, each with `cpus` and `gpus`. slots and queue: of each model in each
    replica."""
    from ray import serve

    if unknown := sorted(set(arguments) - set(DEFAULTS)):
        raise ConfigError(f"There is no argument {unknown[0]!r}; there are {', '.join(DEFAULTS)}.")
    settings = {**DEFAULTS, **arguments}
    numbers = {name: whole_number(name, settings[name]) for name in ("replicas", "cpus", "gpus", "slots", "queue")}
    names = [name.strip() for name in settings["models"].split(",") if name.strip()]
    host, key = settings["host"], os.environ.get("REGARD_API_KEY")

    def build() -> "FastAPI":
        return make_replica(names, host, key, numbers)

    # Each replica has queues of its own, and answers 429 when they are full; Ray should not queue in front of them.
    capacity = numbers["slots"] + numbers["queue"] + 16
    deployment: Any = serve.deployment(
        serve.ingress(build)(),
        name="regard",
        num_replicas=numbers["replicas"],
        max_ongoing_requests=capacity,
        ray_actor_options={"num_cpus": numbers["cpus"], "num_gpus": numbers["gpus"]},
    )
    return deployment.bind()


def make_replica(names: list[str], host: str, key: str | None, numbers: Mapping[str, int]) -> "FastAPI":
    """The server of one replica, in that replica's process."""
    from regard.engine.threads import use_threads
    from regard.serve.model_registry import ModelRegistry
    from regard.serve.openai import make_server
    from regard.serve.served_models import ServedModels

    threads = max(1, numbers["cpus"])
    use_threads(threads)
    registry = ModelRegistry(names)
    served = ServedModels(registry, slots=numbers["slots"], queue=numbers["queue"], threads=threads)
    registry.warm(registry.served_names[0])
    return make_server(served, host=host, key=key)


def whole_number(name: str, value: str) -> int:
    if not (str(value).isascii() and str(value).isdecimal()):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number.")
    return int(value)
