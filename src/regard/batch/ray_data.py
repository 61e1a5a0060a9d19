"""A batch run on Ray Data: the same batches of rows, answered by models on many machines.

In: a task, its input files and the number of the first remaining batch. Out: the results, in order. Scheduling, retries and
backpressure are Ray Data's. One Ray task on this machine reads the files, so only this machine needs access to them; each
worker holds the model, which it must be able to load by the same name. A worker that dies is restarted and its batches
are answered again.
"""

import importlib.util
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from regard.batch.input import InputFiles, InputRow, RowBatch
from regard.batch.runner import Executor, remaining
from regard.batch.task import BatchResult, BatchTask, Worker
from regard.errors import ConfigError, RegardError

LOCAL = "local"  # instead of an address: a cluster on this machine, for this run only


def ray_executor(address: str, workers: int | None = None, cpus: float = 1) -> Executor:
    """An executor on the cluster at `address` ("auto": the one this machine is in), with `cpus` cores per worker.

    workers: by default one per GPU if the cluster has GPUs, else as many as its cores allow.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'regard[ray]', or leave out --ray.")

    def execute(task: BatchTask, files: InputFiles, first: int) -> Iterator[BatchResult]:
        with connected(address):
            yield from stream(task, files, first, workers, cpus)

    return execute


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A connection to the cluster; one that exists already is used and left open."""
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


def stream(task: BatchTask, files: InputFiles, first: int, workers: int | None, cpus: float) -> Iterator[BatchResult]:
    """The Ray Data pipeline: a task that reads the files, workers that answer, and the results, in order."""
    import ray
    from ray.data import ActorPoolStrategy, DataContext
    from ray.exceptions import RayError

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    have = ray.cluster_resources()
    gpus = 1 if have.get("GPU") and task.device in ("auto", "cuda") else 0
    size = workers or max(1, int(have["GPU"] if gpus else have.get("CPU", 1) // cpus))
    rows = ray.data.read_datasource(
        batch_source(task, files, first),
        override_num_blocks=1,
        num_cpus=0,
        label_selector={"ray.io/node-id": ray.get_runtime_context().get_node_id()},
    )
    rows = rows.map_batches(
        Actor,
        fn_constructor_args=(task, cpus),
        batch_size=1,
        compute=ActorPoolStrategy(min_size=1, max_size=size, initial_size=size),
        num_cpus=cpus,
        num_gpus=gpus,
    )
    context: DataContext = rows.context
    context.target_max_block_size = 1  # one block per batch of rows, so that it goes to the next idle worker
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    try:
        for batch in rows.iter_batches(batch_size=None, prefetch_batches=0):
            yield from map(parse_result, batch["answered"])
    except RayError as problem:
        logs = "the rest is in Ray's logs, by default in /tmp/ray/session_latest/logs"
        raise RegardError(f"Ray could not finish ({type(problem).__name__}); {logs}.") from problem


def parse_result(text: str) -> BatchResult:
    """A worker's result from its JSON; an error of the worker is raised here."""
    answer = json.loads(text)
    if "refused" in answer:
        raise RegardError(answer["refused"])
    return BatchResult(**answer)


def batch_source(task: BatchTask, files: InputFiles, first: int) -> Any:
    """The batches of rows as a Ray Data source: one table row for each, streamed from a single task."""
    import pyarrow
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    def read() -> Iterator[pyarrow.Table]:
        try:
            for batch in remaining(task, files, first):
                yield pyarrow.table({"rows": [json.dumps(asdict(batch))]})
        except RegardError as problem:
            yield pyarrow.table({"rows": [json.dumps({"refused": str(problem)})]})

    class RowBatches(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *rest: Any, **more: Any) -> list[ReadTask]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ReadTask(read, unknown)]

    return RowBatches()


class Actor:
    """A Ray worker process that holds the model.

    It returns errors instead of raising them, since Ray reports only the traceback of an exception.
    """

    def __init__(self, task: BatchTask, cpus: float) -> None:
        from regard.api import load
        from regard.engine.threads import use_threads

        use_threads(max(1, int(cpus)))
        self.worker: Worker | RegardError
        try:
            self.worker = Worker(task, load(task.model, dtype=task.dtype, device=task.device))
        except RegardError as problem:
            self.worker = problem

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        return {"answered": [json.dumps(self.answer(json.loads(text))) for text in batch["rows"]]}

    def answer(self, batch: dict[str, Any]) -> dict[str, Any]:
        if "refused" in batch:
            return batch
        try:
            if isinstance(self.worker, RegardError):
                raise self.worker
            rows = tuple(InputRow(**row) for row in batch["rows"])
            return asdict(self.worker.answer(RowBatch(batch["number"], rows)))
        except RegardError as problem:
            return {"refused": str(problem)}
