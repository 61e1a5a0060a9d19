"""An offline run on Ray Data: the same parcels, answered by models on many machines.

In: a job, its input and the parcels that are left. Out: the same parcels answered, in order. Reading, spreading, retrying
and holding back what nobody has taken yet are Ray Data's own doing. One task on this machine reads the files, so only this
machine needs to see them; each worker holds the model, which it must be able to load by the same name. A worker that dies
is started anew and its parcels are answered again.
"""

import importlib.util
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from regard.errors import ConfigError, RegardError
from regard.serve.job import Answered, Job, Worker
from regard.serve.offline import Engine, remaining
from regard.serve.rows import Input, Parcel, Row

LOCAL = "local"  # in place of an address: a cluster of this machine alone, for this run alone


def on_ray(address: str, workers: int | None = None, cpus: float = 1) -> Engine:
    """Answer on the cluster at `address` ("auto": the one this machine is in), by so many workers with `cpus` cores each.

    Workers: one per GPU if the cluster has GPUs, else as many as its cores allow.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'regard[ray]', or leave --ray away.")

    def engine(job: Job, given: Input, first: int) -> Iterator[Answered]:
        with connected(address):
            yield from stream(job, given, first, workers, cpus)

    return engine


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A session with the cluster; one that is open already is used and left open."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    import ray

    if ray.is_initialized():
        yield
        return
    where: dict[str, Any] = {"address": LOCAL, "include_dashboard": False} if address == LOCAL else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as problem:
        hint = "start one with `ray start --head`, or give --ray local"
        raise ConfigError(f"No Ray cluster answers at {address!r}: {hint}.") from problem
    try:
        yield
    finally:
        ray.shutdown()


def stream(job: Job, given: Input, first: int, workers: int | None, cpus: float) -> Iterator[Answered]:
    """The pipeline: a task that reads, workers that answer, and this process that takes what is ready, in order."""
    import ray
    from ray.data import ActorPoolStrategy, DataContext
    from ray.exceptions import RayError

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    have = ray.cluster_resources()
    gpus = 1 if have.get("GPU") and job.device in ("auto", "cuda") else 0
    size = workers or max(1, int(have["GPU"] if gpus else have.get("CPU", 1) // cpus))
    rows = ray.data.read_datasource(
        source_of(job, given, first),
        override_num_blocks=1,
        num_cpus=0,
        label_selector={"ray.io/node-id": ray.get_runtime_context().get_node_id()},
    )
    rows = rows.map_batches(
        Actor,
        fn_constructor_args=(job, cpus),
        batch_size=1,
        compute=ActorPoolStrategy(min_size=1, max_size=size, initial_size=size),
        num_cpus=cpus,
        num_gpus=gpus,
    )
    context: DataContext = rows.context
    context.target_max_block_size = 1  # so that every parcel is a block of its own, and goes to whoever is free
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    try:
        for batch in rows.iter_batches(batch_size=None, prefetch_batches=0):
            yield from map(opened, batch["answered"])
    except RayError as problem:
        logs = "the rest is in Ray's logs, by default in /tmp/ray/session_latest/logs"
        raise RegardError(f"Ray could not finish ({type(problem).__name__}); {logs}.") from problem


def opened(said: str) -> Answered:
    """A worker's answer; where it was refused, the sentence, raised here."""
    answer = json.loads(said)
    if "refused" in answer:
        raise RegardError(answer["refused"])
    return Answered(**answer)


def source_of(job: Job, given: Input, first: int) -> Any:
    """The parcels as Ray Data reads them: a table of one row each, streamed from a single task."""
    import pyarrow
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    def read() -> Iterator[pyarrow.Table]:
        try:
            for parcel in remaining(job, given, first):
                yield pyarrow.table({"parcel": [json.dumps(asdict(parcel))]})
        except RegardError as problem:
            yield pyarrow.table({"parcel": [json.dumps({"refused": str(problem)})]})

    class Parcels(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *rest: Any, **more: Any) -> list[ReadTask]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ReadTask(read, unknown)]

    return Parcels()


class Actor:
    """A worker process of Ray's that holds the model.

    What it must refuse it says rather than raises, since of an exception Ray hands on the traceback alone.
    """

    def __init__(self, job: Job, cpus: float) -> None:
        from regard.api import load
        from regard.engine.threads import use_threads

        use_threads(max(1, int(cpus)))
        self.worker: Worker | RegardError
        try:
            self.worker = Worker(job, load(job.model, dtype=job.dtype, device=job.device))
        except RegardError as problem:
            self.worker = problem

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        return {"answered": [json.dumps(self.answer(json.loads(parcel))) for parcel in batch["parcel"]]}

    def answer(self, parcel: dict[str, Any]) -> dict[str, Any]:
        if "refused" in parcel:
            return parcel
        try:
            if isinstance(self.worker, RegardError):
                raise self.worker
            rows = tuple(Row(**row) for row in parcel["rows"])
            return asdict(self.worker.answer(Parcel(parcel["number"], rows)))
        except RegardError as problem:
            return {"refused": str(problem)}
